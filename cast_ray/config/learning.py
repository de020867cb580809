"""The part of a run's configuration that says what is learned and how, and the named algorithms.

An algorithm's name stands for values of ``objective``, ``advantage`` and ``distillation``. Each
key can also be set by itself, so that CAST's term goes with any outcome objective:
``algorithm=gspo advantage.alpha=0.1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cast_ray.config.checks import above, at_least, between, require

AlgorithmName: TypeAlias = Literal[
    "cast", "grpo", "dapo", "gspo", "gigpo", "distill_reverse", "distill_forward"
]

_SMALLEST_TOKEN_CLIP = 0.05
"""A sequence's ratio is a mean over hundreds of tokens: it moves by thousandths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """DeepSpeed."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of weights and activations; with bfloat16 the optimizer also keeps float32 weights. auto =
    bfloat16 on GPUs and on CPUs that compute it, which on others takes up to 90 times as long."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """DeepSpeed ZeRO; bfloat16 needs at least 1."""
    lora_rank: int = 0
    """Train low-rank adapters of this rank (peft) on all linear layers and freeze the weights;
    0 = train all weights."""
    lora_alpha: int = 32
    """The adapters' output is multiplied by ``lora_alpha / lora_rank``."""
    offload_optimizer: bool = False
    """Keep the optimizer's state in host memory and update it there."""
    gradient_checkpointing: bool = False
    """Keep only each layer's input and compute activations twice."""
    lr: float = 2e-4
    """Constant learning rate of the policy updates (the paper: 1e-6 for a 4 B model)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's betas (the paper: 0.9, 0.999; a short run needs the shorter memory)."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    max_grad_norm: float = 1.0
    """A longer gradient is scaled down to this norm."""
    mini_batches: int = 2
    """Optimizer updates per step, each on complete groups."""
    tokens_per_micro_batch: int = 4096
    """Tokens of one forward and backward pass; bounds memory, changes no result."""
    tokens_per_logit_chunk: int = 1024
    """Tokens whose logits exist at the same time; bounds memory, changes no result."""
    num_threads: int = 1
    """Torch threads of one rank on CPU."""
    max_skipped_updates: int = 3
    """Updates that are not finite are skipped and counted; this many in a row stop the run."""
    health_timeout_s: float = 45.0
    """A rank that does not answer for this long while the others wait counts as dead; at most 50,
    so that it is noticed within a minute."""
    max_restarts: int = 10
    """How often a run restarts lost ranks from the newest checkpoint and the trajectories since."""
    timeout_s: float = 600.0
    """Longest wait for the learner's answer: an update, a checkpoint, new weights."""

    def __post_init__(self) -> None:
        at_least(1, self, "learner.", "mini_batches", "tokens_per_micro_batch", "num_threads")
        at_least(1, self, "learner.", "tokens_per_logit_chunk", "max_skipped_updates")
        at_least(0, self, "learner.", "lr", "lora_rank", "weight_decay")
        above(0, self, "learner.", "max_grad_norm", "lora_alpha", "timeout_s")
        are_valid = all(0 <= beta < 1 for beta in self.betas)
        require(are_valid, "learner.betas", "each in [0, 1)", self.betas)
        health = self.health_timeout_s
        require(0 < health <= 50, "learner.health_timeout_s", "in (0, 50]", health)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageConfig:
    """Credit: the group's outcome and the solver's signal on each turn (paper, eq:final_advantage).

    ``step_weight`` and ``step_discount`` are GiGPO's (tab:hp_gigpo).
    """

    function: str = ""
    """Computes the advantage of the outcome in place of the comparison within each group:
    ``package.module:name`` or ``path/file.py:name`` (docs/functions.md); the solver's term is still
    added. The run keeps the digest of its source."""
    alpha: float = 1.0
    """Weight of the solver's signal (the paper: 0.1); 0 = the outcome alone."""
    transform: str = "asinh"
    """What compresses a turn's credit first (eq:asinh); the others are ablations."""
    normalisation: Literal["rms", "none"] = "rms"
    """Divide by the RMS over all turns of the step (eq:rms_norm), or do not divide."""
    rescue: Literal["cost", "zero"] = "cost"
    """Credit of a turn from an infinite cost to a finite one (Minesweeper: a guess that came out
    well): the cost it leads to, the number of safe cells if it wins; or nothing."""
    std: Literal["population", "sample"] = "population"
    """Deviation of the group's rewards: over n (the paper), or over n - 1."""
    delta: float = 1e-6
    """Added to the group's standard deviation."""
    epsilon: float = 1e-8
    """Added to the RMS of the turns' credit."""
    step_weight: float = 0.0
    """Weight of GiGPO's step advantage, which compares turns of a group on the same board."""
    step_discount: float = 0.95
    """Discount per turn of the returns that it compares."""
    overlong_buffer: int = 0
    """The reward falls linearly, by up to 1, over this many tokens before the episode's bound
    (DAPO's overlong shaping; the paper: off). 0 = off."""
    permute_credit: bool = False
    """A control: shuffle the solver's credit among the turns of the step."""
    level: Literal["turn", "trajectory_sum", "trajectory_mean"] = "turn"
    """A control: the sum or the mean of a trajectory's credit, after transform and normalisation
    and compared within its group as the outcome is, for each of its turns."""
    idle_price: float = 0.0
    """What a turn without effect earns in place of 0, before the transform; -1 takes back what the
    shift gives it. An answer that was cut off still earns 0."""
    shift: Literal[0, 1] = 1
    """Added to the advantage of a turn (eq:shifted_solver_advantage); with 0 each turn that was
    executed earns one less, and an optimal move 0."""

    def __post_init__(self) -> None:
        at_least(0, self, "advantage.", "alpha", "delta", "epsilon", "step_weight")
        at_least(0, self, "advantage.", "overlong_buffer")
        between(0, 1, self, "advantage.", "step_discount")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """The clipped surrogate (paper, tab:hp_algo); the default is DAPO's, which CAST uses."""

    loss: str = ""
    """Computes the loss of each token in place of the clipped surrogate: a function, named as for
    ``advantage.function``."""
    ratio: Literal["token", "sequence"] = "token"
    """A token's probability over that at the start of the step, or the geometric mean of these
    ratios over all model tokens of the trajectory (GSPO)."""
    aggregation: Literal["token_mean", "sequence_mean"] = "token_mean"
    """Mean over all tokens in the loss, or over each trajectory's tokens and then over
    trajectories."""
    clip_low: float = 0.2
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = 0.28
    """The ratio is clipped above at 1 + clip_high."""
    dual_clip: float = 3.0
    """Largest multiple of -A in the loss where the advantage A is negative; 0 = off."""
    kl_coefficient: float = 0.0
    """Weight of the divergence from the reference model in the loss."""
    reference: str = "start"
    """The reference model: ``start`` (the run's first weights), one as for ``policy.path``, or
    ``none``. It is loaded only if ``kl_coefficient`` is not 0."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy as a bonus (the paper: off)."""
    rollout_correction: Literal["truncate", "mask", "none"] = "truncate"
    """Where the engine's probabilities differ from the learner's: weight each token by their
    ratio, at most the cap; leave out tokens whose ratio is beyond the cap or its inverse; or do
    nothing (the paper)."""
    rollout_correction_cap: float = 2.0
    """Largest weight of ``rollout_correction``."""

    def __post_init__(self) -> None:
        low, dual = self.clip_low, self.dual_clip
        require(0 < low < 1, "objective.clip_low", "between 0 and 1", low)
        require(dual == 0 or dual > 1, "objective.dual_clip", "> 1, or 0 for none", dual)
        above(0, self, "objective.", "clip_high")
        at_least(1, self, "objective.", "rollout_correction_cap")
        at_least(0, self, "objective.", "kl_coefficient", "entropy_coefficient")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """What an episode is worth."""

    function: str = ""
    """Computes the reward that the group's outcomes are compared by, from the whole episode: a
    function, named as for ``advantage.function``. Success rates stay the game's. Empty = its own
    reward, 1 if it is solved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """Learning directly from the soft-optimal solver instead of the outcome."""

    mode: Literal["none", "reverse", "forward"] = "none"
    """``reverse``: the solver's log-probability of the action taken is the turn's advantage, with
    no outcome term (what the theorem says CAST does implicitly); ``forward``: cross-entropy on
    actions drawn from the solver in the states that the policy visited."""
    temperature: float = 1.0
    """Of the solver's action probabilities, in moves of the game."""

    def __post_init__(self) -> None:
        above(0, self, "distillation.", "temperature")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetOracleConfig:
    """The value network of ``oracle: value_net`` (paper, app:dqn)."""

    path: str = ""
    """Directory of the network, as ``cast-ray value-net train`` writes it (RUN/value_net)."""
    scale: float = 2.0
    """A turn earns this many times what it adds to the value."""
    failure: float = -1.5
    """The value of a lost state, below all that the network says; a won state has 1."""

    def __post_init__(self) -> None:
        above(0, self, "value_net.", "scale")
        rule = "< -1, the least return of play at 0.01 per step and discount 0.99"
        require(self.failure < -1, "value_net.failure", rule, self.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncConfig:
    """The checks after every weight update."""

    warn_ratio: float = 3.0
    """Warn if the logprob difference is this many times its healthy level."""
    stop_ratio: float = 10.0
    """Stop the run if the logprob difference is this many times its healthy level."""

    def __post_init__(self) -> None:
        warn, rule = self.warn_ratio, f"between 1 and sync.stop_ratio ({self.stop_ratio})"
        require(1 < warn <= self.stop_ratio, "sync.warn_ratio", rule, warn)


_DAPO = {
    "ratio": "token",
    "aggregation": "token_mean",
    "clip_low": 0.2,
    "clip_high": 0.28,
    "dual_clip": 3.0,
    "kl_coefficient": 0.0,
}
_GRPO = {**_DAPO, "clip_high": 0.2, "kl_coefficient": 0.001}
_GSPO = {
    **_DAPO,
    "ratio": "sequence",
    "aggregation": "sequence_mean",
    "clip_low": 3e-4,
    "clip_high": 4e-4,
    "dual_clip": 0.0,
}


def _algorithm(
    objective: Mapping[str, Any], *, mode: str = "none", **advantage: float
) -> Mapping[str, Mapping[str, Any]]:
    return {
        "objective": objective,
        "advantage": {"step_weight": 0.0, **advantage},
        "distillation": {"mode": mode},
    }


ALGORITHMS: Mapping[AlgorithmName, Mapping[str, Mapping[str, Any]]] = {  # Any: values of a key
    # alpha is not set here: the paper's value and the quickstart's differ.
    "cast": _algorithm(_DAPO),
    "grpo": _algorithm(_GRPO, alpha=0.0),
    "dapo": _algorithm(_DAPO, alpha=0.0),
    "gspo": _algorithm(_GSPO, alpha=0.0),
    "gigpo": _algorithm(_GRPO, alpha=0.0, step_weight=1.0),
    "distill_reverse": _algorithm(_DAPO, alpha=0.0, mode="reverse"),
    "distill_forward": _algorithm(_DAPO, alpha=0.0, mode="forward"),
}
"""What each algorithm sets; sections and keys as in the configuration."""


def contradictions(
    learner: LearnerConfig,
    advantage: AdvantageConfig,
    objective: ObjectiveConfig,
    distillation: DistillationConfig,
) -> list[str]:
    """Return why these sections contradict each other, one sentence per contradiction."""
    return [
        *_learner_contradictions(learner),
        *_objective_contradictions(objective),
        *_credit_contradictions(advantage, objective, distillation),
    ]


def _learner_contradictions(learner: LearnerConfig) -> list[str]:
    found = []
    if learner.lora_rank and learner.zero_stage not in (0, 2):
        found.append(
            f"learner.lora_rank={learner.lora_rank} needs learner.zero_stage 0 or 2, got "
            f"{learner.zero_stage}"
        )
    if learner.dtype == "bfloat16" and learner.zero_stage == 0 and not learner.lora_rank:
        found.append(
            "learner.dtype=bfloat16 needs learner.zero_stage 1, 2 or 3: at 0 the gradients of "
            "micro-batches would be summed in bfloat16"
        )
    if learner.offload_optimizer and learner.zero_stage == 0:
        found.append("learner.offload_optimizer needs learner.zero_stage 1, 2 or 3, got 0")
    return found


def _objective_contradictions(objective: ObjectiveConfig) -> list[str]:
    found = []
    largest = max(objective.clip_low, objective.clip_high)
    if objective.ratio == "sequence" and largest >= _SMALLEST_TOKEN_CLIP:
        found.append(
            f"objective.ratio=sequence needs clip values like 3e-4 and 4e-4, got clip values of "
            f"tokens (objective.clip_low={objective.clip_low}, objective.clip_high="
            f"{objective.clip_high})"
        )
    if objective.kl_coefficient and objective.reference == "none":
        found.append(
            f"objective.kl_coefficient={objective.kl_coefficient} needs a reference model: set "
            "objective.reference=start, or a model directory"
        )
    return found


def _credit_contradictions(
    advantage: AdvantageConfig, objective: ObjectiveConfig, distillation: DistillationConfig
) -> list[str]:
    found = []
    if advantage.function and advantage.step_weight:
        found.append(
            f"advantage.function={advantage.function} replaces the comparison that "
            f"advantage.step_weight={advantage.step_weight} is a part of: leave one of them out"
        )
    usual = AdvantageConfig()
    for name in ("permute_credit", "level", "idle_price", "shift"):
        if getattr(advantage, name) != getattr(usual, name) and advantage.alpha == 0:
            found.append(f"advantage.{name} has no effect with advantage.alpha=0")
    if advantage.idle_price and advantage.shift == 0:
        found.append(
            f"advantage.shift=0 lowers what a turn without effect earns already: leave out "
            f"advantage.idle_price={advantage.idle_price:g}"
        )
    if distillation.mode == "none":
        return found
    for name in ("alpha", "step_weight", "overlong_buffer"):
        if getattr(advantage, name):
            found.append(
                f"distillation.mode={distillation.mode} has neither an outcome nor a solver term: "
                f"set advantage.{name}=0"
            )
    if distillation.mode == "forward" and (
        objective.kl_coefficient or objective.entropy_coefficient
    ):
        found.append(
            "distillation.mode=forward is a cross-entropy: set objective.kl_coefficient=0 and "
            "objective.entropy_coefficient=0"
        )
    return found
