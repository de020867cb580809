"""An analyst that answers here what is quick, and lets actors answer the rest.

A call of an actor costs more processor time than looking up a state in a table that is there. But a
board that somebody sent may take a search of seconds, which would stop everything else in this
process: so every layout is asked about in an actor first, and only one that was quick there is
solved here from then on.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from cast_ray.analysis import Analysis, Analyst
from cast_ray.games import get_game
from solver_actors.analyst import analyse
from solver_actors.oracle import Oracle
from solver_actors.solvers import get_solver_entry

GAMES = frozenset({"sokoban", "rush_hour"})
"""Whose states are entries of a table where the layout is small. Minesweeper searches each anew."""
QUICK_S = 0.03
"""A first answer from an actor that took no longer, its journey included, was no search."""
_MAX_LAYOUTS = 4096
_MAX_BOARDS = 4
"""More at once go to an actor."""


class NearAnalyst:
    """Is an ``Analyst``. Belongs to one event loop."""

    def __init__(self, far: Analyst, *, max_bytes: int) -> None:
        """Start without any solver.

        Args:
            far: asked about what is not known to be quick.
            max_bytes: most bytes of solvers that are kept here.
        """
        self._far = far
        self._oracle = Oracle(max_bytes=max_bytes)
        self._quick: OrderedDict[tuple[str, Hashable], None] = OrderedDict()

    async def analyse(
        self,
        game: str,
        boards: Sequence[str],
        *,
        privileged: bool = True,
        temperature: float | None = None,
        with_line: bool = False,
    ) -> Sequence[Analysis]:
        """Return one analysis a board; see ``Analyst``."""
        is_small = game in GAMES and not with_line and len(boards) <= _MAX_BOARDS
        key = (game, get_solver_entry(game).layout_key(get_game(game).decode(boards[0])))
        started = time.perf_counter()
        if is_small and key in self._quick:
            self._quick.move_to_end(key)
            found = analyse(
                self._oracle, game, boards, privileged=privileged, temperature=temperature
            )
            if time.perf_counter() - started > QUICK_S:
                del self._quick[key]
            return found
        found = await self._far.analyse(
            game, boards, privileged=privileged, temperature=temperature, with_line=with_line
        )
        if is_small and time.perf_counter() - started <= QUICK_S:
            self._quick[key] = None
            if len(self._quick) > _MAX_LAYOUTS:
                self._quick.popitem(last=False)
        return found

    async def analyse_visible(self, rows: Sequence[str], num_mines: int) -> Analysis:
        """Return what a Minesweeper board says by what is seen of it; see ``Analyst``."""
        return await self._far.analyse_visible(rows, num_mines)

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier; see ``Analyst``."""
        return await self._far.new_board(game, tier, seed)
