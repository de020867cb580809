"""Sokoban in arrays. A cell holds its index into ``SYMBOLS``; actions are ``ACTIONS`` in order.

A player adds 4 to the number of the cell below, a box adds 2.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from cast_ray.envs.gym.numeric import CHANGED, INEFFECTIVE, PLAYING, WON, NumericRules
from cast_ray.games.game import Tier
from cast_ray.games.sokoban import ACTIONS, SYMBOLS, SokobanState

FLOOR, TARGET, BOX, BOX_ON_TARGET = 1, 2, 3, 4
UNDER_BOX, UNDER_PLAYER = 2, 4
_SYMBOLS = np.frombuffer(SYMBOLS.encode(), np.uint8)


def _size(state: SokobanState) -> tuple[int, int]:
    return state.layout.rows, state.layout.cols


def _load(state: SokobanState, tier: Tier) -> tuple[np.ndarray, ...]:
    """Return cells, mask and ``[3]`` int64: the player's row and column, the boxes off target."""
    layout = state.layout
    cells = np.where(np.frombuffer(layout.walls, np.uint8), 0, FLOOR).astype(np.uint8)
    cells[list(layout.targets)] = TARGET
    cells[list(state.boxes)] += UNDER_BOX
    cells[state.player] += UNDER_PLAYER
    cells = cells.reshape(_size(state))
    mask = np.empty(len(ACTIONS), np.int8)
    row, col = divmod(state.player, layout.cols)
    _fill_mask(cells, mask, row, col)
    return cells, mask, np.array((row, col, np.sum(cells == BOX)), np.int64)


def _board(arrays: tuple[np.ndarray, ...]) -> str:
    return "\n".join(row.tobytes().decode() for row in _SYMBOLS[arrays[0]])


@njit(cache=True)
def _is_free(cells: np.ndarray, row: int, col: int) -> bool:
    rows, cols = cells.shape
    if row < 0 or row >= rows or col < 0 or col >= cols:
        return False
    return cells[row, col] in (FLOOR, TARGET)


@njit(cache=True)
def _step_of(action: int) -> tuple[int, int]:
    """Return the row and column step of Up, Down, Left, Right."""
    sign = 2 * (action & 1) - 1
    return (sign, 0) if action < 2 else (0, sign)


@njit(cache=True)
def _fill_mask(cells: np.ndarray, mask: np.ndarray, row: int, col: int) -> None:
    """Write which of the four actions change the state of a player at ``row``, ``col``."""
    rows, cols = cells.shape
    for action in range(4):
        down, right = _step_of(action)
        next_row, next_col = row + down, col + right
        mask[action] = 0
        if next_row < 0 or next_row >= rows or next_col < 0 or next_col >= cols:
            continue
        ahead = cells[next_row, next_col]
        if ahead in (FLOOR, TARGET):
            mask[action] = 1
        elif ahead in (BOX, BOX_ON_TARGET):
            mask[action] = _is_free(cells, next_row + down, next_col + right)


@njit(cache=True)
def _play(action: int, cells: np.ndarray, mask: np.ndarray, place: np.ndarray) -> int:
    """Move the player, if the mask says that something moves."""
    if mask[action] == 0:
        return INEFFECTIVE + PLAYING
    down, right = _step_of(action)
    cells[place[0], place[1]] -= UNDER_PLAYER
    place[0] += down
    place[1] += right
    row, col = place[0], place[1]
    if cells[row, col] >= BOX:
        place[2] -= cells[row, col] == BOX
        cells[row, col] -= UNDER_BOX
        cells[row + down, col + right] += UNDER_BOX
        place[2] += cells[row + down, col + right] == BOX
    cells[row, col] += UNDER_PLAYER
    _fill_mask(cells, mask, row, col)
    return CHANGED + (WON if place[2] == 0 else PLAYING)


SOKOBAN_RULES: NumericRules[SokobanState] = NumericRules(
    size=_size,
    num_symbols=lambda tier: len(SYMBOLS),
    actions=lambda tier: ACTIONS,
    load=_load,
    play=_play,
    board=_board,
)
