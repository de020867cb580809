"""A board as a player may see it: rows of symbols for a drawing, and the policy's own text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cast_ray.games.base import Game
from cast_ray.games.grid import members
from cast_ray.games.minesweeper import Minesweeper, MinesweeperState
from cast_ray.games.rush_hour import RushHour
from cast_ray.games.rush_hour_board import SIDE
from cast_ray.games.sokoban import Sokoban

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
