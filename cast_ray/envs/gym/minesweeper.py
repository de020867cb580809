"""Minesweeper in arrays: 0 to 8 an open cell with its number, then hidden, flag, hit mine.

Actions are the reveal of each cell, row by row, then the flag of each cell, row by row. What lies
under the hidden cells is in a separate array, which no observation shares.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from cast_ray.envs.gym.numeric import CHANGED, ILLEGAL, LOST_GAME, PLAYING, WON, NumericRules
from cast_ray.games.game import Tier
from cast_ray.games.minesweeper import Minesweeper, MinesweeperState

HIDDEN, FLAG, MINE = 9, 10, 11
_WRITTEN = np.frombuffer(b"012345678.f*012345678+F*", np.uint8).reshape(2, 12)
"""How ``Game.encode`` writes a cell, by whether it holds a mine and by its number."""
_READ = np.zeros(128, np.uint8)
_READ[_WRITTEN] = range(12)
_GAME = Minesweeper()


def _size(state: MinesweeperState) -> tuple[int, int]:
    return state.layout.rows, state.layout.cols


def _actions(tier: Tier) -> tuple[str, ...]:
    return tuple(
        f"{verb} {row} {col}"
        for verb in ("reveal", "flag")
        for row in range(tier.rows)
        for col in range(tier.cols)
    )


def _load(state: MinesweeperState, tier: Tier) -> tuple[np.ndarray, ...]:
    """Return cells, mask, ``[rows, cols]`` uint8 number or ``MINE`` under each cell, and ``[1]``
    int64 safe cells not yet open.
    """
    cells = _numbers(state)
    under = _numbers(replace(state, revealed=(1 << cells.size) - 1, flags=0))
    mask = np.empty(2 * cells.size, np.int8)
    _fill_mask(cells, mask)
    safe_left = np.sum((cells >= HIDDEN) & (under != MINE))
    return cells, mask, under, np.array((safe_left,), np.int64)


def _numbers(state: MinesweeperState) -> np.ndarray:
    """Return ``[rows, cols]`` uint8 what the cells show."""
    text = _GAME.encode(state).replace("\n", "").encode()
    return _READ[np.frombuffer(text, np.uint8)].reshape(_size(state))


def _board(arrays: tuple[np.ndarray, ...]) -> str:
    cells, _, under, _ = arrays
    return "\n".join(row.tobytes().decode() for row in _WRITTEN[(under == MINE) * 1, cells])


@njit(cache=True)
def _fill_mask(cells: np.ndarray, mask: np.ndarray) -> None:
    """Write which reveals and flags the rules allow."""
    flat = cells.ravel()
    for cell in range(len(flat)):
        mask[cell] = flat[cell] == HIDDEN
        mask[len(flat) + cell] = flat[cell] == HIDDEN or flat[cell] == FLAG


@njit(cache=True)
def _open(cells: np.ndarray, under: np.ndarray, first: int) -> int:
    """Open a cell, and around every 0 its hidden neighbours; return how many were opened."""
    rows, cols = cells.shape
    stack = np.empty(rows * cols, np.int64)
    stack[0] = first
    cells[first // cols, first % cols] = under[first // cols, first % cols]
    waiting, opened = 1, 1
    while waiting:
        waiting -= 1
        row, col = divmod(stack[waiting], cols)
        if cells[row, col] != 0:
            continue
        for near_row in range(max(row - 1, 0), min(row + 2, rows)):
            for near_col in range(max(col - 1, 0), min(col + 2, cols)):
                if cells[near_row, near_col] != HIDDEN:
                    continue
                cells[near_row, near_col] = under[near_row, near_col]
                stack[waiting] = near_row * cols + near_col
                waiting += 1
                opened += 1
    return opened


@njit(cache=True)
def _play(
    action: int, cells: np.ndarray, mask: np.ndarray, under: np.ndarray, safe_left: np.ndarray
) -> int:
    """Reveal a cell or turn its flag, if the mask allows it.

    ``under`` ``[rows, cols]`` uint8: number or ``MINE`` of each cell; ``safe_left`` ``[1]`` int64:
    safe cells not yet open.
    """
    if mask[action] == 0:
        return ILLEGAL + PLAYING
    row, col = divmod(action % cells.size, cells.shape[1])
    status = PLAYING
    if action >= cells.size:
        cells[row, col] = HIDDEN if cells[row, col] == FLAG else FLAG
    elif under[row, col] == MINE:
        cells[row, col] = MINE
        status = LOST_GAME
    else:
        safe_left[0] -= _open(cells, under, action)
        status = WON if safe_left[0] == 0 else PLAYING
    if status == PLAYING:
        _fill_mask(cells, mask)
    else:
        mask[:] = 0  # a decided game allows nothing more
    return CHANGED + status


MINESWEEPER_RULES: NumericRules[MinesweeperState] = NumericRules(
    size=_size,
    num_symbols=lambda tier: MINE + 1,
    actions=_actions,
    load=_load,
    play=_play,
    board=_board,
)
