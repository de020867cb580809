"""Sokoban above the table's cap: each cost by a separate search, exact, infinite or unknown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from cast_ray.games.sokoban import ACTIONS, Sokoban, SokobanLayout, SokobanState
from solver_actors.sokoban.astar import DEAD, GAVE_UP, search
from solver_actors.sokoban.bounds import DEAD_BOUND, is_stuck, lower_bound, number_floor, survey
from solver_actors.solver import UnitMoveSolver, check_layout

DEFAULT_BUDGET_NODES = 500_000
MAX_BOXES = 256
"""With more, one exact assignment takes seconds: only deadlocks that need no search are found."""

_WORK_PER_NODE = 150
"""Floor cells and matrix entries that a node may read on average, in a microsecond or two. On a
large board, where a node reads more, this limit ends a search before the limit of nodes does."""
_MAX_NODE_BYTES = 128 << 20
_MEMO_BYTES = 16 << 20
_SOKOBAN = Sokoban()


class SokobanSearchSolver(UnitMoveSolver[SokobanState]):
    """Searches for costs in one layout and remembers them.

    A cost is exact or infinite only by proof; where the budget runs out first it is unknown. What
    was found on the way to another state stays known, so an unknown cost can become known later;
    an exact or infinite one never changes.
    """

    game = _SOKOBAN

    def __init__(self, layout: SokobanLayout, *, budget_nodes: int = DEFAULT_BUDGET_NODES) -> None:
        """Survey a layout.

        Args:
            layout: walls and targets, any number of both.
            budget_nodes: most positions that one search may hold, >= 1.

        Raises:
            ValueError: ``budget_nodes`` is below 1.
        """
        if budget_nodes < 1:
            raise ValueError(f"budget_nodes must be >= 1, got {budget_nodes}")
        num_boxes = len(layout.targets)
        self._layout = layout
        self._can_search = num_boxes <= MAX_BOXES
        self._floor_numbers = number_floor(layout)
        self._room = survey(layout, with_distances=self._can_search)
        self._max_nodes = min(budget_nodes, _MAX_NODE_BYTES // (4 * num_boxes + 64))
        self._max_work = budget_nodes * _WORK_PER_NODE
        # Two tuples, a float and the entry: 191 bytes measured with one box on a large board.
        self._entry_bytes = 200 + 12 * num_boxes
        self._known: OrderedDict[tuple[int, tuple[int, ...]], float] = OrderedDict()

    @property
    def memory_bytes(self) -> int:
        """Return the size of the room's arrays and, roughly, of all costs remembered so far."""
        arrays = (self._floor_numbers, *self._room)
        return sum(array.nbytes for array in arrays) + len(self._known) * self._entry_bytes

    def cost_to_go(self, states: Sequence[SokobanState]) -> np.ndarray:
        """Return ``[len(states)]`` float64 N in player steps; inf = proven dead, NaN = unknown.

        Raises:
            ValueError: a state belongs to another layout.
        """
        check_layout(_SOKOBAN, self._layout, states)
        return np.array([self._cost(state) for state in states], np.float64)

    def lower_bound(self, state: SokobanState) -> float:
        """Return a number of steps that N is not below; inf where a deadlock needs no search."""
        boxes = self._floor_numbers[np.array(state.boxes)]
        if self._can_search:
            bound = lower_bound(self._room, boxes)
            return np.inf if bound == DEAD_BOUND else float(bound)
        holds = np.zeros(len(self._room.neighbors), np.bool_)
        return np.inf if is_stuck(self._room, boxes, holds) else 0.0

    def known_action(self, state: SokobanState) -> str | None:
        """Return the first action that is remembered to lower N, without any search.

        After a cost was found there is one in every state up to the goal, unless the way is so long
        that its beginning is forgotten; None then.
        """
        cost = self._known.get((state.player, state.boxes))
        for action in _SOKOBAN.scored_actions(state) if cost is not None else ():
            after = _SOKOBAN.apply(state, action).state
            is_solved = after.boxes == self._layout.targets
            known = 0.0 if is_solved else self._known.get((after.player, after.boxes))
            if known is not None and known + 1 == cost:
                return action
        return None

    def _cost(self, state: SokobanState) -> float:
        """Return N from memory, or search for it."""
        key = (state.player, state.boxes)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        if state.boxes == self._layout.targets:
            return 0.0
        return self._search(state)

    def _search(self, state: SokobanState) -> float:
        """Search for N, remember it and that of every state on the way found."""
        bound = self.lower_bound(state)
        if np.isinf(bound):
            return np.inf
        if not self._can_search:
            return np.nan
        key = self._floor_numbers[np.array((state.player, *state.boxes))]
        outcome, directions = search(self._room, key, int(bound), self._max_nodes, self._max_work)
        if outcome in (DEAD, GAVE_UP):
            self._remember(state, np.inf if outcome == DEAD else np.nan)
            return np.inf if outcome == DEAD else np.nan
        way = [state]
        for direction in directions.tolist():
            way.append(_SOKOBAN.apply(way[-1], ACTIONS[direction]).state)
        # From the goal backwards: if they are too many, those nearest to the start stay.
        for cost, passed in enumerate(reversed(way)):
            self._remember(passed, float(cost))
        return float(len(directions))

    def _remember(self, state: SokobanState, cost: float) -> None:
        key = (state.player, state.boxes)
        self._known[key] = cost
        self._known.move_to_end(key)
        if len(self._known) * self._entry_bytes > _MEMO_BYTES:
            self._known.popitem(last=False)
