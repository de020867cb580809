"""Where the seconds of a step go."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cast_ray.metrics import StepMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """The wall time of steps in parts that do not overlap, in seconds; and what ran beside them."""

    generation: float
    """While neither the learner nor anything else of the step was at work."""
    learner: float
    sync: float
    checkpoint: float
    """After the step; with asynchronous rollouts the engines go on meanwhile."""
    validation: float
    """0 with asynchronous rollouts, where nothing waits for it."""
    other: float
    """What is left of the steps' wall time."""
    solver: float
    """Runs beside generation, so it is no part of the sum."""
    environment: float
    """Summed over episodes that run at once, beside generation: no part of the sum either."""
    generation_beside: float
    """Of asynchronous rollouts while the learner worked: no part of the sum."""
    validation_beside: float
    """Of asynchronous runs, beside the next steps: no part of the sum."""

    @property
    def total(self) -> float:
        """Return the wall time of the steps, their validation and checkpoints included."""
        in_steps = self.generation + self.learner + self.sync + self.other
        return in_steps + self.checkpoint + self.validation

    @property
    def overhead_fraction(self) -> float:
        """Return the share of a step that neither plays nor learns.

        Validation and checkpoints, which come after it, are left out.
        """
        step = self.total - self.validation - self.checkpoint
        return (self.sync + self.other) / step if step > 0 else 0.0


def was_watched(row: StepMetrics) -> bool:
    """Return whether somebody who lived to tell saw where this step's time went."""
    return not row.is_replayed and not math.isnan(row.seconds_generation)


def wall_seconds(row: StepMetrics, *, is_asynchronous: bool = False) -> float:
    """Return what a step took of the run's time, with the validation and checkpoint after it."""
    is_beside = is_asynchronous or row.staleness_max > 0
    return row.seconds_total + row.seconds_checkpoint + (0 if is_beside else row.seconds_validation)


def time_split(rows: Iterable[StepMetrics], *, is_asynchronous: bool = False) -> TimeSplit:
    """Return how the time of all these steps together is divided.

    Generation beside the learner's work counts as the learner's. Steps that nobody watched are
    left out.

    Args:
        rows: the steps.
        is_asynchronous: whether the run's ``max_staleness`` is above 0; a step that trained on
            stale tokens proves it by itself, the first steps of such a run do not.
    """
    splits = [_split(row, is_asynchronous or row.staleness_max > 0) for row in rows]
    known = [split for split in splits if split is not None]
    return TimeSplit(
        **{
            name: math.fsum(getattr(split, name) for split in known)
            for name in TimeSplit.__dataclass_fields__
        }
    )


def _split(row: StepMetrics, is_asynchronous: bool) -> TimeSplit | None:
    if not was_watched(row):
        return None
    alone = row.seconds_generation
    if is_asynchronous:
        alone = max(0.0, min(alone, row.seconds_total - row.seconds_learner))
    accounted = alone + row.seconds_learner + row.seconds_sync
    return TimeSplit(
        generation=alone,
        learner=row.seconds_learner,
        sync=row.seconds_sync,
        checkpoint=row.seconds_checkpoint,
        validation=0.0 if is_asynchronous else row.seconds_validation,
        other=max(0.0, row.seconds_total - accounted),
        solver=row.seconds_solver,
        environment=row.seconds_environment,
        generation_beside=row.seconds_generation - alone,
        validation_beside=row.seconds_validation if is_asynchronous else 0.0,
    )
