"""Was each stored group one that the run had to play: its puzzle, its seeds, its weights?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cast_ray.config import TrainConfig
from cast_ray.jobs.boards import PuzzleSampler
from cast_ray.jobs.replay_row import Mismatch
from cast_ray.puzzles import Puzzle, read_puzzles
from cast_ray.run_directory import RunDirectory
from cast_ray.seeds import derive_seed
from cast_ray.trajectory import NOT_THE_POLICY


class IssuedGroups:
    """What a run's sampler and seeds demand of every training trajectory."""

    def __init__(self, run: RunDirectory, config: TrainConfig) -> None:
        """Read the training puzzles.

        Raises:
            PuzzleError: they are missing or broken.
        """
        self._config = config
        self._sampler = PuzzleSampler(
            read_puzzles(run.puzzles / "train.parquet"),
            per_step=config.rollout.puzzles_per_step,
            seed=config.seed,
        )
        self._drawn: dict[int, list[list[Puzzle]]] = {}

    def mismatches(self, columns: dict[str, Any]) -> Iterator[Mismatch]:
        """Yield what one row has otherwise. Any: as Arrow gives it; the row is well-formed."""
        step, group, episode = (columns[name] for name in ("step", "group", "episode"))
        may_be = self._puzzles_of(step, group)
        if columns["puzzle_id"] not in may_be:
            yield Mismatch.of(None, "puzzle_id", columns["puzzle_id"], " or ".join(may_be))
        seed = derive_seed(self._config.seed, "rollout", step, group, episode)
        if columns["seed"] != seed:
            yield Mismatch.of(None, "seed", columns["seed"], seed)
        oldest = max(step - self._config.max_staleness, 1)
        for token, version in enumerate(columns["weight_versions"]):
            if version != NOT_THE_POLICY and not oldest <= version <= step:
                expected = f"from {oldest} to {step}"
                yield Mismatch.of(None, f"weight_versions[{token}]", version, expected)
                return

    def _puzzles_of(self, step: int, group: int) -> list[str]:
        """Return the ids of the puzzles that a group can be of: one, or those of further draws."""
        rollout = self._config.rollout
        if step not in self._drawn:
            self._drawn = {
                step: [
                    self._sampler.draw(step, further)
                    for further in range(rollout.dynamic_sampling + 1)
                ]
            }
        own, *further = self._drawn[step]
        if group < len(own):
            return [own[group].puzzle_id]
        return sorted({puzzle.puzzle_id for draw in further for puzzle in draw})
