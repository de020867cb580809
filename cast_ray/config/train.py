"""The configuration of a training run: the only place with defaults.

The default is the quickstart: a small policy on small boards, on two CPU cores. What the paper
used stands in ``configs/train/paper_sokoban.yaml``; a default that differs from it says so. What
concerns advantages, objective and learner stands in ``config_learning``, what a run takes of a
cluster in ``config_resources``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from cast_ray.config.learning import (
    AdvantageConfig,
    AlgorithmName,
    DistillationConfig,
    LearnerConfig,
    ObjectiveConfig,
    contradictions,
    require,
)
from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleConfig:
    """Which boards are trained on, validated on and held out."""

    file: str = ""
    """Parquet file of training puzzles, or a directory of ``cast-ray data build`` (its test
    puzzles are held out); empty = generate them from ``seed``."""
    num_train: int = 8000
    """Training puzzles to generate, distinct up to symmetry; fewer where fewer exist."""
    num_validation: int = 64
    """Boards for validation during training; a data set's are taken from its training file."""
    num_held_out: int = 200
    """Boards for the success rates before and after training."""
    seed: int = 0
    """Seed of the generated boards; kept apart from the run's seed so that runs share boards."""

    def __post_init__(self) -> None:
        require(self.num_train >= 1, "puzzles.num_train", ">= 1", self.num_train)
        require(self.num_validation >= 1, "puzzles.num_validation", ">= 1", self.num_validation)
        require(self.num_held_out >= 1, "puzzles.num_held_out", ">= 1", self.num_held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The network: a model directory, or the shape of a small one made on the spot."""

    path: str = ""
    """Hugging Face model directory; empty = build a small Qwen3 with its own tokenizer."""
    vocab_size: int = 768
    """Tokens of the small model, whose tokenizer is learned from game texts."""
    hidden_size: int = 128
    """Width of its residual stream."""
    intermediate_size: int = 384
    """Width of its MLPs."""
    num_layers: int = 4
    """Its layers."""
    num_heads: int = 2
    """Its query heads."""
    num_kv_heads: int = 2
    """Its key and value heads."""
    head_dim: int = 32
    """Width of a head; vLLM's CPU kernels want a multiple of 32."""
    sliding_window: int = 128
    """Tokens that a layer looks back, about a turn and a half of Sokoban; 0 = the whole game. A
    state says all that matters, and so small a policy learns faster without its past."""

    def __post_init__(self) -> None:
        require(self.vocab_size >= 300, "policy.vocab_size", ">= 300", self.vocab_size)
        require(
            self.num_heads % self.num_kv_heads == 0,
            "policy.num_kv_heads",
            f"a divisor of num_heads ({self.num_heads})",
            self.num_kv_heads,
        )
        require(self.sliding_window >= 0, "policy.sliding_window", ">= 0", self.sliding_window)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised training on imperfect solver play before any reinforcement learning."""

    steps: int = 500
    """Optimizer updates; 0 = none, as where ``policy.path`` names a model and this is not given."""
    trajectories_per_step: int = 12
    """Demonstrated games of one update, on training boards drawn with replacement; none is shown
    twice."""
    lr: float = 3e-3
    """Peak learning rate; linear warm-up over a tenth of the steps, linear decay to a tenth."""
    mistake_probability: float = 0.15
    """Chance that the demonstrator plays a random move instead of the solver's."""
    careless_steps: int = 24
    """The last so many steps follow a careless demonstrator: the policy then knows good moves and
    often plays others, which a short run can mend. What it never saw, it learns slowly."""
    careless_mistake_probability: float = 0.8
    """Its chance of a random move."""

    def __post_init__(self) -> None:
        require(self.steps >= 0, "warm_start.steps", ">= 0", self.steps)
        require(
            self.trajectories_per_step >= 1,
            "warm_start.trajectories_per_step",
            ">= 1",
            self.trajectories_per_step,
        )
        require(
            0 <= self.careless_steps <= self.steps or self.steps == 0,
            "warm_start.careless_steps",
            f"between 0 and warm_start.steps ({self.steps})",
            self.careless_steps,
        )
        require(self.lr > 0, "warm_start.lr", "> 0", self.lr)
        for name in ("mistake_probability", "careless_mistake_probability"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"warm_start.{name}", "between 0 and 1", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """How a step's trajectories are played."""

    puzzles_per_step: int = 16
    """Puzzles of one step, each played by a group."""
    group_size: int = 8
    """Episodes of each puzzle (the paper's G)."""
    temperature: float = 1.0
    """Must stay 1: the ratio is that of probabilities at temperature 1."""
    top_p: float = 1.0
    """Must stay 1: a cut-off tail falsifies the ratio's denominator."""
    dynamic_sampling: int = 0
    """Most further draws of puzzles in a step, each in place of the groups that all solve or none
    (DAPO's dynamic sampling; the paper: off). 0 = off."""
    truncated: Literal["skip", "execute"] = "skip"
    """What becomes of an answer that the token budget cut off: it is not executed, or its action
    counts if one can be read (the reference implementation)."""
    max_answer_tokens: int = 8
    """Most tokens of one answer (the paper: bounded by the episode's budget alone)."""
    prompt_tokens: int = 2048
    """Most tokens of system prompt and first observation."""
    response_tokens: int = 16384
    """Most tokens of an episode after its prompt, observations included."""
    deadlock_ends_episode: bool = True
    """End the episode when the solver proves that it cannot be won any more. Only games that have
    deadlocks ask: not Minesweeper, where an infinite cost is no proof, nor Rush Hour."""
    oracle_cache_mib: int = 256
    """Bound of one oracle's table cache."""
    timeout_s: float = 600.0
    """Longest wait for one step's trajectories."""

    def __post_init__(self) -> None:
        for name in ("puzzles_per_step", "group_size", "max_answer_tokens"):
            value = getattr(self, name)
            require(value >= 1, f"rollout.{name}", ">= 1", value)
        require(self.timeout_s > 0, "rollout.timeout_s", "> 0", self.timeout_s)
        require(
            self.dynamic_sampling >= 0, "rollout.dynamic_sampling", ">= 0", self.dynamic_sampling
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """vLLM."""

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of the engine; the learner computes in its own (learner.dtype)."""
    kv_cache_gib: float = 1.0
    """Memory of one engine for keys and values, on its GPU or in the host's."""
    max_num_seqs: int = 256
    """Most requests that run together in one engine."""
    max_model_len: int = 0
    """Longest conversation in tokens; 0 = the model's own limit, at most both token budgets."""
    num_threads: int = 1
    """Threads that one engine computes with on CPU. More than it can have to itself makes it ten
    times slower: 320 to 380 turns a second with one thread, 47 with two beside a busy core."""
    enforce_eager: bool = True
    """Run layer by layer, without compilation and CUDA graphs. On GPUs false writes a few times as
    many tokens a second of a small batch (not tried)."""
    tensor_parallel_size: int = 1
    """Workers that share each layer of one engine, one GPU each; on CPU one process each."""
    export_metrics: bool = False
    """Whether vLLM's own Prometheus metrics go to Ray's metrics agents."""
    weight_backend: Literal["cast_ray_file", "cast_ray_broadcast"] = "cast_ray_file"
    """How new weights reach the engines: each host reads a file in its shared memory, or the
    learner broadcasts the tensors to all workers (NCCL on GPUs, Gloo on CPU). Either way each
    layer is checked, and an engine that is started again reads the file."""
    start_timeout_s: float = 300.0
    """Longest wait for an engine to be ready."""
    request_timeout_s: float = 120.0
    """An engine that is up and writes nothing for so long has stalled. Long answers are no reason
    to raise it."""
    update_timeout_s: float = 60.0
    """Longest wait for an engine to have new weights."""
    vllm: dict[str, Any] = field(default_factory=dict)  # Any: vLLM's arguments have many types
    """Further engine arguments of vLLM by their names there, which win over what is set here, such
    as ``{gpu_memory_utilization: 0.8}``; for training's engines and ``cast-ray serve``."""

    def __post_init__(self) -> None:
        require(
            self.tensor_parallel_size >= 1,
            "engine.tensor_parallel_size",
            ">= 1",
            self.tensor_parallel_size,
        )
        require(self.kv_cache_gib > 0, "engine.kv_cache_gib", "> 0", self.kv_cache_gib)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Validation during training, and the held-out boards before and after it."""

    every: int = 5
    """Validate each so many steps (the paper: 20); 0 = never."""
    validation_attempts: int = 4
    """Attempts at each validation board."""
    held_out_attempts: int = 4
    """Attempts at each held-out board: Avg@k."""
    temperature: float = 0.6
    """Of validation and the held-out boards; training samples at 1."""
    top_p: float = 0.95
    """Of the same."""
    tokens_per_turn: bool = False
    """Whether in ``cast-ray eval`` ``rollout.response_tokens`` hold for each turn (the paper's
    appendix on ALFWorld and WebShop) and not for the episode, which then is as long as the model's
    longest conversation."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "evaluation.every", ">= 0", self.every)
        for name in ("validation_attempts", "held_out_attempts"):
            require(getattr(self, name) >= 1, f"evaluation.{name}", ">= 1", getattr(self, name))
        require(self.temperature > 0, "evaluation.temperature", "> 0", self.temperature)
        require(0 < self.top_p <= 1, "evaluation.top_p", "in (0, 1]", self.top_p)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNetOracleConfig:
    """The value network of ``oracle: value_net`` (paper, app:dqn)."""

    path: str = ""
    """Directory of the network, as ``cast-ray value-net train`` writes it (RUN/value_net)."""
    scale: float = 2.0
    """A turn earns so many times what it adds to the value."""
    failure: float = -1.5
    """The value of a lost state, below all that the network says; that of a won one is 1."""

    def __post_init__(self) -> None:
        require(self.scale > 0, "value_net.scale", "> 0", self.scale)
        require(
            self.failure < -1,
            "value_net.failure",
            "< -1, the least return of play at 0.01 a step and discount 0.99",
            self.failure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncConfig:
    """The checks after every weight update."""

    warn_ratio: float = 3.0
    """Warn when the logprob difference is so many times its healthy level."""
    stop_ratio: float = 10.0
    """Stop the run at so many times."""

    def __post_init__(self) -> None:
        require(
            1 < self.warn_ratio <= self.stop_ratio,
            "sync.warn_ratio",
            f"between 1 and sync.stop_ratio ({self.stop_ratio})",
            self.warn_ratio,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run (paper, tab:hp_shared)."""

    algorithm: AlgorithmName = "cast"
    """Which values ``objective``, ``advantage`` and ``distillation`` start from
    (``config_learning.ALGORITHMS``): naming it on the command line replaces those of a file."""
    run_dir: str = ""
    """Directory of the run, or its URI; empty = runs/<game>-<tier>-<UTC time>."""
    seed: int = 0
    """Every random choice of the run follows from it (the boards from puzzles.seed)."""
    game: str = "sokoban"
    """A built-in game or one that an installed package adds (docs/add_a_game.md)."""
    tier: str = "mini"
    """Size and difficulty of the boards; each game names its own."""
    oracle: Literal["exact", "value_net"] = "exact"
    """Who says how far the goal is: the game's exact solver, or a value network."""
    steps: int = 15
    """Steps of reinforcement learning; one step = puzzles_per_step x group_size episodes."""
    max_staleness: int = 0
    """Most steps by which the weights that wrote a token may be older than those it trains. 0 =
    strictly on-policy: a step is played, then learned from. Above 0 the next steps are played
    while the learner works, and engines change weights with requests in flight."""
    driver_restarts: int = 5
    """How often in a row, without a step between, a dead driver is started again; 0 = never."""
    checkpoint_every: int = 5
    """Write a checkpoint each so many steps, and after the last one."""
    checkpoints_kept: int = 2
    """How many of the newest checkpoints are kept."""
    puzzles: PuzzleConfig = field(default_factory=PuzzleConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    value_net: ValueNetOracleConfig = field(default_factory=ValueNetOracleConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)

    def __post_init__(self) -> None:
        require(self.steps >= 0, "steps", ">= 0", self.steps)
        require(self.max_staleness >= 0, "max_staleness", ">= 0", self.max_staleness)
        require(self.driver_restarts >= 0, "driver_restarts", ">= 0", self.driver_restarts)
        require(self.checkpoint_every >= 1, "checkpoint_every", ">= 1", self.checkpoint_every)
        require(self.checkpoints_kept >= 1, "checkpoints_kept", ">= 1", self.checkpoints_kept)
        found = (
            contradictions(
                learner=self.learner,
                advantage=self.advantage,
                objective=self.objective,
                distillation=self.distillation,
            )
            + self._contradictions()
        )
        if found:
            raise ConfigError("; ".join(found))

    def _contradictions(self) -> list[str]:
        """Return what cannot go together beyond the learning itself, one sentence each."""
        rollout = self.rollout
        found = self.resources.contradictions(
            tensor_parallel_size=self.engine.tensor_parallel_size,
            max_staleness=self.max_staleness,
        )
        if (self.oracle == "value_net") != bool(self.value_net.path):
            found.append(
                "oracle=value_net and value_net.path=DIRECTORY go together, got oracle="
                f"{self.oracle} and value_net.path={self.value_net.path or '(empty)'}"
            )
        if self.resources.gpus_per_oracle_actor and self.oracle == "exact":
            found.append(
                "resources.gpus_per_oracle_actor is for oracle=value_net: exact solvers compute "
                "on the CPU"
            )
        for name in ("temperature", "top_p"):
            if getattr(rollout, name) != 1:
                found.append(
                    f"rollout.{name} must be 1 in training, got {getattr(rollout, name)}: anything "
                    "else falsifies the ratio (evaluation has a value of its own)"
                )
        if rollout.puzzles_per_step < self.learner.mini_batches:
            found.append(
                f"learner.mini_batches must be at most rollout.puzzles_per_step "
                f"({rollout.puzzles_per_step}), got {self.learner.mini_batches}"
            )
        if self.learner.lora_rank and not self.policy.path:
            found.append(
                f"learner.lora_rank={self.learner.lora_rank} needs policy.path: adapters on the "
                "small policy's random weights learn next to nothing"
            )
        if rollout.dynamic_sampling and rollout.group_size == 1:
            found.append(
                "rollout.dynamic_sampling needs rollout.group_size >= 2: a group of one is always "
                "all solved or all lost"
            )
        if self.advantage.overlong_buffer > rollout.response_tokens:
            found.append(
                f"advantage.overlong_buffer={self.advantage.overlong_buffer} must be at most "
                f"rollout.response_tokens ({rollout.response_tokens}), below which it lies"
            )
        return found
