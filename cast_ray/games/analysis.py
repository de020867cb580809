"""What exact solvers say about boards, as values, and who can be asked for it.

Whoever serves boards asks an ``Analyst`` and never learns where its solvers run.

A board as a player may see it: rows of symbols for a drawing, and the policy's own text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cast_ray.games.game import Game
from cast_ray.games.minesweeper import Minesweeper, MinesweeperState
from cast_ray.games.rush_hour import RushHour
from cast_ray.games.rush_hour_board import SIDE
from cast_ray.games.sokoban import Sokoban
from cast_ray.games.text import members

MineProbabilities = tuple[tuple[float | None, ...], ...]
"""``[rows][columns]`` exact chance of a mine in each hidden cell; None where a cell is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a solver says about one board.

    In Minesweeper ``cost``, ``action_costs``, ``line`` and ``teacher`` are of the true board and
    so privileged: they are told of finished games alone. None of them = not told, or not asked for.
    """

    cost: float | None
    """In the game's moves; ``inf`` = infinite, NaN = unknown, None = not told."""
    action_costs: Mapping[str, float] | None
    """Cost after each scored action, in the game's canonical order; None = not told, or the board
    is too large for the solver."""
    best: str | None
    """The first action of least cost; None at cost 0, infinite or unknown. In Minesweeper the next
    action of the peek-free solver: where nothing privileged is told, whatever the cost, so that
    its absence says nothing; None out of budget."""
    line: tuple[str, ...] | None
    """One way to the goal, by best actions: in unit moves an optimal one. In Minesweeper what the
    peek-free solver does to the end. None where the cost is infinite or unknown, where following
    it took too long, or nobody asked."""
    teacher: Mapping[str, float] | None
    """Soft-optimal probability of each scored action; None in a decided game, where a cost is
    unknown, or nobody asked."""
    mine_probabilities: MineProbabilities | None
    """Minesweeper, from what is open and the number of mines alone; None in other games, in a lost
    one, on boards above the solver's 64 cells, and where its search ran out of budget."""


class Analyst(Protocol):
    """Analyses boards, somewhere. Belongs to one event loop."""

    async def analyse(
        self,
        game: str,
        boards: Sequence[str],
        *,
        privileged: bool = True,
        temperature: float | None = None,
        with_line: bool = False,
    ) -> Sequence[Analysis]:
        """Return one analysis a board, in their order.

        Args:
            game: name of the game.
            boards: texts of ``Game.encode``, at least one, all of one layout.
            privileged: whether Minesweeper's true board may be looked at; other games have nothing
                to hide, and it changes nothing there.
            temperature: of the soft-optimal teacher, in the game's moves, > 0; None = not asked.
            with_line: whether to follow the best actions to the goal.

        Raises:
            PuzzleError: a board is broken, or of another layout than the first.
            ConfigError: there is no such game.
            RemoteTimeout: no answer in time.
            ActorLostError: whoever answers is gone for good.
        """
        ...

    async def analyse_visible(self, rows: Sequence[str], num_mines: int) -> Analysis:
        """Return what a Minesweeper board says by what is seen of it alone: nothing privileged.

        Args:
            rows: ``.`` hidden, ``F`` flag, ``0`` to ``8`` open; flags are no evidence.
            num_mines: mines of the whole board.

        Raises:
            PuzzleError: the rows are no board, or no layout agrees with them.
            RemoteTimeout, ActorLostError: as in ``analyse``.
        """
        ...

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier, as ``Game.encode`` writes it; equal seeds, equal boards.

        Raises:
            PuzzleError: the generator found none.
            ConfigError: there is no such game or tier.
            RemoteTimeout, ActorLostError: as in ``analyse``.
        """
        ...


_WITHOUT_MINES = str.maketrans("+f", ".F")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleBoard:
    """One state, without what is hidden from the player."""

    rows: tuple[str, ...]
    """One text a row: Sokoban's and Rush Hour's symbols; Minesweeper's ``. F 0-8 *``, never the
    layout; of any other game the lines of ``text``."""
    text: str
    """What the policy sees (``Game.observe``)."""
    mines: tuple[tuple[int, int], ...] | None
    """Minesweeper: (row, column) of every mine, once the game is over; None before, and in other
    games."""


def visible_board(game: Game[Any], state: Any, *, is_over: bool) -> VisibleBoard:
    """Return what may be shown of a state.

    Args:
        game: the rules. Any: each game has a state type of its own.
        state: of that game.
        is_over: whether the episode has ended, by the rules or otherwise: nothing is hidden then.
    """
    text = game.observe(state)
    mines = None
    if game.name == Minesweeper.name:
        rows = game.encode(state).translate(_WITHOUT_MINES).split("\n")
        mines = _mines(state) if is_over else None
    elif game.name == RushHour.name:
        line = game.encode(state)
        rows = [line[start : start + SIDE] for start in range(0, len(line), SIDE)]
    elif game.name == Sokoban.name:
        rows = game.encode(state).split("\n")
    else:
        rows = text.split("\n")
    return VisibleBoard(rows=tuple(rows), text=text, mines=mines)


def _mines(state: MinesweeperState) -> tuple[tuple[int, int], ...]:
    layout = state.layout
    return tuple(divmod(cell, layout.cols) for cell in members(layout.mines))
