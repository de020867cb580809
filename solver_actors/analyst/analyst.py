"""Boards analysed by the cached solvers of one process: costs, lines, teacher, mine probabilities.

What a live game of Minesweeper may be told is decided here and nowhere else: without privilege
nothing that the true mines enter leaves this module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis, MineProbabilities
from cast_ray.games.game import Status
from cast_ray.games.generators import build_puzzles
from cast_ray.games.minesweeper import Minesweeper, MinesweeperState
from solver_actors.minesweeper.constraints import MAX_CELLS
from solver_actors.minesweeper.solver import MinesweeperSolver, solve_minesweeper
from solver_actors.minesweeper.views import read_view
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.sokoban.search import SokobanSearchSolver
from solver_actors.solver import Solver
from solver_actors.teacher import SoftTeacher, teacher_choice

MAX_LINE = 1000
"""A longer line is not told."""
LINE_SECONDS = 2.0
"""Nor one that takes longer to follow: above a table's cap each step may be many searches."""

_RESCUE = "cost"
"""As training has it by default (``advantages.shifted_solver_advantage``)."""
_NOT_TOLD = Analysis(
    cost=None, action_costs=None, best=None, line=None, teacher=None, mine_probabilities=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked about each board of one layout. Any: each game has a state type of its own."""

    game: str
    solver: Solver[Any]
    next_action: Callable[[Any, Any], str | None]
    privileged: bool
    temperature: float | None
    with_line: bool


def analyse(
    oracle: Oracle,
    game: str,
    boards: Sequence[str],
    *,
    privileged: bool = True,
    temperature: float | None = None,
    with_line: bool = False,
) -> list[Analysis]:
    """Return one analysis a board, in their order; see ``cast_ray.games.analysis.Analyst``.

    Minesweeper boards above the solver's 64 cells are no error: all that it would say is unknown.

    Raises:
        PuzzleError: a board is broken, or of another layout than the first.
        ConfigError: there is no such game.
    """
    entry = get_solver_entry(game)
    states = [get_game(game).decode(board) for board in boards]
    key = entry.layout_key(states[0])
    for number, state in enumerate(states):
        if entry.layout_key(state) != key:
            raise PuzzleError(
                f"board {number} is of another layout than board 0: ask about each layout alone"
            )
    is_minesweeper = game == Minesweeper.name
    if is_minesweeper and not _fits(states[0]):
        unknown = replace(_NOT_TOLD, cost=math.nan if privileged else None)
        return [unknown] * len(states)
    question = _Question(
        game=game,
        solver=oracle.solver_of(game, states[0]),
        next_action=entry.next_action,
        privileged=privileged or not is_minesweeper,
        temperature=temperature,
        with_line=with_line,
    )
    costs = [math.nan] * len(states)
    if question.privileged:
        costs = question.solver.cost_to_go(states).tolist()
    return [_analysis(question, state, cost) for state, cost in zip(states, costs, strict=True)]


def analyse_visible(rows: Sequence[str], num_mines: int) -> Analysis:
    """Return what a Minesweeper board says by what is seen of it alone; nothing is privileged.

    Args:
        rows: ``.`` hidden, ``F`` flag, ``0`` to ``8`` open.
        num_mines: mines of the whole board.

    Returns:
        ``best`` and ``mine_probabilities``, both None above 64 cells and out of search budget.

    Raises:
        PuzzleError: the rows are no board, or no layout agrees with them.
    """
    state = read_view(rows, num_mines)
    if state is None:
        return _NOT_TOLD
    return _seen(solve_minesweeper(state), state)


def new_board(oracle: Oracle, game: str, tier: str, seed: int) -> str:
    """Return the first board that a tier's generator makes of a seed.

    Raises:
        PuzzleError: it made none.
        ConfigError: there is no such game or tier.
    """

    def cost(state: Any) -> float:
        return float(oracle.solver_of(game, state).cost_to_go([state])[0])

    return build_puzzles(game=game, tier=tier, count=1, seed=seed, solve=cost)[0].board


def _fits(state: MinesweeperState) -> bool:
    return state.layout.rows * state.layout.cols <= MAX_CELLS


def _analysis(question: _Question, state: Any, cost: float) -> Analysis:
    """Return what one state's solver says."""
    solver = question.solver
    seen = _NOT_TOLD
    if isinstance(solver, MinesweeperSolver):
        seen = _seen(solver, state)
    if not question.privileged:
        return seen
    return Analysis(
        cost=cost,
        action_costs=solver.action_costs(state),
        best=solver.best_action(state),
        line=_line(question, state, cost) if question.with_line else None,
        teacher=_teacher(question, state, cost),
        mine_probabilities=seen.mine_probabilities,
    )


def _seen(solver: MinesweeperSolver, state: MinesweeperState) -> Analysis:
    """Return what may be said in a live game: it follows from the open cells alone."""
    return Analysis(
        cost=None,
        action_costs=None,
        best=solver.next_action(state),
        line=None,
        teacher=None,
        mine_probabilities=mine_probabilities_of(solver, state),
    )


def mine_probabilities_of(
    solver: MinesweeperSolver, state: MinesweeperState
) -> MineProbabilities | None:
    """Return the chances by row and column; None in a lost game and out of budget."""
    if Minesweeper().status(state) is Status.LOST:
        return None
    found = solver.mine_probabilities(state)
    num_closed = found.size - state.revealed.bit_count()
    if int(np.isfinite(found).sum()) < num_closed:
        return None
    return tuple(
        tuple(None if math.isnan(chance) else chance for chance in row) for row in found.tolist()
    )


def _teacher(question: _Question, state: Any, cost: float) -> dict[str, float] | None:
    """Return the soft-optimal probabilities, if they are asked for and known."""
    if question.temperature is None:
        return None
    choice = teacher_choice(
        SoftTeacher(temperature=question.temperature, rescue=_RESCUE),
        game=question.game,
        solver=question.solver,
        state=state,
        cost=cost,
    )
    if choice is None:
        return None
    return dict(zip(choice.actions, choice.probabilities.tolist(), strict=True))


def _line(question: _Question, state: Any, cost: float) -> tuple[str, ...] | None:
    """Return the actions of a player who follows the solver to the goal, within bounds."""
    if not math.isfinite(cost):
        return None
    game, solver = get_game(question.game), question.solver
    started = time.monotonic()
    line: list[str] = []
    while game.status(state) is Status.PLAYING:
        if len(line) == MAX_LINE or time.monotonic() - started > LINE_SECONDS:
            return None
        action = None
        if isinstance(solver, SokobanSearchSolver) and line:  # the first one is `best`
            action = solver.known_action(state)
        action = action or question.next_action(solver, state)
        if action is None:
            return None
        line.append(action)
        state = game.apply(state, action).state
    return tuple(line)
