"""Seconds per step of training with and without rollouts during learning.

Training loop, actors, Serve and trajectory log are real. The engine is simulated, and the learner
sleeps as long as the rollouts of a step take: then asynchrony saves most, half of the time at best.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.sleeping_learner import SleepingLearner
from cast_ray.cluster.session import ray_session
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.recoveries import RecoveryLog
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.tracking import TrackedRun, Tracking
from cast_ray.training.loop import TrainingLoop
from cast_ray.training.monitor import RunMonitor
from cast_ray.training.prometheus import MetricsExporter
from cast_ray.training.recovering_learner import RecoveringLearner
from cast_ray.training.run import Run, open_run
from cast_ray.training.warm_start import engine_model
from cast_ray.training.workers import Workers, start_pool
from tests.support.simulated_engine import deploy_simulated_engines

NUM_SLOTS, SECONDS_PER_TURN = 64, 0.05
_WARM_UP_STEPS = 3


def bench_asynchronous(*, num_steps: int = 200, num_synchronous: int = 60) -> dict[str, float]:
    """Return seconds per step with ``max_staleness`` 0 and 1, their ratio, and the staleness.

    ``synchronous_waiting_percent`` is the share of episode-seconds in which finished episodes wait
    for the slowest one of their step.
    """
    with tempfile.TemporaryDirectory() as folder, ray_session(num_cpus=4):
        alone = simulated_steps(Path(folder) / "alone", 10, max_staleness=0, learner_s=0.0)
        rollout_s = _median_seconds(alone)
        together = simulated_steps(
            Path(folder) / "synchronous", num_synchronous, max_staleness=0, learner_s=rollout_s
        )
        apart = simulated_steps(
            Path(folder) / "asynchronous", num_steps, max_staleness=1, learner_s=rollout_s
        )
    synchronous_s, asynchronous_s = _median_seconds(together), _median_seconds(apart)
    return {
        "rollout_s": rollout_s,
        "learner_s": rollout_s,
        "synchronous_step_s": synchronous_s,
        "asynchronous_step_s": asynchronous_s,
        "asynchronous_over_synchronous": asynchronous_s / synchronous_s,
        "steps": float(len(apart)),
        "staleness_max": float(max(row.staleness_max for row in apart)),
        "staleness_mean": float(np.mean([row.staleness_mean for row in apart])),
        "synchronous_waiting_percent": 100
        * float(np.mean([row.waiting_fraction for row in together])),
        "synchronous_long_tail_s": float(np.mean([row.seconds_long_tail for row in together])),
    }


def _median_seconds(rows: Sequence[StepMetrics]) -> float:
    return float(np.median([row.seconds_total for row in rows[_WARM_UP_STEPS:]]))


def simulated_steps(
    path: Path, num_steps: int, *, max_staleness: int, learner_s: float
) -> list[StepMetrics]:
    """Take steps of a run and return their rows."""
    config = load_config(
        None,
        [
            f"run_dir={path}",
            f"steps={num_steps}",
            f"max_staleness={max_staleness}",
            "puzzles.num_train=2000",
            "evaluation.every=0",
            f"engine.max_num_seqs={NUM_SLOTS}",
        ],
    )
    with _loop(config, learner_s=learner_s) as loop:
        loop.catch_up()
        return [loop.take_step(step) for step in range(1, num_steps + 1)]


@contextmanager
def _loop(config: TrainConfig, *, learner_s: float) -> Iterator[TrainingLoop]:
    """Yield a training loop with a simulated engine and a learner that sleeps."""
    with ExitStack() as parts:
        progress = TrainProgress(Console(quiet=True))
        run = open_run(config, resume=False, progress=progress)
        workers = _simulated_workers(run)
        parts.callback(workers.close)
        sleeping = SleepingLearner(seconds_per_update=learner_s / config.learner.mini_batches)
        learner = RecoveringLearner(
            lambda: sleeping,  # type: ignore[arg-type, return-value]  # the double
            max_restarts=0,
            on_recovery=lambda what, seconds: None,
        )
        recoveries = RecoveryLog(run.directory.recoveries, on_recovery=lambda what, seconds: None)
        exporter = MetricsExporter(run.run_id)
        monitor = RunMonitor(workers, recoveries, exporter)
        parts.callback(monitor.close)
        loop = TrainingLoop(
            run,
            workers,
            learner,
            monitor=monitor,
            recoveries=recoveries,
            exporter=exporter,
            tracking=Tracking(
                (), TrackedRun(directory=run.directory.path, config=config), warn=print
            ),
        )
        yield loop
        loop.settle()


def _simulated_workers(run: Run) -> Workers:
    model_dir = localized(engine_model(run))
    pieces = read_chat_pieces(model_dir)
    tokenizer = ChatTokenizer(model_dir, pieces)
    engines = deploy_simulated_engines(
        run.run_id,
        num_engines=1,
        num_slots=NUM_SLOTS,
        seconds_per_turn=SECONDS_PER_TURN,
        answers=[tokenizer.answer(f"```{move}```") for move in ("Up", "Down", "Left", "Right")],
    )
    return Workers(
        engines=engines,
        pool=start_pool(
            run.config,
            run_id=run.run_id,
            model_dir=model_dir,
            pieces=pieces,
            engine_names=engines.names,
        ),
        tokenizer=tokenizer,
        weights_dir=run.directory.path / "weights",
        dtype="bfloat16",
    )
