"""Whether a run has a teacher, and which."""

from __future__ import annotations

from cast_ray.config import TrainConfig
from solver_actors.teacher import SoftTeacher


def teacher_of(config: TrainConfig) -> SoftTeacher | None:
    """Return the teacher that oracles ask about every turn; None where nothing is distilled."""
    if config.distillation.mode == "none":
        return None
    return SoftTeacher(
        temperature=config.distillation.temperature,
        rescue=config.advantage.rescue,
        are_estimates=config.oracle == "value_net",
    )
