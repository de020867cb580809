"""A puzzle as arrays: every state within the horizon with its exact cost, and every episode.

Summing over all episodes one by one is the slow way, which needs no recursion over values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from cast_ray.algorithms.advantages import (
    TRANSFORMS,
    Array,
    final_advantage,
    shifted_solver_advantage,
)
from cast_ray.config.learning import AdvantageConfig
from cast_ray.games.game import Effect, Game, StateT, Status

CREDIT = AdvantageConfig()
"""What the theory leaves at the defaults of training: std, delta, epsilon, rescue."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FiniteGame:
    """One puzzle, played for at most ``horizon`` turns from state 0.

    The policy is indexed by the state alone, as the paper writes it: the same row of the table is
    used at every turn, and a state's visits add up over turns. (In training, the observation says
    how many steps are left, and a policy may use that. A counter in the state would describe it
    without changing the equations.)
    """

    states: tuple[Any, ...]  # Any: each game has its own state type
    actions: tuple[str, ...]
    """All that the policy may name, ineffective ones included."""
    next_state: NDArray[np.int64]
    """``[S, A]``; the state itself if nothing changes, the episode is over, or no turn is left."""
    has_effect: NDArray[np.bool_]
    """``[S, A]`` whether the action changes the state."""
    cost_to_go: Array
    """``[S]`` in moves; inf = dead."""
    is_won: NDArray[np.bool_]
    """``[S]``"""
    has_ended: NDArray[np.bool_]
    """``[S]`` whether an episode that comes here is over: won, lost, or dead where that ends it."""
    horizon: int
    """Most turns of an episode (the paper's H)."""

    @property
    def task_rewards(self) -> Array:
        """Return ``[S, A]``: 1 for the action that wins, else 0 (paper, eq:sparse_reward)."""
        return (self.is_won[self.next_state] & ~self.has_ended[:, None]).astype(np.float64)


def tabulate(
    game: Game[StateT],
    start: StateT,
    cost_to_go: Callable[[Sequence[StateT]], np.ndarray],
    *,
    horizon: int,
    deadlock_ends_episode: bool = True,
) -> FiniteGame:
    """Return a puzzle as arrays.

    Args:
        game: the rules; its actions must be the same in every state.
        start: becomes state 0.
        cost_to_go: from states to exact costs in moves; inf = infinite.
        horizon: most turns, >= 1.
        deadlock_ends_episode: whether a state of infinite cost ends it, as in training.

    Raises:
        ValueError: the game is over at the start, a cost is unknown, or states differ in their
            actions.
    """
    actions = game.actions(start)
    found = _Found(game, cost_to_go, deadlock_ends_episode=deadlock_ends_episode)
    found.number_of(start)
    if found.has_ended[0] or horizon < 1:
        raise ValueError("the start must be a state where play goes on, with at least one turn")
    rows, end_of_layer, turn = list[list[tuple[int, bool]]](), 1, 0
    for number, state in enumerate(found.states):  # grows while it is walked: breadth first
        if number == end_of_layer:
            end_of_layer, turn = len(found.states), turn + 1
        if found.has_ended[number] or turn == horizon:
            rows.append([(number, False)] * len(actions))
            continue
        if game.actions(state) != actions:
            raise ValueError("a game fits in a table only if every state has the same actions")
        after = [game.apply(state, action) for action in actions]
        rows.append(
            [(found.number_of(each.state), each.effect is Effect.CHANGED) for each in after]
        )
    if np.isnan(found.costs).any():
        raise ValueError("an exact calculation needs the cost of every state; one is unknown")
    return FiniteGame(
        states=tuple(found.states),
        actions=actions,
        next_state=np.array([[after for after, _ in row] for row in rows]),
        has_effect=np.array([[effect for _, effect in row] for row in rows]),
        cost_to_go=np.array(found.costs),
        is_won=np.array(found.is_won),
        has_ended=np.array(found.has_ended),
        horizon=horizon,
    )


