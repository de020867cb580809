"""Rush Hour solved completely: one table of N for all states that slides reach from a state.

What never changes, walls and the vehicles' orientations, lengths and lines, is the layout. Slides
can be taken back, so the states of a layout fall into components that never meet, and in each
either all states can be solved or none. Each component has its own table, made when a state of
it is asked for. ``S`` slots: a power of two, at least twice the states of the component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from cast_ray.games.rush_hour import RushHour, RushHourLayout, RushHourState
from cast_ray.games.rush_hour_keys import (
    MAX_SLIDES,
    NO_KEY,
    NO_VEHICLE,
    Geometry,
    find_slot,
    geometry_of,
    is_won,
    keys_of,
    occupied_cells,
    offset_of,
    write_slides,
)
from solver_actors.rush_hour.search import MAX_LENGTH, Outcome, shortest_length
from solver_actors.solver import UnitMoveSolver, check_layout

DEFAULT_STATE_CAP = 1_000_000
DEFAULT_NODE_BUDGET = 200_000
DEAD = -1
TOO_LARGE = -2
"""The component has more states than the cap."""
ABSENT = -3
"""No table holds the state."""

_FIRST_SLOTS = 1 << 12
_RUSH_HOUR = RushHour()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RushHourTable:
    """N of every state of one component, in read-only arrays that pickle without a copy.

    Of a component above the cap it holds the states that were met before it was given up, so that
    these are known to belong to it.
    """

    slots: np.ndarray
    """``[S]`` int64 keys of the states, an open-addressing hash; ``NO_KEY`` where free."""
    costs: np.ndarray
    """``[S]`` int16 N, or ``DEAD`` or ``TOO_LARGE`` everywhere."""

    @property
    def num_states(self) -> int:
        """Return how many states it holds."""
        return int((self.slots != NO_KEY).sum())

    @property
    def memory_bytes(self) -> int:
        """Return the size of both arrays."""
        return self.slots.nbytes + self.costs.nbytes


def build_table(state: RushHourState, *, state_cap: int = DEFAULT_STATE_CAP) -> RushHourTable:
    """Return the table of the component that a state belongs to.

    Args:
        state: any state of the component.
        state_cap: most states for which N is worked out.
    """
    geometry = geometry_of(state.layout)
    slots, is_whole = _explore(keys_of([state], len(state.offsets))[0], geometry, state_cap)
    if is_whole:
        costs = _reverse_search(slots, geometry)
    else:
        costs = np.full(len(slots), TOO_LARGE, np.int16)
    slots.setflags(write=False)
    costs.setflags(write=False)
    return RushHourTable(slots=slots, costs=costs)


class RushHourSolver(UnitMoveSolver[RushHourState]):
    """Looks up costs and actions in the tables of one layout, and makes those that are missing.

    Where a component is above the cap it searches each state separately; then N may come out
    unknown.
    """

    game = _RUSH_HOUR

    def __init__(
        self,
        layout: RushHourLayout,
        *,
        state_cap: int = DEFAULT_STATE_CAP,
        node_budget: int = DEFAULT_NODE_BUDGET,
    ) -> None:
        """Set up a solver without any table yet.

        Args:
            layout: what its states have in common.
            state_cap: most states of a component that gets a table.
            node_budget: most states that the search for one N visits.
        """
        self._layout = layout
        self._state_cap = state_cap
        self._node_budget = node_budget
        self.tables: list[RushHourTable] = []

    @property
    def memory_bytes(self) -> int:
        """Return the size of the tables made so far."""
        return sum(table.memory_bytes for table in self.tables)

    def cost_to_go(self, states: Sequence[RushHourState]) -> np.ndarray:
        """Return ``[len(states)]`` float64 N in slides; inf = dead, NaN = unknown.

        NaN comes up in components above the cap alone; inf is proven there as everywhere.

        Raises:
            ValueError: a state belongs to another layout.
        """
        found = self._look_up(states)
        costs = np.where(found == DEAD, np.inf, found)
        for i in np.flatnonzero(found == TOO_LARGE):
            costs[i] = self._searched_cost(states[i])
        return costs

    def action_costs(self, state: RushHourState) -> dict[str, float]:
        """Return N after each slide that fits: by letter, - before +, shorter first."""
        self._look_up([state])  # makes the table that is missing
        found = self._look_up_slides(state)
        if (found == TOO_LARGE).any() or (found == ABSENT).any():
            return super().action_costs(state)
        costs = np.where(found == DEAD, np.inf, found).tolist()
        return dict(zip(_RUSH_HOUR.scored_actions(state), costs, strict=True))

    def _look_up(self, states: Sequence[RushHourState]) -> np.ndarray:
        """Return ``[n]`` int16 N, ``DEAD`` or ``TOO_LARGE``; make the tables that are missing."""
        check_layout(_RUSH_HOUR, self._layout, states)
        keys = keys_of(states, len(self._layout.letters))
        found = np.full(len(states), ABSENT, np.int16)
        for table in self.tables:
            _look_up(table.slots, table.costs, keys, found)
        while (absent := np.flatnonzero(found == ABSENT)).size:
            table = build_table(states[absent[0]], state_cap=self._state_cap)
            self.tables.append(table)
            _look_up(table.slots, table.costs, keys, found)
        return found

    def _look_up_slides(self, state: RushHourState) -> np.ndarray:
        """Return ``[n]`` int16 N, ``DEAD``, ``TOO_LARGE`` or ``ABSENT`` after all slides that fit.

        The kernel makes the slides in the order of ``RushHour.scored_actions``, at a tenth of the
        time that the rules take.
        """
        after, movers = np.empty(MAX_SLIDES, np.int64), np.empty(MAX_SLIDES, np.int8)
        key = int(keys_of([state], len(state.offsets))[0])
        count = write_slides(key, geometry_of(self._layout), NO_VEHICLE, after, movers)
        found = np.full(count, ABSENT, np.int16)
        for table in self.tables:
            _look_up(table.slots, table.costs, after[:count], found)
        return found

    def _searched_cost(self, state: RushHourState) -> float:
        """Return N, inf or NaN without a table."""
        result = shortest_length(state, max_length=MAX_LENGTH, node_budget=self._node_budget)
        if result.outcome is Outcome.EXACT:
            return result.length
        return np.inf if result.outcome is Outcome.DEAD else np.nan


def solve_rush_hour(state: RushHourState) -> RushHourSolver:
    """Return the solver of a state's layout, with the table of the state's component."""
    solver = RushHourSolver(state.layout)
    solver.cost_to_go([state])
    return solver


@njit(cache=True)
def _explore(start: int, geometry: Geometry, state_cap: int) -> tuple[np.ndarray, bool]:
    """Return a hash of all states in reach, and whether these are all.

    It ends early, with some of them, the start among these, once there are more than the cap.
    """
    lengths, sides, line_bits = geometry.lengths, geometry.sides, geometry.line_bits
    slots = np.full(_FIRST_SLOTS, NO_KEY)
    queue = np.empty(_FIRST_SLOTS // 2, np.int64)
    slots[find_slot(slots, start)] = start
    queue[0] = start
    head, length = 0, 1
    while head < length and length <= state_cap:
        key = queue[head]
        head += 1
        if length + 2 * len(lengths) > len(queue):
            slots, queue = _enlarged(queue[:length])
        occupied = occupied_cells(key, geometry)
        for vehicle in range(len(lengths)):
            offset = offset_of(key, vehicle)
            # Slides of one cell: longer ones are made of these and reach nothing else.
            for step, place in ((-1, offset - 1), (1, offset + lengths[vehicle])):
                if not 0 <= place < sides[vehicle] or occupied & line_bits[vehicle, place]:
                    continue
                after = key + (step << (3 * vehicle))
                slot = find_slot(slots, after)
                if slots[slot] == NO_KEY:
                    slots[slot] = queue[length] = after
                    length += 1
    return slots, length <= state_cap


@njit(cache=True)
def _enlarged(queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash and a queue with four times the room."""
    size = _FIRST_SLOTS
    while size < 4 * len(queue):
        size *= 2
    slots = np.full(2 * size, NO_KEY)
    larger = np.empty(size, np.int64)
    larger[: len(queue)] = queue
    for key in queue:
        slots[find_slot(slots, key)] = key
    return slots, larger


