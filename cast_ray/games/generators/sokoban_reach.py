"""Whether a room of Sokoban can be won within a number of steps: a search that needs no solver."""

from __future__ import annotations

import numpy as np
from numba import njit

from cast_ray.games.rush_hour_keys import NO_KEY, find_slot
from cast_ray.games.sokoban import SokobanState

MAX_STATES = 1 << 17
"""States of one search: more than any room of 7 x 7 cells with three boxes has."""


def is_sokoban_winnable(state: SokobanState, turns: int) -> bool:
    """Return whether a search of ``MAX_STATES`` states finds a win within ``turns`` steps."""
    layout = state.layout
    is_wall = np.frombuffer(layout.walls, np.uint8)
    is_target = np.zeros(len(is_wall), np.bool_)
    is_target[list(layout.targets)] = True
    start = np.array((state.player, *state.boxes), np.int64)
    return bool(_wins_within(is_wall, is_target, layout.cols, start, turns))


@njit(cache=True)
def _mixed(cell: int, is_box: bool) -> int:
    """Return random bits for a piece on a cell; those of all pieces together name a state."""
    bits = np.uint64(2 * cell + is_box + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((bits ^ (bits >> np.uint64(31))) >> np.uint64(1))  # never NO_KEY


@njit(cache=True)
def _wins_within(
    is_wall: np.ndarray, is_target: np.ndarray, cols: int, start: np.ndarray, turns: int
) -> bool:
    """Return whether a walled room is won in so many steps, as far as ``MAX_STATES`` states show.

    Breadth first. Two states of the same name would only hide a way, never invent one.

    Args:
        is_wall: ``[cells]``.
        is_target: ``[cells]``.
        cols: cells of a row.
        start: ``[1 + boxes]`` cells of the player and of the boxes.
        turns: steps.
    """
    states = np.empty((MAX_STATES, len(start)), np.int16)
    names = np.empty(MAX_STATES, np.int64)
    slots = np.full(2 * MAX_STATES, NO_KEY)
    states[0] = start
    names[0] = _mixed(start[0], False)
    for box in start[1:]:
        names[0] ^= _mixed(box, True)
    slots[find_slot(slots, names[0])] = names[0]
    head, length = 0, 1
    for _ in range(turns):
        level_end = length
        while head < level_end:
            player = int(states[head, 0])
            for step in (-cols, cols, -1, 1):
                ahead, behind = player + step, player + 2 * step
                if is_wall[ahead]:
                    continue
                pushed = 0
                for i in range(1, len(start)):
                    if states[head, i] == ahead:
                        pushed = i
                name = names[head] ^ _mixed(player, False) ^ _mixed(ahead, False)
                if pushed:
                    if is_wall[behind] or (states[head, 1:] == behind).any():
                        continue
                    name ^= _mixed(ahead, True) ^ _mixed(behind, True)
                slot = find_slot(slots, name)
                if slots[slot] == name:
                    continue
                if length == MAX_STATES:
                    return False
                slots[slot] = names[length] = name
                states[length] = states[head]
                states[length, 0] = ahead
                if pushed:
                    states[length, pushed] = behind
                    if is_target[behind]:
                        won = True
                        for box in states[length, 1:]:
                            won = won and is_target[box]
                        if won:
                            return True
                length += 1
            head += 1
    return False
