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
from cast_ray.games.game import Effect
from cast_ray.rollout.trajectory import ROLLOUT_SCHEMA, TeacherTurns, check_schema, with_costs
from solver_actors.registry import get_solver_entry, has_deadlocks, has_solver
from solver_actors.solver import ProvesLoss, Solver, SolverEntry
from solver_actors.teacher import PuzzleTeacher, SoftTeacher
from solver_actors.value_net.scale import LossTest, has_loss_test

_MOST_EXPECTATIONS = 50_000
"""Turns kept, at about a kilobyte each; the cache is cleared when it is full."""


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

    def __init__(
        self,
        *,
        max_bytes: int,
        teacher: SoftTeacher | None = None,
        estimator: SolverEntry | None = None,
        expected: str = "",
    ) -> None:
        """Start without any solver.

        Args:
            max_bytes: most bytes of solvers that are kept; the one in use always is.
            teacher: rates every turn in ``score``; None = no teacher.
            estimator: makes the solvers from a value network (``value_net.value_net_entry``), whose
                costs are estimates; None = the games' own, exact ones.
            expected: ``advantage.rescue`` of ``oracle=expected``: turns earn their expectation over
                all that the player could not see; empty = what the true state gives.
        """
        self._expected = expected
        self._expectations: dict[Hashable, float] = {}
        self._estimator = estimator
        self._max_bytes = max_bytes
        self._teacher = teacher
        self._kept: OrderedDict[tuple[str, Hashable], _Kept] = OrderedDict()
        self.counters = OracleCounters()

    def solver(self, game: str, board: str) -> Solver:
        """Return the solver of a board's layout, built on first use."""
        return self.solver_of(game, get_game(game).decode(board))

    def prover(self, game: str, board: str) -> ProvesLoss[Any] | None:
        """Return what proves states of a board's layout lost; None if nothing can or has to.

        A value network proves nothing: with one, only the game's loss test does.
        """
        if self._estimator is not None:
            return LossTest(game) if has_loss_test(game) else None
        return self.solver(game, board) if has_deadlocks(game) else None

    def solver_of(self, game: str, state: Any) -> Solver:
        """Return the solver of a state's layout. Any: each game has a state type of its own."""
        entry = self._estimator or get_solver_entry(game)
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

        With a value network its estimates, which are finite.

        A text that occurs several times is read and solved once.

        Args:
            game: name of the game.
            boards: texts of states, at least one.
        """
        return self._costs(game, boards)[0]

    def score(self, rollout: pa.RecordBatch) -> pa.RecordBatch:
        """Return one group's trajectories with the cost of every visited state added.

        Costs of a value network are stored as estimates; the cost itself is then unknown. With a
        teacher, its rating of every turn is added, too. Trajectories that begin in the same state
        go to its solver together.

        Args:
            rollout: ``ROLLOUT_SCHEMA``; every row may be of another puzzle.
        """
        check_schema(rollout, ROLLOUT_SCHEMA)
        games = rollout.column("game").to_pylist()
        visited: list[list[str]] = rollout.column("states").to_pylist()
        effects: list[list[str]] = rollout.column("effects").to_pylist()
        seeds: list[int] = rollout.column("seed").to_pylist()
        alike: dict[tuple[str, str], list[int]] = {}
        for row, (game, boards) in enumerate(zip(games, visited, strict=True)):
            alike.setdefault((game, boards[0]), []).append(row)
        costs = [np.zeros(0)] * len(visited)
        estimates = None
        if self._expected:
            actions: list[list[str]] = rollout.column("actions").to_pylist()
            turns = zip(games, visited, actions, effects, strict=True)
            estimates = np.concatenate([self.expectations(*row) for row in turns])
        taught = [TeacherTurns.unasked(len(of_row)) for of_row in effects]
        for (game, _), rows in alike.items():
            if self._estimator is None and not has_solver(game):  # unknown, not zero
                for row in rows:
                    costs[row] = np.full(len(visited[row]), np.nan)
                continue
            found, states, solver = self._costs(
                game, [board for row in rows for board in visited[row]]
            )
            self.counters.num_hits += len(rows) - 1  # each trajectory is a look-up
            ends = np.cumsum([len(visited[row]) for row in rows])
            for row, part in zip(rows, np.split(found, ends[:-1]), strict=True):
                costs[row] = part
            if self._teacher is None:
                continue
            started = time.perf_counter()
            teacher = PuzzleTeacher(self._teacher, game=game, solver=solver, states=states)
            for row in rows:
                taught[row] = teacher.turns(visited[row], costs[row], effects[row], seed=seeds[row])
            self.counters.seconds_scoring += time.perf_counter() - started
        self._keep_within_bound()  # the teacher may have made a solver grow
        found = np.concatenate([*costs, np.zeros(0)])
        teacher = TeacherTurns.concatenated(taught)
        if self._estimator is not None:
            return with_costs(rollout, None, teacher, estimates=found)
        return with_costs(rollout, found, teacher, estimates=estimates)

    def expectations(
        self, game: str, boards: Sequence[str], actions: Sequence[str], effects: Sequence[str]
    ) -> np.ndarray:
        """Return ``[T + 1]`` minus what the turns before each state of an episode earn on average.

        Args:
            game: name of the game.
            boards: ``[T + 1]`` texts of states of one layout.
            actions: ``[T]`` in canonical spelling.
            effects: ``[T]`` values of ``Effect``.
        """
        rules, entry = get_game(game), get_solver_entry(game)
        assert entry.expected_credit is not None
        earned = [0.0]
        for board, action, effect in zip(boards[:-1], actions, effects, strict=True):
            credit = 0.0
            if effect == Effect.CHANGED:
                state = rules.decode(board)
                seen = (game, rules.visible_rows(state), rules.dimensions(state), action)
                if seen not in self._expectations:
                    if len(self._expectations) >= _MOST_EXPECTATIONS:
                        self._expectations.clear()
                    self._expectations[seen] = entry.expected_credit(state, action, self._expected)
                credit = self._expectations[seen]
            earned.append(earned[-1] + credit)
        return -np.array(earned)

    def _costs(self, game: str, boards: Sequence[str]) -> tuple[np.ndarray, dict[str, Any], Solver]:
        """Return ``[len(boards)]`` costs, the distinct states by their texts, and their solver."""
        started = time.perf_counter()
        decode = get_game(game).decode
        numbers: dict[str, int] = {}
        places = [numbers.setdefault(board, len(numbers)) for board in boards]
        states = {board: decode(board) for board in numbers}
        distinct = list(states.values())
        reading = time.perf_counter() - started
        solver = self.solver_of(game, distinct[0])
        started = time.perf_counter()
        costs = solver.cost_to_go(distinct)[places]
        self.counters.seconds_scoring += reading + time.perf_counter() - started
        self.counters.num_states += len(boards)
        self._keep_within_bound()
        return costs, states, solver

    def _keep_within_bound(self) -> None:
        """Drop the solvers not used for longest, after reading the size of the newest again.

        Only that one can have grown since the last time: it was returned last.
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
