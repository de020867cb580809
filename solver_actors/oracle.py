"""A solver that remembers: tables built once per layout, kept in a bounded cache."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.games import get_game
from cast_ray.trajectory import ROLLOUT_SCHEMA, check_schema, with_costs
from solver_actors.solver import Solver
from solver_actors.solvers import get_solver_entry


@dataclass(slots=True)
class OracleCounters:
    """What an oracle has done so far; times in seconds."""

    num_hits: int = 0
    """Look-ups (a solver asked for, a list of states scored) whose solver was there."""
    num_misses: int = 0
    """Look-ups that had to build one."""
    num_evictions: int = 0
    """Solvers dropped to keep within the bound."""
    num_states: int = 0
    memory_bytes: int = 0
    """Of all solvers that are kept, as last read."""
    seconds_building: float = 0.0
    seconds_scoring: float = 0.0


@dataclass(slots=True)
class _Kept:
    """A solver and its size when it was last read: some grow as they are used."""

    solver: Solver
    memory_bytes: int = 0


class Oracle:
    """Costs of states of any game, from solvers cached by exact layout."""

    def __init__(self, *, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of solvers; the one in use is always kept."""
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, Hashable], _Kept] = OrderedDict()
        self.counters = OracleCounters()

    def solver(self, game: str, board: str) -> Solver:
        """Return the solver of a board's layout, built on first use."""
        return self.solver_of(game, get_game(game).decode(board))

    def solver_of(self, game: str, state: Any) -> Solver:
        """Return the solver of a state's layout. Any: each game has a state type of its own."""
        entry = get_solver_entry(game)
        key = (game, entry.layout_key(state))
        self._keep_within_bound()
        if key in self._kept:
            self.counters.num_hits += 1
            self._kept.move_to_end(key)
            return self._kept[key].solver
        self.counters.num_misses += 1
        started = time.perf_counter()
        solver = entry.build(state)
        self.counters.seconds_building += time.perf_counter() - started
        self._kept[key] = _Kept(solver=solver)
        self._keep_within_bound()
        return solver

    def cost_to_go(self, game: str, boards: Sequence[str]) -> np.ndarray:
        """Return ``[len(boards)]`` costs of states of one layout; inf = infinite, NaN = unknown.

        A text that occurs more than once is read and solved once.

        Args:
            game: name of the game.
            boards: texts of states, at least one.
        """
        started = time.perf_counter()
        decode = get_game(game).decode
        numbers: dict[str, int] = {}
        places = [numbers.setdefault(board, len(numbers)) for board in boards]
        states = [decode(board) for board in numbers]
        reading = time.perf_counter() - started
        solver = self.solver_of(game, states[0])
        started = time.perf_counter()
        costs = solver.cost_to_go(states)[places]
        self.counters.seconds_scoring += reading + time.perf_counter() - started
        self.counters.num_states += len(boards)
        self._keep_within_bound()
        return costs

    def score(self, rollout: pa.RecordBatch) -> pa.RecordBatch:
        """Return one group's trajectories widened by the cost of every visited state.

        Trajectories that begin in the same state go to its solver together.

        Args:
            rollout: ``ROLLOUT_SCHEMA``; every row may be of another puzzle.
        """
        check_schema(rollout, ROLLOUT_SCHEMA)
        games = rollout.column("game").to_pylist()
        visited: list[list[str]] = rollout.column("states").to_pylist()
        alike: dict[tuple[str, str], list[int]] = {}
        for row, (game, boards) in enumerate(zip(games, visited, strict=True)):
            alike.setdefault((game, boards[0]), []).append(row)
        costs = [np.zeros(0)] * len(visited)
        for (game, _), rows in alike.items():
            found = self.cost_to_go(game, [board for row in rows for board in visited[row]])
            self.counters.num_hits += len(rows) - 1  # each trajectory is a look-up
            ends = np.cumsum([len(visited[row]) for row in rows])
            for row, part in zip(rows, np.split(found, ends[:-1]), strict=True):
                costs[row] = part
        return with_costs(rollout, np.concatenate([*costs, np.zeros(0)]))

    def _keep_within_bound(self) -> None:
        """Drop the solvers not used for longest, after reading the size of the newest again.

        Only that one can have grown since the last time: it is the one that was handed out.
        """
        if not self._kept:
            return
        newest = next(reversed(self._kept.values()))
        grown = newest.solver.memory_bytes - newest.memory_bytes
        newest.memory_bytes += grown
        self.counters.memory_bytes += grown
        while self.counters.memory_bytes > self._max_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self.counters.memory_bytes -= dropped.memory_bytes
            self.counters.num_evictions += 1
