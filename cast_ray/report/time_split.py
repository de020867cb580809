"""Where the seconds of a step go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cast_ray.metrics import StepMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """The wall time of steps in parts that do not overlap, in seconds; and what ran beside them."""

    generation: float
    learner: float
    sync: float
    validation: float
    other: float
    """What is left of the steps' wall time."""
    solver: float
    """Runs beside generation, so it is no part of the sum."""
    environment: float
    """Summed over episodes that run at once, beside generation: no part of the sum either."""

    @property
    def total(self) -> float:
        """Return the wall time of the steps, validation included."""
        return self.generation + self.learner + self.sync + self.validation + self.other

    @property
    def overhead_fraction(self) -> float:
        """Return the share of a step, validation left out, that neither plays nor learns."""
        step = self.total - self.validation
        return (self.sync + self.other) / step if step > 0 else 0.0


def time_split(rows: Iterable[StepMetrics]) -> TimeSplit:
    """Return how the time of all these steps together is divided.

    Generation beside the learner's work counts as the learner's. Steps that were only replayed are
    left out: nobody saw them played.
    """
    steps = [row for row in rows if not row.is_replayed]
    learner = sum(row.seconds_learner for row in steps)
    sync = sum(row.seconds_sync for row in steps)
    total = sum(row.seconds_total for row in steps)
    generation = sum(
        max(0.0, min(row.seconds_generation, row.seconds_total - row.seconds_learner))
        if row.staleness_max
        else row.seconds_generation
        for row in steps
    )
    return TimeSplit(
        generation=generation,
        learner=learner,
        sync=sync,
        validation=sum(row.seconds_validation for row in steps),
        other=max(0.0, total - generation - learner - sync),
        solver=sum(row.seconds_solver for row in steps),
        environment=sum(row.seconds_environment for row in steps),
    )
