"""States of a game for the checks: puzzles of every tier, played at random for a while."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cast_ray.games.game import Status, Tier
from cast_ray.games.plugins import GamePlugin

SOLVED_STATES_PER_EPISODE = 6
"""How many states of an episode the solver is asked about: some solvers take their time."""
_SHARE_OF_SCORED_ACTIONS = 0.7

State = Any
"""Any: each game has a state type of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Random play from one puzzle."""

    tier: Tier
    states: tuple[State, ...]
    """The puzzle, then the state after each action that changed something."""


class Samples:
    """The states that all checks of one game use; collected for the first check."""

    def __init__(
        self,
        plugin: GamePlugin,
        *,
        symmetries: Callable[[State], Iterable[State]] | None,
        puzzles_per_tier: int,
        seed: int,
    ) -> None:
        self.plugin = plugin
        self.game = plugin.game
        self.symmetries = symmetries
        self.seed = seed
        self._puzzles_per_tier = puzzles_per_tier
        self._solvers: dict[int, Any] = {}

    @cached_property
    def episodes(self) -> list[Episode]:
        """Return random play from the puzzles of all tiers, up to each tier's turn budget."""
        return [
            Episode(tier=tier, states=self._played(self.puzzle(tier, number), tier, number))
            for tier in self.game.tiers.values()
            for number in range(self._puzzles_per_tier)
        ]

    @property
    def states(self) -> Iterator[State]:
        """Yield every state of every episode."""
        return (state for episode in self.episodes for state in episode.states)

    @property
    def open_states(self) -> Iterator[State]:
        """Yield the open states: only there are actions carried out."""
        return (state for state in self.states if self.is_open(state))

    @property
    def puzzle_numbers(self) -> range:
        """Return the numbers of a tier's puzzles."""
        return range(self._puzzles_per_tier)

    def puzzle(self, tier: Tier, number: int) -> State:
        """Return a puzzle, generated again at each call."""
        return self.plugin.generate(tier, self.rng("puzzle", tier.name, number))

    def is_open(self, state: State) -> bool:
        """Return whether the game is open in a state."""
        return self.game.status(state) is Status.PLAYING

    def solver(self, episode: Episode) -> Any:
        """Return the solver of an episode's puzzle, built once."""
        if id(episode) not in self._solvers:
            self._solvers[id(episode)] = self.plugin.solver.build(episode.states[0])
        return self._solvers[id(episode)]

    def advised(self, episode: Episode) -> tuple[State, ...]:
        """Return the states of an episode, then those that the solver's advice leads through.

        Random play hardly ever wins; only the solver's own play leads to won states.
        """
        solver, state, states = self.solver(episode), episode.states[0], [*episode.states]
        for _ in range(episode.tier.turn_budget):
            advice = solver.best_action(state) if self.is_open(state) else None
            if advice is None:
                break
            state = self.game.apply(state, advice).state
            states.append(state)
        return tuple(states)

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random numbers of one purpose, always the same ones."""
        return np.random.default_rng(list("/".join(map(str, (self.seed, *names))).encode()))

    def _played(self, state: State, tier: Tier, number: int) -> tuple[State, ...]:
        rng = self.rng("play", tier.name, number)
        states = [state]
        for _ in range(tier.turn_budget):
            if not self.is_open(state):
                break
            scored, named = self.game.scored_actions(state), self.game.actions(state)
            choices = scored if scored and rng.random() < _SHARE_OF_SCORED_ACTIONS else named
            after = self.game.apply(state, choices[rng.integers(len(choices))]).state
            if after is not state:
                states.append(after)
            state = after
        return tuple(states)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One demand on one game or environment. ``str(check)`` is its name."""

    name: str
    run: Callable[[], None]
    skip_reason: str = ""
    """Why it does not apply; empty = it does."""

    def __call__(self) -> None:
        """Return if the demand is met.

        Raises:
            AssertionError, CallbackError, ConfigError: it is not; the message says where.
            unittest.SkipTest: the demand does not apply.
        """
        if self.skip_reason:
            raise unittest.SkipTest(f"{self.name}: {self.skip_reason}")
        self.run()

    def __str__(self) -> str:
        return self.name


def some_of(states: Sequence[State], count: int = SOLVED_STATES_PER_EPISODE) -> list[State]:
    """Return at most ``count`` of the states, evenly spread, including the first and the last."""
    if len(states) <= count:
        return list(states)
    places = np.linspace(0, len(states) - 1, count).round().astype(int)
    return [states[place] for place in places]


def demand(condition: object, sentence: str) -> None:
    """Raise AssertionError with a sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


def shown(value: object) -> str:
    """Return a value for a message, shortened where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
