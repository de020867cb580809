"""Players that are no language model: random, greedy, the solver, soft-optimal.

They answer with an action alone. Where a game hides part of its state, ``greedy`` and
``soft-solver`` use the costs of the true state; ``solver`` and ``random`` know what a player knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.envs.environment import Environment
from cast_ray.errors import ConfigError
from cast_ray.games import get_game, hides_state
from cast_ray.seeds import derive_seed
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import Solver
from solver_actors.teacher import SoftTeacher, teacher_choice

SOLVER, SOFT_SOLVER, GREEDY, RANDOM = "solver", "soft-solver", "greedy", "random"
PLAYERS = (SOLVER, SOFT_SOLVER, GREEDY, RANDOM)
_NO_ADVICE = ""
"""The answer without advice from the solver: no action, so the turn has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """What a player decides about. Any: each game has a state type of its own."""

    game: str
    state: Any
    solver: Solver[Any]
    seed: int


Choose = Callable[[_Situation], str]


class Player:
    """A built-in player, for any number of episodes."""

    def __init__(self, name: str, oracle: Oracle) -> None:
        """Set up a player.

        Args:
            name: ``solver``, ``soft-solver:TAU`` with a temperature in the game's moves, ``greedy``
                or ``random``.
            oracle: whose solvers it follows.

        Raises:
            ConfigError: there is no such player, or no such temperature.
        """
        self.name = name
        self._oracle = oracle
        self._choose = _chooser(name)

    def check_plays(self, game: str) -> None:
        """Raise ConfigError if the player needs a solver and the game has none."""
        if self._choose is not None and not has_solver(game):
            raise ConfigError(
                f"{game} has no solver that the player {self.name} could follow: use random"
            )

    def action(self, game: str, environment: Environment, *, seed: int) -> str:
        """Return the action for the present state; empty where the solver has no advice.

        Args:
            game: name of the game or benchmark.
            environment: the episode.
            seed: of the turn; equal seeds draw equally.
        """
        if self._choose is None:
            choices = environment.choices()
            drawn = np.random.default_rng(derive_seed(seed, "player")).integers(len(choices))
            return choices[drawn]
        state = get_game(game).decode(environment.state())
        solver = self._oracle.solver_of(game, state)
        return self._choose(_Situation(game=game, state=state, solver=solver, seed=seed))


def is_privileged(name: str, game: str) -> bool:
    """Return whether a player uses what a game hides from its players."""
    return hides_state(game) and name.partition(":")[0] in (GREEDY, SOFT_SOLVER)


def is_player(text: str) -> bool:
    """Return whether a model of this name is a built-in player."""
    return text.partition(":")[0] in PLAYERS


def _chooser(name: str) -> Choose | None:
    """Return how a player chooses; None = at random among the possible actions."""
    kind, _, rest = name.partition(":")
    if kind == SOFT_SOLVER:
        return _soft(_temperature(name, rest))
    if rest or kind not in PLAYERS:
        raise ConfigError(
            f"there is no player {name!r}: use solver, soft-solver:TAU (e.g. soft-solver:0.5), "
            "greedy or random"
        )
    return {SOLVER: _follow, GREEDY: _take_least, RANDOM: None}[kind]


def _temperature(name: str, text: str) -> float:
    try:
        temperature = float(text)
    except ValueError:
        temperature = math.nan
    if not 0 < temperature < math.inf:
        raise ConfigError(
            f"{name}: the temperature must be a number above 0, e.g. soft-solver:0.5; got {text!r}"
        )
    return temperature


def _follow(situation: _Situation) -> str:
    next_action = get_solver_entry(situation.game).next_action
    return next_action(situation.solver, situation.state) or _NO_ADVICE


def _take_least(situation: _Situation) -> str:
    """Return the first action of least cost after it; one of unknown cost is never taken."""
    costs = situation.solver.action_costs(situation.state)
    known = {action: cost for action, cost in costs.items() if not math.isnan(cost)}
    return min(known, key=known.__getitem__) if known else _NO_ADVICE


def _soft(temperature: float) -> Choose:
    teacher = SoftTeacher(temperature=temperature, rescue="cost")

    def draw(situation: _Situation) -> str:
        cost = float(situation.solver.cost_to_go([situation.state])[0])
        choice = teacher_choice(
            teacher,
            game=situation.game,
            solver=situation.solver,
            state=situation.state,
            cost=cost,
        )
        if choice is None:
            return _NO_ADVICE
        rng = np.random.default_rng(derive_seed(situation.seed, "player"))
        return choice.actions[rng.choice(len(choice.actions), p=choice.probabilities)]

    return draw
