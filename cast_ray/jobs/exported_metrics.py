"""The names under which a run's figures reach Prometheus, and what each of them says.

Ray puts ``ray_`` before every name, and ``_total`` behind those of counters. All carry the tag
``run``, the run's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cast_ray.recoveries import KINDS

RUN = "run"
STEP_PREFIX = "cast_step_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One metric as Ray is told of it."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
    """Beside the run's id."""
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def prometheus_name(self) -> str:
        """Return the name under which Prometheus finds it."""
        return f"ray_{self.name}" + ("_total" if self.kind == "counter" else "")


STEP_COLUMNS: dict[str, str] = {
    "success": "Share of the last step's trajectories that solved their puzzle",
    "num_trajectories": "Trajectories of the last step",
    "dropped_groups": "Groups played and left out of the last step by dynamic sampling",
    "num_turns": "Turns of the last step",
    "turns_mean": "Mean turns of a trajectory",
    "tokens": "Tokens that the policy wrote in the last step",
    "tokens_per_s": "Those tokens per second of generation",
    "invalid_fraction": "Share of turns without an action, or with a forbidden one",
    "ineffective_fraction": "Share of turns that changed nothing",
    "lost_fraction": "Share of trajectories that the game's own failure ended",
    "progress_fraction": "Share of turns that lowered the cost-to-go",
    "harmful_fraction": "Share of turns that raised the cost-to-go or made it infinite",
    "shifted_advantage_mean": "Mean shifted advantage of a turn, in moves",
    "unknown_costs": "Turns whose cost the solver did not know",
    "loss": "Mean loss of the step's updates",
    "grad_norm": "Mean gradient norm before clipping",
    "clip_fraction": "Share of tokens whose ratio left the clip range",
    "entropy": "Mean entropy at the tokens in the loss, in nats",
    "kl": "Mean divergence from the reference model, in nats",
    "skipped_updates": "Updates of the last step that were not finite",
    "logprob_abs_diff": "Mean |engine - learner| logprob before the first update",
    "logprob_abs_diff_max": "Largest |engine - learner| logprob of a token",
    "rollout_kl": "Mean KL(engine || learner), in nats",
    "rollout_clip_fraction": "Share of tokens whose ratio learner / engine is beyond the cap",
    "layer_error": "Largest relative error of a layer after the weight sync",
    "staleness_max": "Most steps between the weights that wrote a token and those it trained",
    "staleness_mean": "Mean of those steps over the tokens",
    "staleness_tokens": "Tokens of the last step by the age of their weights, in steps",
    "weight_version": "Oldest weights that wrote a token of the last step",
    "oracle_hit_fraction": "Share of look-ups whose solver was in an oracle's cache",
    "oracle_misses": "Look-ups of the last step that built a solver",
    "oracle_bytes": "Size of the solvers in the caches",
    "kernel_compilations": "What numba compiled during the last step",
    "engine_busy_fractions": "Share of the last step's time with a request running, by engine",
    "engine_queue_mean": "Requests waiting in an engine, mean over the last step",
    "engine_queue_max": "Most requests waiting in an engine during the last step",
    "seconds_queueing": "Mean wait of a request in an engine's queue, seconds",
    "prefix_hit_fraction": "Share of prompt tokens found in the engines' prefix caches",
    "lost_groups": "Groups of the last step lost with an actor and played again",
    "engine_retries": "Requests of the last step asked again because an engine failed",
    "engine_overflows": "Episodes of the last step that moved to another engine",
    "memory_driver_mib": "Resident memory of the driver, MiB",
    "memory_environment_mib": "Resident memory of the largest environment actor, MiB",
    "memory_oracle_mib": "Resident memory of the largest oracle actor, MiB",
    "memory_engine_mib": "Resident memory of the largest engine, MiB",
    "is_replayed": "1 where the last step was only learned again from the trajectory log",
    "seconds_total": "Wall time of the last step, validation and checkpoint left out",
    "seconds_generation": "Time of the last step with a request running",
    "seconds_long_tail": "What the last step waited for its slowest episodes, seconds",
    "waiting_fraction": "Share of episode-seconds after the episode's own end",
    "seconds_environment": "Rules, text and tokenizer, summed over episodes",
    "seconds_solver": "Time in solvers, builds included",
    "seconds_solver_build": "Time that the oracles took to build solvers",
    "seconds_learner": "Time of the last step in the learner",
    "seconds_sync": "Time of the last step in the weight sync",
    "seconds_checkpoint": "Time of the last checkpoint; 0 where the step ended without one",
    "seconds_validation": "Time of the last validation; 0 where the step had none",
    "validation_success": "Success of the last validation that has come back",
}
"""What is exported of ``StepMetrics``, as ``cast_step_<column>``: all but ``ELSEWHERE``.

A list has a tag for the place in it.
"""
ELSEWHERE = {"step", *(f"recovered_{kind}" for kind in KINDS)}
"""Columns that are exported as ``STEP`` and as the counter ``RECOVERIES``."""
LIST_TAGS = {"staleness_tokens": "staleness", "engine_busy_fractions": "engine"}

STEP = ExportedMetric(name="cast_step", description="The last step that was taken")
RECOVERIES = ExportedMetric(
    name="cast_recoveries",
    description="Parts that were lost and came back since this driver began, by kind",
    tags=("kind",),
    kind="counter",
)
ENGINE_UP = ExportedMetric(
    name="cast_engine_up", description="1 where an engine answers, else 0", tags=("engine",)
)
ENGINE_RUNNING = ExportedMetric(
    name="cast_engine_running_requests",
    description="Requests computed with in the engine's last step",
    tags=("engine",),
)
ENGINE_WAITING = ExportedMetric(
    name="cast_engine_waiting_requests",
    description="Requests in the engine's queue",
    tags=("engine",),
)
ENGINE_KV_USAGE = ExportedMetric(
    name="cast_engine_kv_usage",
    description="Share of the engine's memory for keys and values in use",
    tags=("engine",),
)
ENGINE_SILENCE = ExportedMetric(
    name="cast_engine_seconds_since_progress",
    description="Seconds since the engine's last token; an idle one's grows",
    tags=("engine",),
)
ENGINE_VERSION = ExportedMetric(
    name="cast_engine_weight_version",
    description="Weights that the engine holds",
    tags=("engine",),
)
MEMORY = ExportedMetric(
    name="cast_process_memory_bytes",
    description="Resident memory of each of the run's processes",
    tags=("process",),
)
STEP_METRICS = {
    column: ExportedMetric(
        name=STEP_PREFIX + column,
        description=description,
        tags=(LIST_TAGS[column],) if column in LIST_TAGS else (),
    )
    for column, description in STEP_COLUMNS.items()
}
ALL = (
    STEP,
    *STEP_METRICS.values(),
    RECOVERIES,
    ENGINE_UP,
    ENGINE_RUNNING,
    ENGINE_WAITING,
    ENGINE_KV_USAGE,
    ENGINE_SILENCE,
    ENGINE_VERSION,
    MEMORY,
)
"""Every metric of ours."""
