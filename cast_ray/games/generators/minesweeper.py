"""Minesweeper boards: a random first click, and mines anywhere except around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Status, Tier
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.minesweeper_board import MinesweeperState, start_state

MAX_BOARDS = 1_000
_MINESWEEPER = Minesweeper()


def generate_minesweeper(tier: Tier, rng: np.random.Generator) -> MinesweeperState:
    """Return a random board after its first click, which does not win it already.

    The click is uniform over all cells, the mines are uniform over the cells outside the 3 x 3
    zone around it. Boards on which the solver must guess are kept.

    Args:
        tier: gives the size and the number of mines; its cost range is ignored.
        rng: the only source of randomness.

    Raises:
        PuzzleError: the tier leaves no space for its mines, or every click wins.
    """
    largest_zone = min(tier.rows, 3) * min(tier.cols, 3)
    if tier.num_pieces > tier.rows * tier.cols - largest_zone:
        raise PuzzleError(
            f"tier {tier.name}: {tier.num_pieces} mines do not fit on {tier.rows} x {tier.cols} "
            "cells outside the 3 x 3 zone around the first click: use fewer or enlarge the board"
        )
    for _ in range(MAX_BOARDS):
        click_row, click_col = divmod(int(rng.integers(tier.rows * tier.cols)), tier.cols)
        allowed = [
            (row, col)
            for row in range(tier.rows)
            for col in range(tier.cols)
            if max(abs(row - click_row), abs(col - click_col)) > 1
        ]
        chosen = rng.choice(len(allowed), size=tier.num_pieces, replace=False).tolist()
        state = start_state(
            tier.rows,
            tier.cols,
            mines=[allowed[place] for place in chosen],
            first_click=(click_row, click_col),
        )
        if _MINESWEEPER.status(state) is Status.PLAYING:
            return state
    raise PuzzleError(
        f"tier {tier.name}: the first click won each of {MAX_BOARDS} boards of {tier.rows} x "
        f"{tier.cols} cells with {tier.num_pieces} mines: use more mines"
    )


def is_minesweeper_winnable(state: MinesweeperState, turns: int) -> bool:
    """Return whether a player who knows the mines needs no more reveals than there are turns."""
    rows, cols, mines = state.layout.rows, state.layout.cols, state.layout.mines
    safe = [cell for cell in range(rows * cols) if not mines >> cell & 1]
    if len(safe) - state.revealed.bit_count() <= turns:
        return True
    # Whole areas first: a cell that opens one is a reveal less for each cell of it.
    everything = replace(state, revealed=(1 << rows * cols) - 1 & ~mines, flags=0)
    shown = "".join(_MINESWEEPER.visible_rows(everything))
    needed = 0
    for cell in sorted(safe, key=lambda cell: shown[cell] != "0"):
        if not state.revealed >> cell & 1:
            state = _MINESWEEPER.apply(state, "reveal {} {}".format(*divmod(cell, cols))).state
            needed += 1
    return needed <= turns
