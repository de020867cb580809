"""Checks of one stored trajectory beyond its game: puzzle and seeds, teacher, weight versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import PuzzleSampler
from cast_ray.envs.registry import is_benchmark
from cast_ray.games import get_game
from cast_ray.games.puzzles import Puzzle, read_puzzles
from cast_ray.rollout.trajectory import NOT_THE_POLICY, ScoredTrajectory, TeacherTurns
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.seeds import derive_seed
from cast_ray.training.replay.row import Mismatch, ReplayedEpisode, turn_at
from solver_actors.oracle import Oracle
from solver_actors.teacher import PuzzleTeacher, SoftTeacher


class IssuedGroups:
    """The puzzles, seeds and weights that a run's training trajectories must have."""

    def __init__(self, run: RunDirectory, config: TrainConfig) -> None:
        """Read the training puzzles.

        Raises:
            PuzzleError: they are missing or broken.
        """
        self._config = config
        self._sampler = PuzzleSampler(
            read_puzzles(run.puzzles / "train.parquet", is_task=is_benchmark),
            per_step=config.rollout.puzzles_per_step,
            seed=config.seed,
        )
        self._drawn: dict[int, list[list[Puzzle]]] = {}

    def mismatches(self, columns: dict[str, Any]) -> Iterator[Mismatch]:
        """Yield what a well-formed row has instead. Any: as Arrow returns it."""
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
        """Return the ids of a group's possible puzzles: one, or those of further draws."""
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


_TOLERANCE = 1e-12
"""Of log-probabilities: CPUs round exp and log differently."""


def teacher_mismatches(
    row: ScoredTrajectory,
    replayed: ReplayedEpisode,
    costs: np.ndarray,
    *,
    teacher: SoftTeacher | None,
    oracle: Oracle,
) -> Iterator[Mismatch]:
    """Yield the turns whose stored teacher columns differ from what the teacher says again.

    Args:
        row: well-formed.
        replayed: the same episode, played again.
        costs: of the replayed states; inf = infinite, NaN = unknown.
        teacher: of the run; None = it has none, and nothing may be stored.
        oracle: provides the solver.
    """
    said = TeacherTurns.unasked(len(replayed.effects))
    if teacher is not None:
        decode = get_game(row.game).decode
        asked = PuzzleTeacher(
            teacher,
            game=row.game,
            solver=oracle.solver(row.game, row.puzzle),
            states={board: decode(board) for board in replayed.states},
        )
        said = asked.turns(replayed.states, costs, replayed.effects, seed=row.seed)
    logprobs = zip(row.teacher_logprobs, said.logprobs.tolist(), strict=False)
    for turn, (stored, expected) in enumerate(logprobs):
        as_float = np.nan if stored is None else stored
        if not np.isclose(as_float, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            yield Mismatch.of(turn, "teacher_logprobs", as_float, expected)
    actions = zip(row.teacher_actions, said.actions, strict=False)
    for turn, (stored, expected) in enumerate(actions):
        if stored != expected:
            yield Mismatch.of(turn, "teacher_actions", stored, expected)


def version_mismatches(row: ScoredTrajectory) -> Iterator[Mismatch]:
    """Yield versions of tokens that no weights wrote, missing versions, and versions that fall.

    Versions may not fall within an answer, but from one answer to the next: that may come from
    another engine.

    Args:
        row: well-formed.
    """
    versions = np.array(row.weight_versions)
    expected = np.zeros(len(versions), dtype=bool)
    for turn, (start, end) in enumerate(zip(row.turn_starts, row.turn_ends, strict=True)):
        expected[start:end] = True
        for fall in np.flatnonzero(np.diff(versions[start:end]) < 0)[:1]:
            token = start + int(fall) + 1
            before = f"at least {versions[token - 1]}"
            yield Mismatch.of(turn, f"weight_versions[{token}]", versions[token], before)
    for token in np.flatnonzero((versions == NOT_THE_POLICY) == expected)[:1]:
        yield Mismatch.of(
            turn_at(row, int(token)),
            f"weight_versions[{token}]",
            versions[token],
            "a version" if expected[token] else NOT_THE_POLICY,
        )
