"""The configuration of a training run: the only place with defaults.

The default is the quickstart: a small policy on small boards, on two CPU cores. What the paper
used stands in ``configs/train/paper_sokoban.yaml``; a default that differs from it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cast_ray.errors import ConfigError


def _require(condition: bool, key: str, rule: str, value: object) -> None:
    if not condition or value in (float("inf"), float("-inf")):
        raise ConfigError(f"{key} must be {rule}, got {value!r}")


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
        _require(self.num_train >= 1, "puzzles.num_train", ">= 1", self.num_train)
        _require(self.num_validation >= 1, "puzzles.num_validation", ">= 1", self.num_validation)
        _require(self.num_held_out >= 1, "puzzles.num_held_out", ">= 1", self.num_held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The network: a model directory, or the shape of a small one made on the spot."""

    path: str = ""
    """Hugging Face model directory; empty = build a small Qwen3 with its own tokenizer."""
    vocab_size: int = 768
    hidden_size: int = 128
    intermediate_size: int = 384
    num_layers: int = 4
    num_heads: int = 2
    num_kv_heads: int = 2
    head_dim: int = 32
    sliding_window: int = 128
    """Tokens that a layer looks back, about a turn and a half of Sokoban; 0 = the whole game. A
    state says all that matters, and so small a policy learns faster without its past."""

    def __post_init__(self) -> None:
        _require(self.vocab_size >= 300, "policy.vocab_size", ">= 300", self.vocab_size)
        _require(
            self.num_heads % self.num_kv_heads == 0,
            "policy.num_kv_heads",
            f"a divisor of num_heads ({self.num_heads})",
            self.num_kv_heads,
        )
        _require(self.sliding_window >= 0, "policy.sliding_window", ">= 0", self.sliding_window)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised training on imperfect solver play before any reinforcement learning."""

    steps: int = 500
    """Optimizer updates; 0 = none (a pretrained model needs none)."""
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

    def __post_init__(self) -> None:
        _require(self.steps >= 0, "warm_start.steps", ">= 0", self.steps)
        _require(
            self.trajectories_per_step >= 1,
            "warm_start.trajectories_per_step",
            ">= 1",
            self.trajectories_per_step,
        )
        _require(
            0 <= self.careless_steps <= self.steps or self.steps == 0,
            "warm_start.careless_steps",
            f"between 0 and warm_start.steps ({self.steps})",
            self.careless_steps,
        )
        _require(self.lr > 0, "warm_start.lr", "> 0", self.lr)
        for name in ("mistake_probability", "careless_mistake_probability"):
            value = getattr(self, name)
            _require(0 <= value <= 1, f"warm_start.{name}", "between 0 and 1", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """How a step's trajectories are played. Temperature and top-p are 1, always."""

    puzzles_per_step: int = 16
    group_size: int = 8
    """Episodes of each puzzle (the paper's G)."""
    max_answer_tokens: int = 8
    """Most tokens of one answer (the paper: bounded by the episode's budget alone)."""
    prompt_tokens: int = 2048
    """Most tokens of system prompt and first observation."""
    response_tokens: int = 16384
    """Most tokens of an episode after its prompt, observations included."""
    deadlock_ends_episode: bool = True
    """End the episode when the solver proves that it cannot be won any more. Only games that have
    deadlocks ask: not Minesweeper, where an infinite cost is no proof, nor Rush Hour."""
    environment_actors: int = 1
    oracle_actors: int = 1
    oracle_cache_mib: int = 256
    """Bound of one oracle's table cache."""
    timeout_s: float = 600.0
    """Longest wait for one step's trajectories."""

    def __post_init__(self) -> None:
        for name in ("puzzles_per_step", "group_size", "max_answer_tokens", "environment_actors"):
            value = getattr(self, name)
            _require(value >= 1, f"rollout.{name}", ">= 1", value)
        _require(self.oracle_actors >= 1, "rollout.oracle_actors", ">= 1", self.oracle_actors)
        _require(self.timeout_s > 0, "rollout.timeout_s", "> 0", self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """vLLM."""

    num_engines: int = 1
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_cache_gib: int = 1
    max_num_seqs: int = 256
    """Most requests that run together in one engine."""
    max_model_len: int = 0
    """Longest conversation in tokens; 0 = the model's own limit, at most both token budgets."""
    num_cpus: float = 1.0
    """CPU cores that Ray reserves for one engine."""
    num_threads: int = 1
    """Threads that one engine computes with on CPU. More than it can have to itself makes it ten
    times slower: 320 to 380 turns a second with one thread, 47 with two beside a busy core."""
    weight_backend: str = "cast_ray_file"
    """vLLM weight-transfer backend that takes the updates."""
    start_timeout_s: float = 300.0
    request_timeout_s: float = 120.0
    update_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        _require(self.num_engines >= 1, "engine.num_engines", ">= 1", self.num_engines)
        _require(self.kv_cache_gib >= 1, "engine.kv_cache_gib", ">= 1", self.kv_cache_gib)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """DeepSpeed."""

    num_ranks: int = 2
    """Processes that share each update. On CPU two of one thread beat one of two: small layers
    leave a second thread idle (an update of the warm start: 0.56 s against 0.73 s)."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of weights and activations; beside bfloat16 the optimizer keeps float32 weights."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """DeepSpeed ZeRO; bfloat16 needs at least 1."""
    lr: float = 2e-4
    """Constant learning rate of the policy updates (the paper: 1e-6 for a 4 B model)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW (the paper: 0.9, 0.999; a short run needs the shorter memory)."""
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    mini_batches: int = 2
    """Optimizer updates per step, each on whole groups."""
    tokens_per_micro_batch: int = 4096
    """Padded tokens of one forward and backward pass; bounds memory, changes no result."""
    num_threads: int = 1
    """Torch threads of one rank on CPU."""
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        _require(self.num_ranks >= 1, "learner.num_ranks", ">= 1", self.num_ranks)
        _require(self.lr > 0, "learner.lr", "> 0", self.lr)
        _require(self.mini_batches >= 1, "learner.mini_batches", ">= 1", self.mini_batches)
        _require(self.max_grad_norm > 0, "learner.max_grad_norm", "> 0", self.max_grad_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageConfig:
    """CAST's credit (paper, eq:final_advantage)."""

    alpha: float = 1.0
    """Weight of the solver's signal (the paper: 0.1; a short run of a small policy wants more)."""
    transform: Literal["asinh", "identity", "signed_log"] = "asinh"
    normalisation: Literal["rms", "none"] = "rms"
    rescue: Literal["cost", "zero"] = "cost"
    """Credit of a turn from an infinite cost to a finite one (Minesweeper: a guess that came out
    well): the cost it leads to, the number of safe cells if it wins; or nothing."""
    std: Literal["population", "sample"] = "population"
    delta: float = 1e-6
    epsilon: float = 1e-8
    permute_credit: bool = False
    """A control: shuffle the solver's credit among the turns of the step."""

    def __post_init__(self) -> None:
        _require(self.alpha >= 0, "advantage.alpha", ">= 0", self.alpha)
        _require(self.delta >= 0, "advantage.delta", ">= 0", self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """DAPO: token-mean, higher upper clip, dual clip (paper, tab:hp_algo)."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0
    """Largest multiple of -A in the loss of a turn with negative advantage."""

    def __post_init__(self) -> None:
        _require(0 < self.clip_low < 1, "objective.clip_low", "between 0 and 1", self.clip_low)
        _require(self.clip_high > 0, "objective.clip_high", "> 0", self.clip_high)
        _require(self.dual_clip > 1, "objective.dual_clip", "> 1", self.dual_clip)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Validation during training, and the held-out boards before and after it."""

    every: int = 5
    """Validate each so many steps (the paper: 20); 0 = never."""
    validation_attempts: int = 4
    held_out_attempts: int = 4
    """Attempts at each held-out board: Avg@k."""
    temperature: float = 0.6
    top_p: float = 0.95

    def __post_init__(self) -> None:
        _require(self.every >= 0, "evaluation.every", ">= 0", self.every)
        _require(
            self.validation_attempts >= 1,
            "evaluation.validation_attempts",
            ">= 1",
            self.validation_attempts,
        )
        _require(
            self.held_out_attempts >= 1,
            "evaluation.held_out_attempts",
            ">= 1",
            self.held_out_attempts,
        )
        _require(self.temperature > 0, "evaluation.temperature", "> 0", self.temperature)
        _require(0 < self.top_p <= 1, "evaluation.top_p", "in (0, 1]", self.top_p)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncConfig:
    """The checks after every weight update."""

    warn_ratio: float = 3.0
    """Warn when the logprob difference is so many times its healthy level."""
    stop_ratio: float = 10.0
    """Stop the run at so many times."""

    def __post_init__(self) -> None:
        _require(
            1 < self.warn_ratio <= self.stop_ratio,
            "sync.warn_ratio",
            f"between 1 and sync.stop_ratio ({self.stop_ratio})",
            self.warn_ratio,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run."""

    run_dir: str = ""
    """Directory of the run; empty = runs/<game>-<tier>-<UTC time>."""
    seed: int = 0
    """Every random choice of the run follows from it (the boards from puzzles.seed)."""
    game: str = "sokoban"
    tier: str = "mini"
    steps: int = 15
    """Steps of reinforcement learning; one step = puzzles_per_step x group_size episodes."""
    checkpoint_every: int = 5
    checkpoints_kept: int = 2
    puzzles: PuzzleConfig = field(default_factory=PuzzleConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sync: SyncConfig = field(default_factory=SyncConfig)

    def __post_init__(self) -> None:
        _require(self.steps >= 0, "steps", ">= 0", self.steps)
        _require(self.checkpoint_every >= 1, "checkpoint_every", ">= 1", self.checkpoint_every)
        _require(self.checkpoints_kept >= 1, "checkpoints_kept", ">= 1", self.checkpoints_kept)
        _require(
            self.rollout.puzzles_per_step >= self.learner.mini_batches,
            "learner.mini_batches",
            f"at most rollout.puzzles_per_step ({self.rollout.puzzles_per_step})",
            self.learner.mini_batches,
        )
