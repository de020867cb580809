"""The part of a run's configuration that says what is learned and how, and the named algorithms.

Defaults stand here and in ``config``, nowhere else. An algorithm's name is a set of values for
``objective``, ``advantage`` and ``distillation``; every one of them can be given
by itself, so that CAST's term goes with any outcome objective: ``algorithm=gspo
advantage.alpha=0.1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cast_ray.errors import ConfigError

AlgorithmName: TypeAlias = Literal[
    "cast", "grpo", "dapo", "gspo", "gigpo", "distill_reverse", "distill_forward"
]

_SMALLEST_TOKEN_CLIP = 0.05
"""A sequence's ratio is a mean over hundreds of tokens: it moves by thousandths."""


def require(condition: bool, key: str, rule: str, value: object) -> None:
    """Raise ConfigError unless the condition holds and the value is finite."""
    if not condition or value in (float("inf"), float("-inf")):
        raise ConfigError(f"{key} must be {rule}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """DeepSpeed."""

    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of weights and activations; beside bfloat16 the optimizer keeps float32 weights."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """DeepSpeed ZeRO; bfloat16 needs at least 1."""
    lora_rank: int = 0
    """Train low-rank adapters of this rank (peft) on all linear layers and leave the weights as
    they are; 0 = train all weights."""
    lora_alpha: int = 32
    """Adapters count ``lora_alpha / lora_rank`` times."""
    offload_optimizer: bool = False
    """Keep the optimizer's state in host memory and take its steps there."""
    gradient_checkpointing: bool = False
    """Compute activations twice and keep only each layer's input."""
    lr: float = 2e-4
    """Constant learning rate of the policy updates (the paper: 1e-6 for a 4 B model)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW (the paper: 0.9, 0.999; a short run needs the shorter memory)."""
    weight_decay: float = 0.01
    """AdamW's."""
    max_grad_norm: float = 1.0
    """A longer gradient is scaled down to this norm."""
    mini_batches: int = 2
    """Optimizer updates per step, each on whole groups."""
    tokens_per_micro_batch: int = 4096
    """Tokens of one forward and backward pass; bounds memory, changes no result."""
    tokens_per_logit_chunk: int = 1024
    """Tokens whose logits exist at the same time; bounds memory, changes no result."""
    num_threads: int = 1
    """Torch threads of one rank on CPU."""
    max_skipped_updates: int = 3
    """So many updates in a row that are not finite stop the run; each is skipped and counted."""
    health_timeout_s: float = 45.0
    """A rank that says nothing for so long while the others wait is taken for dead; at most 50, so
    that it is noticed within a minute."""
    max_restarts: int = 10
    """How often in a run lost ranks are started again, from the newest checkpoint and the
    trajectories since."""
    timeout_s: float = 600.0
    """Longest wait for the learner's answer: an update, a checkpoint, new weights."""

    def __post_init__(self) -> None:
        for name in ("mini_batches", "tokens_per_micro_batch", "num_threads"):
            require(getattr(self, name) >= 1, f"learner.{name}", ">= 1", getattr(self, name))
        for name in ("tokens_per_logit_chunk", "max_skipped_updates"):
            require(getattr(self, name) >= 1, f"learner.{name}", ">= 1", getattr(self, name))
        for name in ("lr", "lora_rank", "weight_decay"):
            require(getattr(self, name) >= 0, f"learner.{name}", ">= 0", getattr(self, name))
        require(
            all(0 <= beta < 1 for beta in self.betas), "learner.betas", "each in [0, 1)", self.betas
        )
        require(
            0 < self.health_timeout_s <= 50,
            "learner.health_timeout_s",
            "in (0, 50]",
            self.health_timeout_s,
        )
        for name in ("max_grad_norm", "lora_alpha", "timeout_s"):
            require(getattr(self, name) > 0, f"learner.{name}", "> 0", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageConfig:
    """Credit: the group's outcome, the solver's word on every turn (paper, eq:final_advantage).

    ``step_weight`` and ``step_discount`` are GiGPO's (tab:hp_gigpo).
    """

    alpha: float = 1.0
    """Weight of the solver's signal (the paper: 0.1; a short run of a small policy wants more);
    0 = the outcome alone."""
    transform: Literal["asinh", "identity", "signed_log"] = "asinh"
    """What compresses a turn's credit first (eq:asinh); the others are ablations."""
    normalisation: Literal["rms", "none"] = "rms"
    """Divide by the RMS over all turns of the step (eq:rms_norm), or by nothing."""
    rescue: Literal["cost", "zero"] = "cost"
    """Credit of a turn from an infinite cost to a finite one (Minesweeper: a guess that came out
    well): the cost it leads to, the number of safe cells if it wins; or nothing."""
    std: Literal["population", "sample"] = "population"
    """Deviation of the group's rewards: over n (the paper), or over n - 1."""
    delta: float = 1e-6
    """Added to that deviation."""
    epsilon: float = 1e-8
    """Added to the RMS."""
    step_weight: float = 0.0
    """Weight of GiGPO's step advantage: turns of a group that saw the same board."""
    step_discount: float = 0.95
    """Discount of the return in that comparison, a turn."""
    overlong_buffer: int = 0
    """The reward falls linearly to -1 lower over the last so many tokens before the episode's
    bound (DAPO's overlong shaping; the paper: off). 0 = off."""
    permute_credit: bool = False
    """A control: shuffle the solver's credit among the turns of the step."""

    def __post_init__(self) -> None:
        for name in ("alpha", "delta", "epsilon", "step_weight", "overlong_buffer"):
            require(getattr(self, name) >= 0, f"advantage.{name}", ">= 0", getattr(self, name))
        require(
            0 <= self.step_discount <= 1,
            "advantage.step_discount",
            "between 0 and 1",
            self.step_discount,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """The clipped surrogate (paper, tab:hp_algo); the default is DAPO's, which CAST uses."""

    ratio: Literal["token", "sequence"] = "token"
    """Of a token's probability to that at the start of the step, or the geometric mean of these
    over all model tokens of the trajectory (GSPO)."""
    aggregation: Literal["token_mean", "sequence_mean"] = "token_mean"
    """Mean over all tokens in the loss, or over each trajectory's tokens and then over
    trajectories."""
    clip_low: float = 0.2
    """The ratio counts down to 1 - clip_low."""
    clip_high: float = 0.28
    """The ratio counts up to 1 + clip_high."""
    dual_clip: float = 3.0
    """Largest multiple of -A in the loss where the advantage A is negative; 0 = off."""
    kl_coefficient: float = 0.0
    """Weight of the divergence from the reference model in the loss."""
    reference: str = "start"
    """The reference model: ``start`` (what the run starts from), a model directory, or ``none``.
    It is loaded only where the divergence counts."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy as a bonus (the paper: off)."""
    rollout_correction: Literal["truncate", "mask", "none"] = "truncate"
    """Where the engine's probabilities differ from the learner's: weight each token by their
    ratio, at most the cap; leave tokens out whose ratio is beyond the cap or its inverse; nothing
    (the paper)."""
    rollout_correction_cap: float = 2.0
    """Largest such weight."""

    def __post_init__(self) -> None:
        require(0 < self.clip_low < 1, "objective.clip_low", "between 0 and 1", self.clip_low)
        require(self.clip_high > 0, "objective.clip_high", "> 0", self.clip_high)
        require(
            self.dual_clip == 0 or self.dual_clip > 1,
            "objective.dual_clip",
            "> 1, or 0 for none",
            self.dual_clip,
        )
        require(
            self.rollout_correction_cap >= 1,
            "objective.rollout_correction_cap",
            ">= 1",
            self.rollout_correction_cap,
        )
        for name in ("kl_coefficient", "entropy_coefficient"):
            require(getattr(self, name) >= 0, f"objective.{name}", ">= 0", getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """Learning straight from the soft-optimal solver instead of the outcome."""

    mode: Literal["none", "reverse", "forward"] = "none"
    """``reverse``: the solver's log-probability of the action taken is the turn's advantage, with
    no outcome term (what the theorem says CAST does implicitly); ``forward``: cross-entropy on
    actions drawn from the solver in the states that the policy visited."""
    temperature: float = 1.0
    """Of the solver's action probabilities, in the game's moves."""

    def __post_init__(self) -> None:
        require(self.temperature > 0, "distillation.temperature", "> 0", self.temperature)


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
_OUTCOME = {"alpha": 0.0, "step_weight": 0.0}
_NO_TEACHER = {"mode": "none"}

ALGORITHMS: Mapping[AlgorithmName, Mapping[str, Mapping[str, Any]]] = {  # Any: values of a key
    # alpha stays what file and defaults say: the paper's value and the quickstart's differ.
    "cast": {
        "objective": _DAPO,
        "advantage": {"step_weight": 0.0},
        "distillation": _NO_TEACHER,
    },
    "grpo": {"objective": _GRPO, "advantage": _OUTCOME, "distillation": _NO_TEACHER},
    "dapo": {"objective": _DAPO, "advantage": _OUTCOME, "distillation": _NO_TEACHER},
    "gspo": {"objective": _GSPO, "advantage": _OUTCOME, "distillation": _NO_TEACHER},
    "gigpo": {
        "objective": _GRPO,
        "advantage": {"alpha": 0.0, "step_weight": 1.0},
        "distillation": _NO_TEACHER,
    },
    "distill_reverse": {
        "objective": _DAPO,
        "advantage": _OUTCOME,
        "distillation": {"mode": "reverse"},
    },
    "distill_forward": {
        "objective": _DAPO,
        "advantage": _OUTCOME,
        "distillation": {"mode": "forward"},
    },
}
"""What each algorithm sets; sections and keys as in the configuration."""


def contradictions(
    *,
    learner: LearnerConfig,
    advantage: AdvantageConfig,
    objective: ObjectiveConfig,
    distillation: DistillationConfig,
) -> list[str]:
    """Return every combination of values that cannot be meant, one sentence each."""
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
            f"{learner.zero_stage}: adapters are small and their gradients need no more"
        )
    if learner.dtype == "bfloat16" and learner.zero_stage == 0 and not learner.lora_rank:
        found.append(
            "learner.dtype=bfloat16 needs learner.zero_stage 1, 2 or 3: at 0 the gradients of "
            "micro-batches would be added up in bfloat16"
        )
    if learner.offload_optimizer and learner.zero_stage == 0:
        found.append("learner.offload_optimizer needs learner.zero_stage 1, 2 or 3, got 0")
    return found


def _objective_contradictions(objective: ObjectiveConfig) -> list[str]:
    found = []
    largest = max(objective.clip_low, objective.clip_high)
    if objective.ratio == "sequence" and largest >= _SMALLEST_TOKEN_CLIP:
        found.append(
            f"objective.ratio=sequence with clip values of tokens (objective.clip_low="
            f"{objective.clip_low}, objective.clip_high={objective.clip_high}): a sequence's ratio "
            "needs values like 3e-4 and 4e-4"
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
    if advantage.permute_credit and advantage.alpha == 0:
        found.append("advantage.permute_credit shuffles nothing where advantage.alpha=0")
    if distillation.mode == "none":
        return found
    for name in ("alpha", "step_weight", "overlong_buffer"):
        if getattr(advantage, name):
            found.append(
                f"distillation.mode={distillation.mode} has no outcome term and no solver term: "
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