def shifted_advantages(game: FiniteGame) -> Array:
    """Return ``[S, A]`` the shifted advantage of every action (eq:shifted_solver_advantage).

    Each entry is what training gives a trajectory of that one turn.
    """
    found = np.zeros(game.next_state.shape)
    for place in np.ndindex(*found.shape):
        costs = game.cost_to_go[[place[0], game.next_state[place]]]
        [found[place]] = shifted_solver_advantage(
            costs, game.has_effect[[place[0]], place[1]], rescue=CREDIT.rescue
        )
    return found


class _Found(Generic[StateT]):
    """The states met so far, each judged once."""

    def __init__(
        self,
        game: Game[StateT],
        cost_to_go: Callable[[Sequence[StateT]], np.ndarray],
        *,
        deadlock_ends_episode: bool,
    ) -> None:
        self._game = game
        self._cost_to_go = cost_to_go
        self._deadlock_ends_episode = deadlock_ends_episode
        self._places: dict[StateT, int] = {}
        self.states: list[StateT] = []
        self.costs: list[float] = []
        self.is_won: list[bool] = []
        self.has_ended: list[bool] = []

    def number_of(self, state: StateT) -> int:
        """Return the state's place; a new one comes last."""
        if state not in self._places:
            self._places[state] = len(self.states)
            status = self._game.status(state)
            cost = float(self._cost_to_go([state])[0])
            is_dead = self._deadlock_ends_episode and np.isinf(cost)
            self.states.append(state)
            self.costs.append(cost)
            self.is_won.append(status is Status.WON)
            self.has_ended.append(status is not Status.PLAYING or bool(is_dead))
        return self._places[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One sequence of actions and what it leads to."""

    states: tuple[int, ...]
    """``[T + 1]``"""
    actions: tuple[int, ...]
    """``[T]``"""
    is_won: bool


def all_episodes(game: FiniteGame) -> Iterator[Episode]:
    """Yield each episode once; there are at most ``A ** H``."""
    waiting: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,), ())]
    while waiting:
        states, actions = waiting.pop()
        last = states[-1]
        if game.has_ended[last] or len(actions) == game.horizon:
            yield Episode(states=states, actions=actions, is_won=bool(game.is_won[last]))
            continue
        for action, after in enumerate(game.next_state[last].tolist()):
            waiting.append(((*states, after), (*actions, action)))


def probability(episode: Episode, policy: Array) -> float:
    """Return how likely a ``[S, A]`` policy plays this episode."""
    return float(np.prod(policy[list(episode.states[:-1]), list(episode.actions)]))


def shifted_advantages_of(game: FiniteGame, episode: Episode) -> Array:
    """Return ``[T]`` shifted advantages, from the whole trajectory as training computes them."""
    states = list(episode.states)
    return shifted_solver_advantage(
        game.cost_to_go[states],
        game.has_effect[states[:-1], list(episode.actions)],
        rescue=CREDIT.rescue,
    )


def score(game: FiniteGame, episode: Episode, policy: Array, weights: Array) -> Array:
    """Return ``[S, A]`` sum over t of grad log pi(a_t|s_t) * ``weights[t]``, by the logits."""
    result = np.zeros_like(policy)
    for state, action, weight in zip(episode.states[:-1], episode.actions, weights, strict=True):
        result[state] -= weight * policy[state]
        result[state, action] += weight
    return result


def gradient_over_episodes(
    game: FiniteGame, policy: Array, *, alpha: float, transform: str
) -> Array:
    """Return ``[S, A]`` CAST's expected gradient, summed over all episodes.

    E[R] and the RMS are first taken over the same episodes; then they are constants.
    """
    episodes = list(all_episodes(game))
    likely = np.array([probability(episode, policy) for episode in episodes])
    rewards = np.array([float(episode.is_won) for episode in episodes])
    signals = [TRANSFORMS[transform](shifted_advantages_of(game, each)) for each in episodes]
    num_turns = np.array([len(signal) for signal in signals])
    squares = np.array([float((signal**2).sum()) for signal in signals])
    scale = np.sqrt(likely @ squares / (likely @ num_turns)) + CREDIT.epsilon
    outcomes = rewards - likely @ rewards
    result = np.zeros_like(policy)
    for episode, share, outcome, signal in zip(episodes, likely, outcomes, signals, strict=True):
        weights = final_advantage(float(outcome), signal / scale, alpha=alpha)
        result += share * score(game, episode, policy, weights)
    return result
