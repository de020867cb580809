"""CAST: train language models to play long games, with a solver's credit for every turn.

Everything in ``__all__`` is loaded when it is first used: importing the package imports neither
torch nor Ray nor vLLM.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cast_ray.config.load import load_config
    from cast_ray.envs.gym import make_text_env as make_env
    from cast_ray.errors import CastRayError
    from cast_ray.evaluation.evaluate import evaluate_models as evaluate
    from cast_ray.games import get_game
    from cast_ray.games.game import Game
    from cast_ray.games.plugins import GamePlugin
    from cast_ray.games.puzzles import Puzzle, read_puzzles
    from cast_ray.runs.load import load_run
    from cast_ray.training.algorithm.algorithm import Algorithm
    from cast_ray.training.algorithm.callbacks import Callbacks
    from cast_ray.training.algorithm.config import AlgorithmConfig
    from solver_actors.solve import Solution, solve

__version__ = metadata.version("cast-ray")
__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "Callbacks",
    "CastRayError",
    "Game",
    "GamePlugin",
    "Puzzle",
    "Solution",
    "evaluate",
    "get_game",
    "load_config",
    "load_run",
    "make_env",
    "read_puzzles",
    "solve",
]
_HOMES = {
    "Algorithm": "cast_ray.training.algorithm.algorithm",
    "AlgorithmConfig": "cast_ray.training.algorithm.config",
    "Callbacks": "cast_ray.training.algorithm.callbacks",
    "CastRayError": "cast_ray.errors",
    "Game": "cast_ray.games.game",
    "GamePlugin": "cast_ray.games.plugins",
    "Puzzle": "cast_ray.games.puzzles",
    "Solution": "solver_actors.solve",
    "evaluate": "cast_ray.evaluation.evaluate:evaluate_models",
    "get_game": "cast_ray.games",
    "load_config": "cast_ray.config.load",
    "load_run": "cast_ray.runs.load",
    "make_env": "cast_ray.envs.gym:make_text_env",
    "read_puzzles": "cast_ray.games.puzzles",
    "solve": "solver_actors.solve",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, other = _HOMES[name].partition(":")
    return getattr(import_module(module), other or name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
