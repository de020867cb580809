"""The job of ``cast-ray train``: an ``Algorithm`` from its first step to its report."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from cast_ray.cluster.code_version import code_version
from cast_ray.config.train import TrainConfig
from cast_ray.functions import short_name
from cast_ray.parquet import read_table
from cast_ray.rollout import specs
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.algorithm.algorithm import Algorithm


def train(
    config: TrainConfig,
    *,
    resume: bool,
    progress: TrainProgress,
    lost_at: float | None = None,
) -> RunDirectory:
    """Run or resume a training run and return its directory.

    Args:
        config: of the run.
        resume: whether to resume the run in ``config.run_dir``.
        progress: shows the user what happens.
        lost_at: when the driver that this one replaces was lost, as ``time.time``.

    Raises:
        RunInterrupted: a part was lost that may come back; resume the run.
        CastRayError: the input or the machine is not fit; nothing is overwritten.
        KeyboardInterrupt: stopped by Ctrl-C, after the step in progress was saved.
    """
    started = time.perf_counter()
    with Algorithm(config, resume=resume, progress=progress, lost_at=lost_at) as algorithm:
        directory = algorithm.directory
        begin(algorithm)
        with _finish_step_on_interrupt(progress) as interrupted:
            while algorithm.steps_done < config.steps:
                algorithm.train()
                if interrupted:
                    algorithm.save_to_path()
                    raise KeyboardInterrupt
        summary = finish(algorithm, seconds=time.perf_counter() - started)
        progress.phase("writing the report")
    progress.finish(directory.address, summary)
    return directory


def begin(algorithm: Algorithm) -> None:
    """Play the held-out boards before the first step, unless a resumed run already did."""
    path = algorithm.directory.evaluations / "before.parquet"
    if algorithm.steps_done == 0 and not path.is_file():
        algorithm.evaluate("before")


def finish(algorithm: Algorithm, *, seconds: float) -> dict[str, Any]:
    """Play the held-out boards after the last step, write the model and return the summary.

    Args:
        algorithm: has taken all steps.
        seconds: since the start, for the summary.
    """
    algorithm.evaluate("after")
    algorithm.save_model()
    return _summarise(algorithm.directory, algorithm.train_config, seconds=seconds)


def _summarise(directory: RunDirectory, config: TrainConfig, *, seconds: float) -> dict:
    found: dict[str, Any] = {"before": None, "after": None}
    for name in found:  # a run that Python began may lack the first
        if (path := directory.evaluations / f"{name}.parquet").is_file():
            found[name] = asdict(specs.success_of(read_table(path), seed=config.seed))
    summary = {
        **found,
        "seconds": seconds,
        "seed": config.seed,
        "game": short_name(config.game),
        "tier": config.tier,
        "algorithm": config.algorithm,
        "steps": config.steps,
        "code": code_version(),
    }
    directory.write_summary(summary)
    return summary


@contextmanager
def _finish_step_on_interrupt(progress: TrainProgress) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM wait for the end of the step; a second one stops at once.

    Yields:
        A list that is not empty once a signal has come.
    """
    interrupted: list[int] = []

    def on_interrupt(number: int, _frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(number)
        progress.note("stopping after this step; press Ctrl-C again to stop at once")

    previous = {
        number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
