"""The numba kernels, compiled once per machine before anything has to wait for them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numba.core import event

from cast_ray.files import refusals_named
from cast_ray.games import get_game
from cast_ray.games.generators import get_generator
from cast_ray.numba_cache import kernel_cache_dir
from solver_actors.minesweeper.solver import MinesweeperSolver
from solver_actors.minesweeper.views import read_view
from solver_actors.oracle import Oracle
from solver_actors.rush_hour.search import shortest_length
from solver_actors.sokoban.search import SokobanSearchSolver

_CACHE_BYTES = 1 << 20


class CompilationCounter(event.Listener):
    """Counts what numba compiles in this process from now on; loading from disk is none."""

    def __init__(self) -> None:
        self.num_compilations = 0
        event.register("numba:compile", self)

    def on_start(self, event: event.Event) -> None:
        """Count a compilation."""
        self.num_compilations += 1

    def on_end(self, event: event.Event) -> None:
        """Do nothing: it was counted when it began."""


def compile_kernels(games: Iterable[str]) -> None:
    """Solve a puzzle of each game: numba compiles its kernels and keeps them on disk.

    Processes of one machine wait for each other, so that one compiles and the others load.

    Raises:
        EnvironmentSetupError: there is no place to keep them.
    """
    folder = kernel_cache_dir()
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # goes with the process, however that ends
        oracle = Oracle(max_bytes=_CACHE_BYTES)
        for name in games:
            game = get_game(name)
            easiest = min(game.tiers.values(), key=lambda tier: tier.max_cost)
            state = get_generator(name)(easiest, np.random.default_rng(0))
            solver = oracle.solver(name, game.encode(state))
            solver.cost_to_go([state])
            solver.best_action(state)
            if name in _ELSEWHERE:
                _ELSEWHERE[name](state)


def _solve_mines(state: Any) -> None:
    solver = MinesweeperSolver(state.layout)
    solver.mine_probabilities(state)
    solver.num_guesses(state)
    read_view(["1."], 1)


_ELSEWHERE: dict[str, Callable[[Any], object]] = {
    "sokoban": lambda state: SokobanSearchSolver(state.layout).cost_to_go([state]),
    "minesweeper": _solve_mines,
    "rush_hour": lambda state: shortest_length(state, max_length=8, node_budget=1000),
}
"""Kernels that an easy puzzle does not call. Any: each game has a state type of its own."""