@njit(cache=True)
def _reverse_search(slots: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Return ``[S]`` int16 N by breadth-first search from every solved state of a component.

    Slides can be taken back, so the search backwards makes the same slides as one forwards.
    """
    after = np.empty(MAX_SLIDES, np.int64)
    movers = np.empty(MAX_SLIDES, np.int8)
    costs = np.full(len(slots), DEAD, np.int16)
    queue = np.empty(len(slots), np.int32)
    came_by = np.full(len(slots), NO_VEHICLE, np.int8)
    length = 0
    for slot in range(len(slots)):
        if slots[slot] != NO_KEY and is_won(slots[slot], geometry):
            costs[slot] = 0
            queue[length] = slot
            length += 1
    head = 0
    while head < length:
        cost = costs[queue[head]] + 1
        # Other slides of the vehicle that led here lead to states found before.
        count = write_slides(int(slots[queue[head]]), geometry, came_by[head], after, movers)
        head += 1
        for i in range(count):
            slot = find_slot(slots, after[i])
            if costs[slot] == DEAD:
                costs[slot] = cost
                queue[length] = slot
                came_by[length] = movers[i]
                length += 1
    return costs


@njit(cache=True)
def _look_up(slots: np.ndarray, costs: np.ndarray, keys: np.ndarray, found: np.ndarray) -> None:
    """Write into ``found`` the costs of those ``keys`` that the table holds, ``[n]`` both."""
    for i in range(len(keys)):
        slot = find_slot(slots, keys[i])
        if slots[slot] == keys[i]:
            found[i] = costs[slot]
