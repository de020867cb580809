"""Rush Hour states as numbers, for searches: what is where as bits, and the slides that fit.

Letters: ``V`` vehicles, in the order of the layout. A set of cells is a number with a bit for each
cell. A state is a *key*: 3 bits of offset for each vehicle, the red car in the lowest. 21 vehicles
take 63 bits, so a key is never negative. All are signed, because numba makes a float of a signed
and an unsigned number; the 64th cell of the largest board is the sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from cast_ray.games.rush_hour import RushHourLayout, RushHourState
from cast_ray.games.rush_hour_board import LENGTHS, MAX_SIDE, MAX_VEHICLES

MAX_SLIDES = MAX_VEHICLES * (MAX_SIDE - min(LENGTHS))
"""More slides than fit in any state."""
NO_KEY = -1
NO_VEHICLE = -1


class Geometry(NamedTuple):
    """A layout as the kernels read it. No dataclass: numba knows named tuples only."""

    lengths: np.ndarray
    """``[V]`` int64 cells."""
    sides: np.ndarray
    """``[V]`` int64 cells of the vehicle's line."""
    line_bits: np.ndarray
    """``[V, 8]`` int64 bit of each cell of the vehicle's line."""
    bodies: np.ndarray
    """``[V, 7]`` int64 cells that the vehicle covers at each offset."""
    walls: int
    """Cells."""
    exit_row: int


@lru_cache(maxsize=256)
def geometry_of(layout: RushHourLayout) -> Geometry:
    """Return the geometry of a layout; its arrays are shared and must not be written to."""
    walls = np.packbits(np.frombuffer(layout.walls, np.uint8), bitorder="little")
    return make_geometry(
        np.array(layout.are_vertical),
        np.array(layout.lengths),
        np.array(layout.lines),
        int.from_bytes(walls.tobytes().ljust(8, b"\0"), "little", signed=True),
        layout.rows,
        layout.cols,
    )


def keys_of(states: Sequence[RushHourState], num_vehicles: int) -> np.ndarray:
    """Return ``[len(states)]`` int64 keys of states that have ``V = num_vehicles``."""
    offsets = np.array([state.offsets for state in states], np.int64)
    return offsets.reshape(len(states), num_vehicles) @ (1 << (3 * np.arange(num_vehicles)))


@njit(cache=True)
def make_geometry(
    are_vertical: np.ndarray,
    lengths: np.ndarray,
    lines: np.ndarray,
    walls: int,
    rows: int,
    cols: int,
) -> Geometry:
    """Return the geometry of vehicles given by their orientation, length and line, ``[V]`` each."""
    sides = np.where(are_vertical, rows, cols)
    line_bits = np.zeros((len(lengths), MAX_SIDE), np.int64)
    bodies = np.zeros((len(lengths), MAX_SIDE - 1), np.int64)
    for vehicle in range(len(lengths)):
        for place in range(sides[vehicle]):
            row, col = (place, lines[vehicle]) if are_vertical[vehicle] else (lines[vehicle], place)
            line_bits[vehicle, place] = 1 << (row * cols + col)
        for offset in range(sides[vehicle] - lengths[vehicle] + 1):
            for place in range(offset, offset + lengths[vehicle]):
                bodies[vehicle, offset] |= line_bits[vehicle, place]
    return Geometry(lengths, sides, line_bits, bodies, walls, lines[0])


@njit(cache=True)
def offset_of(key: int, vehicle: int) -> int:
    """Return the offset of one vehicle."""
    return (key >> (3 * vehicle)) & 7


@njit(cache=True)
def is_won(key: int, geometry: Geometry) -> bool:
    """Return whether the red car touches the right edge."""
    return offset_of(key, 0) + geometry.lengths[0] == geometry.sides[0]


@njit(cache=True)
def occupied_cells(key: int, geometry: Geometry) -> int:
    """Return the cells that hold a vehicle or a wall."""
    occupied = geometry.walls
    for vehicle in range(len(geometry.lengths)):
        occupied |= geometry.bodies[vehicle, offset_of(key, vehicle)]
    return occupied


@njit(cache=True)
def write_slides(
    key: int, geometry: Geometry, resting: int, after: np.ndarray, movers: np.ndarray
) -> int:
    """Write down the states after all slides that fit, and return how many these are.

    Args:
        key: the state before.
        geometry: its layout.
        resting: a vehicle whose slides are left out, or ``NO_VEHICLE``.
        after: ``[MAX_SLIDES]`` int64, gets the keys.
        movers: ``[MAX_SLIDES]`` int8, gets the vehicle of each slide.
    """
    lengths, sides, line_bits = geometry.lengths, geometry.sides, geometry.line_bits
    occupied = occupied_cells(key, geometry)
    count = 0
    for vehicle in range(len(lengths)):
        if vehicle == resting:
            continue
        offset = offset_of(key, vehicle)
        slid = key
        for place in range(offset - 1, -1, -1):
            if occupied & line_bits[vehicle, place]:
                break
            slid -= 1 << (3 * vehicle)
            after[count], movers[count] = slid, vehicle
            count += 1
        slid = key
        for place in range(offset + lengths[vehicle], sides[vehicle]):
            if occupied & line_bits[vehicle, place]:
                break
            slid += 1 << (3 * vehicle)
            after[count], movers[count] = slid, vehicle
            count += 1
    return count


@njit(cache=True)
def first_slot(slots: np.ndarray, key: int) -> int:
    """Return where in ``slots``, ``[a power of two]``, a key belongs."""
    # The odd factor mixes the low bits into the high ones.
    return ((key * 0x1E3779B97F4A7C15) >> 32) & (len(slots) - 1)


@njit(cache=True)
def find_slot(slots: np.ndarray, key: int) -> int:
    """Return where a key stands in an open-addressing hash, or the free slot where it would.

    Args:
        slots: ``[a power of two]`` int64 keys, ``NO_KEY`` where free; at least one is.
        key: what is looked for.
    """
    slot = first_slot(slots, key)
    while slots[slot] != key and slots[slot] != NO_KEY:
        slot = (slot + 1) & (len(slots) - 1)
    return slot
