"""The section ``puzzles`` of a run's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from cast_ray.config.checks import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleConfig:
    """Which boards are trained on, validated on and held out."""

    file: str = ""
    """Training boards: a file in any form that ``cast-ray data import`` reads, a directory of such
    files (boards below its ``test`` and ``valid`` are held out), or one of ``cast-ray data build``
    (its test puzzles are held out); empty = generate them from ``seed``."""
    validation_file: str = ""
    """Boards for validation, all of them, in any of these forms; empty = as ``file`` says."""
    held_out_file: str = ""
    """Boards for the success rates before and after training; forms and default as for
    ``validation_file``."""
    num_train: int = 8000
    """Training puzzles to generate, distinct up to symmetry; fewer where fewer exist."""
    num_validation: int = 64
    """Boards for validation during training; a data set's are taken from its training file."""
    num_held_out: int = 200
    """Boards for the success rates before and after training."""
    seed: int = 0
    """Seed of the generated boards; kept apart from the run's seed so that runs share boards."""

    def __post_init__(self) -> None:
        at_least(1, self, "puzzles.", "num_train", "num_validation", "num_held_out")
