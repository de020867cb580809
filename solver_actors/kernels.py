"""The numba kernels, compiled once per machine before anything has to wait for them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from filelock import FileLock
from numba.core import event

from cast_ray.files import refusals_named
from cast_ray.games import get_game
from cast_ray.games.generators import get_generator
from cast_ray.numba_cache import kernel_cache_dir
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver

_CACHE_BYTES = 1 << 20


class CompilationCounter(event.Listener):
    """Counts what numba compiles in this process from now on; loading from disk does not count."""

    def __init__(self) -> None:
        self.num_compilations = 0
        event.register("numba:compile", self)

    def on_start(self, event: event.Event) -> None:
        """Count a compilation."""
        self.num_compilations += 1

    def on_end(self, event: event.Event) -> None:
        """Do nothing: it was counted when it began."""


def compile_kernels(games: Iterable[str]) -> None:
    """Solve a puzzle of each game that has a solver: numba compiles its kernels and stores them.

    Processes of one machine wait for each other, so that one compiles and the others load.

    Raises:
        EnvironmentSetupError: there is no place to keep them.
    """
    folder = kernel_cache_dir()
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock").acquire()  # goes with the process, however that ends
    with lock:
        oracle = Oracle(max_bytes=_CACHE_BYTES)
        for name in filter(has_solver, games):
            game = get_game(name)
            easiest = min(game.tiers.values(), key=lambda tier: tier.max_cost)
            state = get_generator(name)(easiest, np.random.default_rng(0))
            solver = oracle.solver(name, game.encode(state))
            solver.cost_to_go([state])
            solver.best_action(state)
            warm_up = get_solver_entry(name).warm_up
            if warm_up is not None:
                warm_up(state)
