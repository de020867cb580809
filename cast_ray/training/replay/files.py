"""The trajectory files and rows that a run should have, and which are missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cast_ray.config.train import TrainConfig
from cast_ray.errors import DamagedFileError, TrajectoryError
from cast_ray.parquet import read_table
from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA
from cast_ray.runs.run_directory import RunDirectory, read_batch
from cast_ray.training.replay.row import Mismatch


class Place(NamedTuple):
    """Where a row belongs; None = in no particular one.

    The file as a whole has no group, and dynamic sampling leaves open which group is missing.
    """

    step: int | None
    group: int | None
    episode: int | None


@dataclass(frozen=True, slots=True)
class TrajectoryFile:
    """One file that the run should have."""

    path: Path
    step: int | None
    """Step of every row; None for an evaluation, whose rows have no advantages."""
    num_groups: int
    group_size: int
    further_draws: int = 0
    """Of dynamic sampling; if there are any, group numbers may be missing."""

    @property
    def place(self) -> Place:
        """Return the place of the file as a whole."""
        return Place(self.step, None, None)


def trajectory_files(run: RunDirectory, config: TrainConfig) -> Iterator[TrajectoryFile]:
    """Yield the file of every step that is stored, in the metrics or in between; then evaluations.

    Raises:
        TrajectoryError: the metrics cannot be read, or a file is not named after a step.
    """
    stored = {_step_of(path) for path in run.trajectory_files()}
    between = set(range(min(stored), max(stored))) if stored else set()
    for step in sorted(stored | between | _metrics_steps(run)):
        rollout = config.rollout
        sizes = rollout.puzzles_per_step, rollout.group_size, rollout.dynamic_sampling
        yield TrajectoryFile(run.trajectory_file(step), step, *sizes)
    for path in sorted(run.evaluations.glob("*.parquet")):
        sizes = config.puzzles.num_held_out, config.evaluation.held_out_attempts
        yield TrajectoryFile(path, None, *sizes)


def read_trajectories(file: TrajectoryFile) -> pa.Table:
    """Return the table of a file.

    Raises:
        DamagedFileError: it cannot be read, or has changed since it was written.
        TrajectoryError: it is missing, or has other columns.
    """
    if not file.path.is_file():
        raise TrajectoryError("missing")
    return read_batch(file.path, SCORED_SCHEMA if file.step is None else BATCH_SCHEMA)


def wrong_row_counts(
    file: TrajectoryFile, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[Place, Mismatch]]:
    """Yield missing, repeated and surplus rows (Any: as Arrow returns them)."""
    steps = {row["step"] for row in rows} if file.step is None else {file.step}
    groups = _expected_groups(file, {row["group"] for row in rows})
    if file.step is not None:
        for _ in range(file.num_groups - len(groups)):
            yield file.place, Mismatch.of(None, "row", "missing", "once")
    expected = Counter(
        Place(step, group, episode)
        for step in steps
        for group in groups
        for episode in range(file.group_size)
    )
    stored = Counter(place_of(row) for row in rows)
    for place in sorted(expected | stored):
        if stored[place] != expected[place]:
            found = f"{stored[place]} times" if stored[place] else "missing"
            yield place, Mismatch.of(None, "row", found, "once" if expected[place] else "none")


def place_of(row: dict[str, Any]) -> Place:
    """Return where a row belongs (Any: as Arrow returns it)."""
    return Place(row["step"], row["group"], row["episode"])


def _expected_groups(file: TrajectoryFile, stored: set[int]) -> list[int]:
    """Return the groups that a file should have.

    With dynamic sampling these are the stored ones, as far as their numbers are possible.
    """
    if not file.further_draws:
        return list(range(file.num_groups))
    most = file.num_groups * (1 + file.further_draws)
    return sorted(group for group in stored if 0 <= group < most)[: file.num_groups]


def _step_of(path: Path) -> int:
    digits = re.fullmatch(r"step-(\d+)", path.stem)
    if digits is None:
        raise TrajectoryError(
            f"{path} is not named after a step: rename it to step-<number>.parquet, or move it away"
        )
    return int(digits[1])


def _metrics_steps(run: RunDirectory) -> set[int]:
    if not run.metrics.is_file():
        return set()
    try:
        return set(read_table(run.metrics, ["step"])["step"].to_pylist())
    except DamagedFileError as error:
        raise TrajectoryError(
            f"{error}, or remove it to check only the stored files; missing steps then go unnoticed"
        ) from None
