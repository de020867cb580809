"""The solvers' numba kernels, compiled before anything has to wait for them."""

from __future__ import annotations

import numpy as np

from cast_ray.games import GAMES
from cast_ray.generators import get_generator
from solver_actors.oracle import Oracle

_CACHE_BYTES = 1 << 20


def compile_kernels() -> None:
    """Solve a puzzle of each built-in game: numba compiles its kernels and keeps them on disk."""
    oracle = Oracle(max_bytes=_CACHE_BYTES)
    for name, game in GAMES.items():
        easiest = min(game.tiers.values(), key=lambda tier: tier.max_cost)
        state = get_generator(name)(easiest, np.random.default_rng(0))
        oracle.cost_to_go(name, [game.encode(state)])
