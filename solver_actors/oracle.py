"""A solver that remembers: tables built once per layout, kept in a bounded cache."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

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
    num_misses: int = 0
    num_states: int = 0
    memory_bytes: int = 0
    seconds_building: float = 0.0
    seconds_scoring: float = 0.0


class Oracle:
    """Costs of states of any game, from solvers cached by exact layout."""

    def __init__(self, *, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of tables; the one in use is always kept."""
        self._max_bytes = max_bytes
        self._solvers: OrderedDict[tuple[str, Hashable], Solver] = OrderedDict()
        self.counters = OracleCounters()

    def solver(self, game: str, board: str) -> Solver:
        """Return the solver of a board's layout, built on first use."""
        state = get_game(game).decode(board)
        entry = get_solver_entry(game)
        key = (game, entry.layout_key(state))
        if key in self._solvers:
            self.counters.num_hits += 1
            self._solvers.move_to_end(key)
            return self._solvers[key]
        self.counters.num_misses += 1
        started = time.perf_counter()
        solver = entry.build(state)
        self.counters.seconds_building += time.perf_counter() - started
        self._solvers[key] = solver
        self.counters.memory_bytes += solver.memory_bytes
        while self.counters.memory_bytes > self._max_bytes and len(self._solvers) > 1:
            _, dropped = self._solvers.popitem(last=False)
            self.counters.memory_bytes -= dropped.memory_bytes
        return solver

    def cost_to_go(self, game: str, boards: list[str]) -> np.ndarray:
        """Return the costs of states of one layout; ``inf`` = infinite, NaN = unknown."""
        decode = get_game(game).decode
        solver = self.solver(game, boards[0])
        started = time.perf_counter()
        costs = solver.cost_to_go([decode(board) for board in boards])
        self.counters.seconds_scoring += time.perf_counter() - started
        self.counters.num_states += len(boards)
        return costs

    def score(self, rollout: pa.RecordBatch) -> pa.RecordBatch:
        """Return one group's trajectories widened by the cost of every visited state.

        Args:
            rollout: ``ROLLOUT_SCHEMA``; every row may be of another puzzle.
        """
        check_schema(rollout, ROLLOUT_SCHEMA)
        rows = rollout.select(["game", "states"]).to_pylist()
        costs = [self.cost_to_go(row["game"], row["states"]) for row in rows]
        return with_costs(rollout, np.concatenate([*costs, np.zeros(0)]))
