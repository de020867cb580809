"""What the teacher is stored to have said about a trajectory, against what it says again.

Log-probabilities are compared to 1e-12: another CPU may round exp and log in another place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cast_ray.games import get_game
from cast_ray.jobs.replay_row import Mismatch, ReplayedEpisode, ScoredTrajectory
from cast_ray.trajectory import TeacherTurns
from solver_actors.oracle import Oracle
from solver_actors.teacher import PuzzleTeacher, SoftTeacher

_TOLERANCE = 1e-12


def teacher_mismatches(
    row: ScoredTrajectory,
    replayed: ReplayedEpisode,
    costs: np.ndarray,
    *,
    teacher: SoftTeacher | None,
    oracle: Oracle,
) -> Iterator[Mismatch]:
    """Yield the turns of which the teacher is stored to have said something else.

    Args:
        row: well-formed.
        replayed: the same episode, played again.
        costs: of the replayed states; inf = infinite, NaN = unknown.
        teacher: of the run; None = it asked nobody, and nothing may be stored.
        oracle: has the solver.
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
