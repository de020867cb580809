"""Boards analysed by the cached solvers of one process: costs, lines, teacher, risks.

Only this module decides what may be said in a live episode of a game with hidden state: without
privilege, nothing that depends on the true state leaves it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis
from cast_ray.games.game import CellRisks, Game, Status
from cast_ray.games.generators import build_puzzles
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from solver_actors.solver import Solver, SolverEntry
from solver_actors.teacher import SoftTeacher, teacher_choice

MAX_LINE = 1000
"""Actions of the longest line that is returned."""
BUDGET_S = 4.0
"""Of one question: what is not begun until then is unknown."""
LINE_SECONDS = 2.0
"""Longest time to follow a line: above a table's cap each step may take many searches."""

_RESCUE = "cost"
"""As training has it by default (``advantages.shifted_solver_advantage``)."""
_NOT_TOLD = Analysis(
    cost=None, action_costs=None, best=None, line=None, teacher=None, cell_risks=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked about each board of one layout. Any: each game has a state type of its own."""

    game: str
    entry: SolverEntry
    solver: Solver[Any]
    privileged: bool
    temperature: float | None
    with_line: bool
    deadline: float
    """By ``time.perf_counter``."""

    @property
    def is_late(self) -> bool:
        return time.perf_counter() > self.deadline


def analyse(
    oracle: Oracle,
    game: str,
    boards: Sequence[str],
    *,
    privileged: bool = True,
    temperature: float | None = None,
    with_line: bool = False,
) -> list[Analysis]:
    """Return one analysis per board, in their order; see ``cast_ray.games.analysis.Analyst``.

    Boards too large for the game's solver are no error: all that it would say is unknown.

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
    privileged = privileged or not get_game(game).has_hidden_state
    try:
        solver = oracle.solver_of(game, states[0])
    except PuzzleError:  # too large
        return [replace(_NOT_TOLD, cost=math.nan if privileged else None)] * len(states)
    question = _Question(
        game=game,
        entry=entry,
        solver=solver,
        privileged=privileged,
        temperature=temperature,
        with_line=with_line,
        deadline=time.perf_counter() + BUDGET_S,
    )
    return [_analysis(question, state) for state in states]


def analyse_visible(game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
    """Return what can be said from what a player sees alone; see ``Analyst.analyse_visible``.

    Returns:
        ``best`` and ``cell_risks``; both None on boards too large for the solver and out of its
        budget.

    Raises:
        PuzzleError: the rows are no board, or no state looks like this.
        ConfigError: the game has no solver that reads such rows.
    """
    entry = get_solver_entry(game)
    if entry.read_view is None:
        raise ConfigError(
            f"the solver of {game} cannot read what a player sees: give the board itself"
        )
    state = entry.read_view(rows, num_hidden)
    return _NOT_TOLD if state is None else _seen(entry, entry.build(state), state)


def new_board(oracle: Oracle, game: str, tier: str, seed: int) -> str:
    """Return the first board that a tier's generator makes of a seed.

    Raises:
        PuzzleError: it made none.
        ConfigError: there is no such game or tier.
    """

    def cost(state: Any) -> float:
        return float(oracle.solver_of(game, state).cost_to_go([state])[0])

    return build_puzzles(game=game, tier=tier, count=1, seed=seed, solve=cost)[0].board


def _analysis(question: _Question, state: Any) -> Analysis:
    """Return what one state's solver says in time.

    Where the search for the cost gives up, each action's would, too: none of them begins.
    """
    solver, entry, game = question.solver, question.entry, get_game(question.game)
    unknown = replace(_NOT_TOLD, cost=math.nan if question.privileged else None)
    if question.is_late:
        return unknown
    if not question.privileged:
        return _seen(entry, solver, state)
    risks = _risks(entry, solver, state)
    cost = float(solver.cost_to_go([state])[0])
    if question.is_late or math.isnan(cost):
        return replace(unknown, cost=cost, cell_risks=risks)
    return Analysis(
        cost=cost,
        action_costs=solver.action_costs(state),
        best=solver.best_action(state),
        line=optimal_line(game, entry, solver, state) if question.with_line else None,
        teacher=_teacher(question, state, cost),
        cell_risks=risks,
    )


def _seen(entry: SolverEntry, solver: Solver[Any], state: Any) -> Analysis:
    """Return what may be said in a live episode: it follows from what the player sees alone."""
    return replace(
        _NOT_TOLD, best=entry.next_action(solver, state), cell_risks=_risks(entry, solver, state)
    )


def _risks(entry: SolverEntry, solver: Solver[Any], state: Any) -> CellRisks | None:
    return None if entry.cell_risks is None else entry.cell_risks(solver, state)


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


def optimal_line(
    game: Game[Any], entry: SolverEntry, solver: Solver[Any], state: Any
) -> tuple[str, ...] | None:
    """Return the actions of a player who follows the solver from a state of finite cost.

    None if the cost is infinite or unknown, or the line has more than ``MAX_LINE`` actions or takes
    more than ``LINE_SECONDS``.
    """
    if not math.isfinite(solver.cost_to_go([state])[0]):
        return None
    started = time.monotonic()
    line: list[str] = []
    while game.status(state) is Status.PLAYING:
        if len(line) == MAX_LINE or time.monotonic() - started > LINE_SECONDS:
            return None
        action = None
        if entry.known_action is not None and line:  # the first one is `best`
            action = entry.known_action(solver, state)
        action = action or entry.next_action(solver, state)
        if action is None:
            return None
        line.append(action)
        state = game.apply(state, action).state
    return tuple(line)
