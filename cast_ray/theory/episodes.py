"""Every episode that can happen, one by one: the slow way, which needs no recursion over values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cast_ray.advantages import TRANSFORMS, Array, final_advantage, shifted_solver_advantage
from cast_ray.theory.finite_game import FiniteGame


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
        game.cost_to_go[states], game.has_effect[states[:-1], list(episode.actions)]
    )


def score(game: FiniteGame, episode: Episode, policy: Array, weights: Array) -> Array:
    """Return ``[S, A]`` sum over t of grad log pi(a_t|s_t) * ``weights[t]``, by the logits."""
    result = np.zeros_like(policy)
    for state, action, weight in zip(episode.states[:-1], episode.actions, weights, strict=True):
        result[state] -= weight * policy[state]
        result[state, action] += weight
    return result


def gradient_over_episodes(
    game: FiniteGame, policy: Array, *, alpha: float, transform: str, epsilon: float = 1e-8
) -> Array:
    """Return ``[S, A]`` CAST's expected gradient, summed over all episodes.

    E[R] and the RMS are taken over the same episodes first, and are constants afterwards.
    """
    episodes = list(all_episodes(game))
    likely = np.array([probability(episode, policy) for episode in episodes])
    rewards = np.array([float(episode.is_won) for episode in episodes])
    signals = [TRANSFORMS[transform](shifted_advantages_of(game, each)) for each in episodes]
    num_turns = np.array([len(signal) for signal in signals])
    squares = np.array([float((signal**2).sum()) for signal in signals])
    scale = np.sqrt(likely @ squares / (likely @ num_turns)) + epsilon
    outcomes = rewards - likely @ rewards
    result = np.zeros_like(policy)
    for episode, share, outcome, signal in zip(episodes, likely, outcomes, signals, strict=True):
        weights = final_advantage(float(outcome), signal / scale, alpha=alpha)
        result += share * score(game, episode, policy, weights)
    return result
