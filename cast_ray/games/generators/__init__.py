"""Seeded puzzles of each game; the solver is an argument."""

from cast_ray.games.generators.build import (
    GENERATORS,
    PuzzleSource,
    build_puzzles,
    draw_puzzle,
    get_generator,
    is_winnable,
)

__all__ = [
    "GENERATORS",
    "PuzzleSource",
    "build_puzzles",
    "draw_puzzle",
    "get_generator",
    "is_winnable",
]
