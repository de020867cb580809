"""The configuration of a training run: the only place with defaults.

The default is the quickstart: a small policy on small boards, on two CPU cores. The paper's values
are in ``configs/train/paper_sokoban.yaml``; a default that differs from them says so. The sections
of advantages, objective and learner are in ``learning``, a run's share of a cluster in
``resources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cast_ray.config.checks import above, at_least, between, require
from cast_ray.config.learning import (
    AdvantageConfig,
    AlgorithmName,
    DistillationConfig,
    LearnerConfig,
    ObjectiveConfig,
    RewardConfig,
    SyncConfig,
    ValueNetOracleConfig,
    contradictions,
)
from cast_ray.config.precision import chosen_dtype
from cast_ray.config.puzzles import PuzzleConfig
from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import ConfigError
from cast_ray.functions import short_name

TRACKERS = ("tensorboard", "wandb", "mlflow")
"""What ``tracking`` may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The network: a model directory, or the shape of a small model that the run makes."""

    path: str = ""
    """Hugging Face model directory, a URI of one, or its name at the hub (``owner/name`` or
    ``owner/name@revision``; the run keeps the commit); empty = build a small Qwen3 with its own
    tokenizer. A pretrained model changes other defaults to the paper's: learner.lr 1e-6 (adapters:
    1e-5), learner.betas 0.9 and 0.999, learner.gradient_checkpointing, advantage.alpha 0.1,
    rollout.max_answer_tokens 16384, no warm start. The run prints them."""
    chat_template: str = ""
    """What writes its conversations instead of its own template: a Jinja file; ``append_only`` =
    its own as of the first turn, with all that follows kept as it was written; ``chatml`` or
    ``command_r``, for models whose own one needs tools."""
    vocab_size: int = 768
    """Tokens of the small model, whose tokenizer is learned from game texts."""
    hidden_size: int = 128
    """Width of its residual stream."""
    intermediate_size: int = 384
    """Width of the small policy's MLPs."""
    num_layers: int = 4
    """Transformer layers of the small policy."""
    num_heads: int = 2
    """Query heads of the small policy."""
    num_kv_heads: int = 2
    """Key and value heads of the small policy."""
    head_dim: int = 32
    """Width of a head; vLLM's CPU kernels need a multiple of 32."""
    sliding_window: int = 128
    """Tokens that a layer looks back, about a turn and a half of Sokoban; 0 = the whole game. The
    current state is all that matters, and a small policy learns faster without the past."""

    def __post_init__(self) -> None:
        at_least(300, self, "policy.", "vocab_size")
        at_least(1, self, "policy.", "num_heads", "num_kv_heads")
        at_least(0, self, "policy.", "sliding_window")
        kv_heads, rule = self.num_kv_heads, f"a divisor of num_heads ({self.num_heads})"
        require(self.num_heads % kv_heads == 0, "policy.num_kv_heads", rule, kv_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised training on imperfect solver play before any reinforcement learning."""

    steps: int = 500
    """Optimizer updates; 0 = none, the default if ``policy.path`` names a model."""
    trajectories_per_step: int = 12
    """Demonstrated games per update, on training boards drawn with replacement; no game is shown
    twice."""
    lr: float = 3e-3
    """Peak learning rate; linear warm-up over a tenth of the steps, linear decay to a tenth."""
    mistake_probability: float = 0.15
    """Chance that the demonstrator plays a random move instead of the solver's."""
    careless_steps: int = 24
    """Number of final steps with a careless demonstrator: the policy then knows good moves but
    often plays others, which a short run can correct. Moves that it never saw are learned slowly.
    """
    careless_mistake_probability: float = 0.8
    """Chance of a random move in the careless steps."""
    thoughts: bool = False
    """Write a sentence about the board before each demonstrated action (Sokoban), so that a
    pretrained model keeps reasoning before it acts."""

    def __post_init__(self) -> None:
        at_least(0, self, "warm_start.", "steps")
        at_least(1, self, "warm_start.", "trajectories_per_step")
        above(0, self, "warm_start.", "lr")
        between(0, 1, self, "warm_start.", "mistake_probability", "careless_mistake_probability")
        careless, rule = self.careless_steps, f"between 0 and warm_start.steps ({self.steps})"
        is_within = 0 <= careless <= self.steps or self.steps == 0
        require(is_within, "warm_start.careless_steps", rule, careless)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """How a step's trajectories are played; training always samples at temperature 1, top-p 1."""

    puzzles_per_step: int = 16
    """Puzzles of one step, each played by a group."""
    group_size: int = 8
    """Episodes of each puzzle (the paper's G). 1 leaves no outcome to compare: what remains is the
    solver's signal (``advantage.alpha`` above 0) or distillation."""
    dynamic_sampling: int = 0
    """Most further draws of puzzles per step; each replaces the groups that all solved or all
    failed (DAPO's dynamic sampling; the paper: off). 0 = off."""
    truncated: Literal["skip", "execute"] = "skip"
    """What happens to an answer that the token budget cut off: it is not executed, or its action
    counts if one can be read (the reference implementation)."""
    max_answer_tokens: int = 8
    """Most tokens of one answer (the paper: bounded by the episode's budget alone)."""
    prompt_tokens: int = 2048
    """Most tokens of system prompt and first observation."""
    response_tokens: int = 16384
    """Most tokens of an episode after its prompt, observations included."""
    deadlock_ends_episode: bool = True
    """End the episode when the solver proves that it can no longer be won. Applies to games with
    deadlocks: not to Minesweeper, whose infinite cost is no proof, nor to Rush Hour."""
    oracle_cache_mib: int = 256
    """Bound of one oracle's table cache."""
    timeout_s: float = 600.0
    """Longest time in which neither a group of episodes ends nor a turn is played."""

    def __post_init__(self) -> None:
        at_least(1, self, "rollout.", "puzzles_per_step", "group_size", "max_answer_tokens")
        at_least(0, self, "rollout.", "dynamic_sampling")
        above(0, self, "rollout.", "timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """vLLM."""

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Precision of the engine, as ``learner.dtype`` is the learner's; a run keeps what auto meant
    where it started."""
    kv_cache_gib: float = 1.0
    """Memory of one engine for keys and values, on its GPU or in the host's."""
    max_num_seqs: int = 256
    """Most requests that run at the same time in one engine."""
    max_model_len: int = 0
    """Longest conversation in tokens; 0 = the model's own limit, at most both token budgets. An
    episode that reaches it is out of tokens."""
    num_threads: int = 1
    """Threads that one engine computes with on CPU. With more threads than free cores it is ten
    times slower: 320 to 380 turns per second with one thread, 47 with two and one core busy."""
    tensor_parallel_size: int = 1
    """Workers that share each layer of one engine, one GPU each; on CPU one process each."""
    export_metrics: bool = False
    """Whether vLLM's own Prometheus metrics go to Ray's metrics agents."""
    weight_backend: Literal["cast_ray_file", "cast_ray_broadcast"] = "cast_ray_file"
    """How new weights reach the engines: each host reads a file in its shared memory, or the
    learner broadcasts the file's bytes to all workers at once. Either way each layer is checked,
    and a restarted engine reads the file."""
    start_timeout_s: float = 300.0
    """Longest wait for an engine to be ready."""
    request_timeout_s: float = 120.0
    """An engine that is up and writes nothing for this long has stalled; one that owes answers is
    started again after half of it. Raise it where one step takes longer, not for long answers."""
    update_timeout_s: float = 60.0
    """Longest wait until an engine has new weights."""
    vllm: dict[str, Any] = field(default_factory=dict)  # Any: vLLM's arguments have many types
    """Further engine arguments of vLLM by their names there, which win over what is set here, such
    as ``{enforce_eager: true}`` (no CUDA graphs); for training's engines and ``cast-ray serve``."""

    def __post_init__(self) -> None:
        at_least(1, self, "engine.", "tensor_parallel_size")
        require(self.kv_cache_gib > 0, "engine.kv_cache_gib", "> 0", self.kv_cache_gib)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Validation during training, and the held-out boards before and after it."""

    every: int = 5
    """Steps between validations (the paper: 20); 0 = never."""
    validation_attempts: int = 4
    """Attempts at each validation board."""
    held_out_attempts: int = 4
    """Attempts at each held-out board: Avg@k."""
    temperature: float = 0.6
    """Sampling temperature of validation and the held-out boards; training samples at 1."""
    top_p: float = 0.95
    """Nucleus sampling (top-p) of validation and the held-out boards; training samples at 1."""
    tokens_per_turn: bool = False
    """Whether ``rollout.response_tokens`` bounds each turn in ``cast-ray eval`` (the paper's
    appendix on ALFWorld and WebShop) instead of the episode, which then may be as long as the
    model's longest conversation."""

    def __post_init__(self) -> None:
        at_least(0, self, "evaluation.", "every")
        at_least(1, self, "evaluation.", "validation_attempts", "held_out_attempts")
        above(0, self, "evaluation.", "temperature")
        require(0 < self.top_p <= 1, "evaluation.top_p", "in (0, 1]", self.top_p)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run (paper, tab:hp_shared)."""

    algorithm: AlgorithmName = "cast"
    """Which values ``objective``, ``advantage`` and ``distillation`` start from: naming one on the
    command line replaces those of a file."""
    run_dir: str = ""
    """Directory of the run, or its URI; empty = runs/<game>-<tier>-<UTC time>."""
    seed: int = 0
    """Every random choice of the run follows from it (the boards from puzzles.seed)."""
    game: str = "sokoban"
    """A built-in game or one that an installed package adds (docs/add_a_game.md), a benchmark, or
    an environment of your own: ``path/file.py:Class`` or ``package.module:Class``
    (docs/add_an_environment.md)."""
    tier: str = "mini"
    """Size and difficulty of the boards: one of the game's, or a YAML file that describes another
    (docs/puzzle_sets.md)."""
    oracle: Literal["exact", "expected", "value_net", "turn_reward", "none"] = "exact"
    """Where the credit of a turn comes from: the drop in the distance to the goal by the game's
    exact solver, its average over the mines that the player could not tell apart, or a value
    network; the environment's reward for the turn; or nowhere, to compare outcomes alone."""
    steps: int = 15
    """Steps of reinforcement learning; one step = puzzles_per_step x group_size episodes."""
    max_staleness: int = 0
    """Most steps by which the weights that wrote a token may be older than those it trains. 0 =
    strictly on-policy: a step is played, then learned from. Above 0 the next steps are played
    while the learner works, and engines change weights with requests in flight."""
    driver_restarts: int = 5
    """How often in a row, without a step in between, a dead driver is restarted; 0 = never."""
    checkpoint_every: int = 5
    """Steps between checkpoints; there is always one after the last step."""
    checkpoints_kept: int = 2
    """How many of the newest checkpoints are kept."""
    tracking: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Where metrics, configuration, summary and at each checkpoint two played games are shown:
    tensorboard, wandb, mlflow (docs/observability.md)."""
    puzzles: PuzzleConfig = field(default_factory=PuzzleConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    value_net: ValueNetOracleConfig = field(default_factory=ValueNetOracleConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)

    def __post_init__(self) -> None:
        resources, sums_wide = self.resources, self.learner.zero_stage or self.learner.lora_rank
        of_engine = chosen_dtype(self.engine.dtype, gpus=resources.gpus_per_engine)
        of_learner = chosen_dtype(self.learner.dtype, gpus=resources.gpus_per_learner_rank)
        if self.learner.dtype == "auto" and not sums_wide:
            of_learner = "float32"  # the sum of micro-batches needs it at stage 0
        # Frozen for everyone else: a configuration that exists says what it computes in.
        object.__setattr__(self, "engine", replace(self.engine, dtype=of_engine))
        object.__setattr__(self, "learner", replace(self.learner, dtype=of_learner))
        if self.oracle in ("turn_reward", "none"):
            object.__setattr__(self, "resources", replace(self.resources, oracle_actors=0))
        at_least(0, self, "", "steps", "max_staleness", "driver_restarts")
        at_least(1, self, "", "checkpoint_every", "checkpoints_kept")
        found = (
            contradictions(self.learner, self.advantage, self.objective, self.distillation)
            + self._contradictions()
        )
        if found:
            raise ConfigError("; ".join(found))

    @property
    def title(self) -> str:
        """What is played, for names of directories and jobs."""
        return f"{short_name(self.game)}-{self.tier}"

    @property
    def functions(self) -> dict[str, str]:
        """The user's functions that the run calls, by key; ``game`` if it names a class."""
        named = {
            "game": self.game if ":" in self.game else "",
            "reward.function": self.reward.function,
            "advantage.function": self.advantage.function,
            "objective.loss": self.objective.loss,
        }
        return {key: name for key, name in named.items() if name}

    def with_values(self, values: Mapping[str, str]) -> TrainConfig:
        """Return the configuration with other values of these keys, none two in a section."""
        changed = {}
        for key, value in values.items():
            section, _, name = key.partition(".")
            changed[section] = replace(getattr(self, section), **{name: value}) if name else value
        return replace(self, **changed)

    @property
    def models(self) -> dict[str, str]:
        """The models that the run loads from elsewhere, by key."""
        named = {"policy.path": self.policy.path}
        if self.objective.kl_coefficient and self.objective.reference not in ("start", "none"):
            named["objective.reference"] = self.objective.reference
        return {key: path for key, path in named.items() if path}

    def _contradictions(self) -> list[str]:
        """Return why sections contradict each other, beyond those of ``learning``."""
        rollout = self.rollout
        found = self.resources.contradictions(
            tensor_parallel_size=self.engine.tensor_parallel_size,
            max_staleness=self.max_staleness,
        )
        if (self.oracle == "value_net") != bool(self.value_net.path):
            found.append(
                "oracle=value_net needs value_net.path=DIRECTORY and the reverse, got oracle="
                f"{self.oracle} and value_net.path={self.value_net.path or '(empty)'}"
            )
        found += self._oracle_contradictions()
        unknown = [name for name in self.tracking if name not in TRACKERS]
        if unknown or len(set(self.tracking)) < len(self.tracking):
            found.append(
                f"tracking must name some of {', '.join(TRACKERS)}, each once, got "
                f"[{', '.join(self.tracking)}]"
            )
        if rollout.puzzles_per_step < self.learner.mini_batches:
            found.append(
                f"learner.mini_batches must be at most rollout.puzzles_per_step "
                f"({rollout.puzzles_per_step}), got {self.learner.mini_batches}"
            )
        if self.learner.lora_rank and not self.policy.path:
            found.append(
                f"learner.lora_rank={self.learner.lora_rank} needs policy.path: adapters on the "
                "small policy's random weights learn almost nothing"
            )
        if self.algorithm != "cast":
            found += [
                f"algorithm={self.algorithm} says how to learn, and {key}={name} would replace a "
                "part of it: leave the algorithm out, and set advantage.alpha=0 if the solver's "
                "term is not wanted"
                for key, name in self.functions.items()
                if key in ("advantage.function", "objective.loss")
            ]
        if rollout.group_size == 1:
            found += self._alone()
        if self.advantage.overlong_buffer > rollout.response_tokens:
            found.append(
                f"advantage.overlong_buffer={self.advantage.overlong_buffer} must be at most "
                f"rollout.response_tokens ({rollout.response_tokens})"
            )
        return found

    def _oracle_contradictions(self) -> list[str]:
        found, oracle = [], self.oracle
        if self.resources.gpus_per_oracle_actor and oracle != "value_net":
            found.append("resources.gpus_per_oracle_actor needs oracle=value_net: solvers use CPUs")
        if oracle in ("exact", "expected", "value_net") and not self.resources.oracle_actors:
            found.append(f"oracle={oracle} needs resources.oracle_actors >= 1, got 0")
        credit = self.advantage
        if oracle == "none" and credit.alpha and not credit.idle_price:
            found.append(
                f"oracle=none gives turns no credit that advantage.alpha={credit.alpha} could "
                "weigh: set algorithm=grpo, or another that compares outcomes alone"
            )
        if credit.shift == 0 and oracle != "exact":
            found.append(f"advantage.shift=0 needs costs in moves (oracle=exact), got {oracle}")
        if credit.idle_price and oracle == "turn_reward":
            found.append("advantage.idle_price would replace rewards of oracle=turn_reward")
        if oracle not in ("exact", "value_net") and self.distillation.mode != "none":
            found.append(
                f"distillation.mode={self.distillation.mode} learns from a solver's costs: set "
                f"oracle=exact or value_net, got oracle={oracle}"
            )
        return found

    def _alone(self) -> list[str]:
        """Return what needs other episodes of a puzzle, of which a group of one has none.

        Its outcome advantage is always 0; the solver's and a teacher's signals compare no episodes.
        """
        credit = self.advantage
        is_of_ours = not credit.function and self.distillation.mode == "none"
        comparing = {
            "rollout.dynamic_sampling": self.rollout.dynamic_sampling,
            "advantage.step_weight": credit.step_weight,
            "advantage.level": credit.level != "turn",
            "advantage.overlong_buffer": credit.overlong_buffer,
            f"algorithm={self.algorithm} with advantage.alpha=0": is_of_ours and credit.alpha == 0,
        }
        needs = "needs rollout.group_size >= 2, got 1: it compares the outcomes of a group"
        return [f"{name} {needs}" for name, is_used in comparing.items() if is_used]
