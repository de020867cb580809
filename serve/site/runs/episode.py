"""One stored trajectory as the service shows it: it is over, so nothing is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cast_ray.envs.registry import is_benchmark
from cast_ray.errors import TrajectoryError
from cast_ray.rollout.trajectory import costs_of
from cast_ray.runs.report.episode import shown_episode
from cast_ray.runs.report.figures import plain
from serve.site import schemas
from serve.site.runs.steps import read_row

_COLUMNS = (
    "group", "episode", "game", "tier", "turn_budget", "seed", "turn_starts", "turn_ends",
    "answers", "actions", "effects", "states", "end_reason", "cost_to_go", "cost_status",
    "shifted_advantages", "solver_advantages", "step_advantages", "turn_advantages",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """One trajectory."""

    episode: schemas.Episode
    """Without analyses."""
    states: tuple[str, ...]
    """``[T + 1]`` ``Game.encode`` of every board, to be analysed."""


def read_episode(
    path: Path, *, group: int, episode: int, attempt: int | None
) -> StoredEpisode | None:
    """Return one trajectory of a step's file; None if it is not there.

    Args:
        path: of the file.
        group: of the trajectory.
        episode: likewise.
        attempt: likewise; None = the last.

    Raises:
        TrajectoryError: the file is broken, or of a game that is not installed.
    """
    row = read_row(path, _COLUMNS, group=group, episode=episode, attempt=attempt)
    if row is None:
        return None
    sizes = [end - start for start, end in zip(row["turn_starts"], row["turn_ends"], strict=True)]
    found = shown_episode(
        row, costs_of(row).tolist(), num_tokens=sizes, advantages=_advantages(row)
    )
    if found["board"].get("is_text") and not is_benchmark(row["game"]):
        raise TrajectoryError(
            f"{path.name}: the boards of group {group}, episode {episode} cannot be shown: they "
            f"are no boards of {row['game']}, or it is not installed"
        )
    found |= {"id": "", "created": "", "model": None, "error": None, "analysis": None}
    return StoredEpisode(episode=schemas.Episode(**found), states=tuple(row["states"]))


def _advantages(row: Mapping[str, Any]) -> list[dict[str, float | None]]:
    names = ("shifted", "solver", "step", "turn")
    columns = (plain(row[f"{name}_advantages"]) for name in names)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
