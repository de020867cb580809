"""Random Rush Hour boards; a bounded search discards most that are outside of the tier's range.

The red car is put on a random place in its row, then each other vehicle on a random free place. Few
such boards are hard enough (1.5% of the 7-vehicle boards need 6 to 8 slides, 2.4% of the 9-vehicle
boards 7 to 9). Discarding the others here does not change the distribution; it only saves the
caller's exact search.
"""

from __future__ import annotations

from functools import lru_cache
from string import ascii_uppercase
from typing import NamedTuple

import numpy as np
from numba import njit

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Tier
from cast_ray.games.rush_hour import RushHourLayout, RushHourState
from cast_ray.games.rush_hour_board import EXIT_ROW, SIDE, Place, all_places
from cast_ray.games.rush_hour_keys import (
    MAX_SLIDES,
    NO_KEY,
    NO_VEHICLE,
    Geometry,
    find_slot,
    geometry_of,
    is_won,
    keys_of,
    make_geometry,
    write_slides,
)

MAX_BOARDS = 100_000
MAX_DRAWS = 1_000
"""Draws of vehicles for one board before it counts as full."""
MAX_STATES = 1 << 14
"""States of one search. A board with more (one in 500 with 9 vehicles) is returned unchecked."""
RED_LENGTH = 2

_NONE, _UNDECIDED = -1, -2


class _Places(NamedTuple):
    """Where a vehicle can stand, ``[P]`` each. No dataclass: numba knows named tuples only."""

    are_vertical: np.ndarray
    lengths: np.ndarray
    lines: np.ndarray
    offsets: np.ndarray
    bodies: np.ndarray
    """Bits of the cells."""
    num_red: int
    """The first places are those of a red car that has not won."""
    rows: int
    cols: int


def generate_rush_hour(tier: Tier, rng: np.random.Generator) -> RushHourState:
    """Return a random board without walls whose cost, as far as known, is in the tier's range.

    Args:
        tier: gives the size, the number of vehicles, the red car included, and the range of N. A
            board whose search ended early may lie outside.
        rng: the only source of randomness.

    Raises:
        PuzzleError: no board of this tier came up.
    """
    places = _places_of(tier.rows, tier.cols)
    chosen = _search_board(rng, places, tier.num_pieces, tier.min_cost, tier.max_cost)
    if not len(chosen):
        raise PuzzleError(
            f"tier {tier.name}: no Rush Hour board with {tier.num_pieces} vehicles that needs "
            f"{tier.min_cost} to {tier.max_cost} slides came up in {MAX_BOARDS} tries: "
            "change the number of vehicles or the range"
        )
    layout = RushHourLayout(
        rows=tier.rows,
        cols=tier.cols,
        walls=bytes(tier.rows * tier.cols),
        letters=ascii_uppercase[: tier.num_pieces],
        are_vertical=tuple(places.are_vertical[chosen].tolist()),
        lengths=tuple(places.lengths[chosen].tolist()),
        lines=tuple(places.lines[chosen].tolist()),
    )
    return RushHourState(layout=layout, offsets=tuple(places.offsets[chosen].tolist()))


def is_rush_hour_winnable(state: RushHourState, turns: int) -> bool:
    """Return whether a short search finds a win within ``turns`` slides."""
    key = int(keys_of([state], len(state.offsets))[0])
    return bool(_look_ahead(key, geometry_of(state.layout), turns) >= 0)


@lru_cache(maxsize=8)
def _places_of(rows: int, cols: int) -> _Places:
    """Return all places, those of a red car that has not won in front."""
    exit_row = EXIT_ROW if (rows, cols) == (SIDE, SIDE) else (rows - 1) // 2
    reds = [Place(False, RED_LENGTH, exit_row, offset) for offset in range(cols - RED_LENGTH)]
    of_cells = all_places(rows, cols)
    ordered = sorted(of_cells, key=lambda cells: of_cells[cells] not in reds)
    are_vertical, lengths, lines, offsets = map(
        np.array, zip(*(of_cells[cells] for cells in ordered), strict=True)
    )
    bodies = np.array([sum(1 << cell for cell in cells) for cells in ordered], np.uint64)
    signed = bodies.view(np.int64)  # as rush_hour_keys has them
    return _Places(are_vertical, lengths, lines, offsets, signed, len(reds), rows, cols)


@njit(cache=True)
def _search_board(
    rng: np.random.Generator, places: _Places, num_vehicles: int, min_cost: int, max_cost: int
) -> np.ndarray:
    """Return the places, ``[V]``, of the first board that may be in range; ``[0]`` without one."""
    for _ in range(MAX_BOARDS):
        chosen = _draw_board(rng, places, num_vehicles)
        if len(chosen) < num_vehicles:
            continue
        geometry = make_geometry(
            places.are_vertical[chosen],
            places.lengths[chosen],
            places.lines[chosen],
            0,
            places.rows,
            places.cols,
        )
        key = 0
        for vehicle in range(num_vehicles):
            key |= int(places.offsets[chosen[vehicle]]) << (3 * vehicle)
        cost = _look_ahead(key, geometry, max_cost)
        if cost == _UNDECIDED or min_cost <= cost <= max_cost:
            return chosen
    return np.empty(0, np.int64)


@njit(cache=True)
def _draw_board(rng: np.random.Generator, places: _Places, num_vehicles: int) -> np.ndarray:
    """Return ``[V]`` random places that do not overlap, the red car's first; ``[0]`` if full.

    In front of the red car no vehicle lies on its row: that one could never get out of the way.
    """
    chosen = np.empty(num_vehicles, np.int64)
    chosen[0] = rng.integers(0, places.num_red)
    exit_row = places.lines[chosen[0]]
    occupied = places.bodies[chosen[0]]
    count = 1
    for _ in range(MAX_DRAWS):
        if count == num_vehicles:
            return chosen
        place = rng.integers(0, len(places.bodies))
        is_on_row = not places.are_vertical[place] and places.lines[place] == exit_row
        is_in_front = is_on_row and places.offsets[place] > places.offsets[chosen[0]]
        if not is_in_front and not occupied & places.bodies[place]:
            chosen[count] = place
            occupied |= places.bodies[place]
            count += 1
    return chosen[:0]


@njit(cache=True)
def _look_ahead(start: int, geometry: Geometry, max_slides: int) -> int:
    """Return N of a state if it is at most ``max_slides``, ``_NONE`` if it is larger or infinite.

    Breadth first; ``_UNDECIDED`` once ``MAX_STATES`` states were seen without an answer.
    """
    slots = np.full(2 * MAX_STATES, NO_KEY)
    queue = np.empty(MAX_STATES, np.int64)
    moved = np.empty(MAX_STATES, np.int8)  # further slides of the same vehicle lead nowhere new
    after = np.empty(MAX_SLIDES, np.int64)
    movers = np.empty(MAX_SLIDES, np.int8)
    slots[find_slot(slots, start)] = start
    queue[0], moved[0] = start, NO_VEHICLE
    head, length = 0, 1
    for cost in range(1, max_slides + 1):
        level_end = length
        while head < level_end:
            count = write_slides(queue[head], geometry, moved[head], after, movers)
            head += 1
            for i in range(count):
                slot = find_slot(slots, after[i])
                if slots[slot] != NO_KEY:
                    continue
                if is_won(after[i], geometry):
                    return cost
                if length == MAX_STATES:
                    return _UNDECIDED
                slots[slot] = after[i]
                queue[length], moved[length] = after[i], movers[i]
                length += 1
    return _NONE
