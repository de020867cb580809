"""Exact expectations under a tabular policy, by dynamic programming over turns.

Everything is analytic in the policy, so a policy may be complex: ``gradient`` takes derivatives to
rounding by complex steps, f(x + ih) = f(x) + ih f'(x), without a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cast_ray.algorithms.advantages import Array
from tests.theory.finite_game import FiniteGame

Numbers = NDArray[Any]
"""float64, or complex128 while a derivative is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visits:
    """Where episodes go and where they end."""

    turns: Numbers
    """``[H, S]`` probability that turn t is played in a state; a row sums to less than 1 once
    episodes have ended. Its sum over t is the paper's d^pi."""
    end: Numbers
    """``[S]`` probability that the last state of an episode is this one."""

    @property
    def per_state(self) -> Numbers:
        """Return ``[S]`` d^pi(s), the expected number of turns played in a state."""
        return self.turns.sum(axis=0)


def softmax(logits: Numbers) -> Numbers:
    """Return ``[S, A]`` probabilities from ``[S, A]`` logits."""
    weights = np.exp(logits - np.real(logits).max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def visits(game: FiniteGame, policy: Numbers) -> Visits:
    """Return how often episodes of a ``[S, A]`` policy are where."""
    num_states = len(game.states)
    turns = np.zeros((game.horizon, num_states), dtype=policy.dtype)
    end = np.zeros(num_states, dtype=policy.dtype)
    here = np.zeros(num_states, dtype=policy.dtype)
    here[0] = 1.0
    for turn in range(game.horizon):
        turns[turn] = here
        here = np.zeros_like(here)
        np.add.at(here, game.next_state, turns[turn][:, None] * policy)
        end += np.where(game.has_ended, here, 0.0)
        here = np.where(game.has_ended, 0.0, here)
    return Visits(turns=turns, end=end + here)


def action_values(game: FiniteGame, policy: Numbers, rewards: Numbers) -> Numbers:
    """Return ``[H, S, A]`` Q_t(s, a) for ``[S, A]`` rewards, 0 where an episode has ended."""
    values = np.zeros((game.horizon, *policy.shape), dtype=np.result_type(policy, rewards))
    ahead = np.zeros(len(game.states), dtype=values.dtype)
    for turn in reversed(range(game.horizon)):
        values[turn] = np.where(game.has_ended[:, None], 0.0, rewards + ahead[game.next_state])
        ahead = (policy * values[turn]).sum(axis=-1)
    return values


def expected_return(game: FiniteGame, policy: Numbers, rewards: Numbers) -> Any:
    """Return E[sum of ``[S, A]`` rewards over an episode], one number."""
    return (visits(game, policy).per_state[:, None] * policy * rewards).sum()


def expected_gradient(policy: Numbers, turns: Numbers, weights: Numbers) -> Numbers:
    """Return ``[S, A]`` E[sum over t of grad log pi(a_t|s_t) * weight_t], by the logits.

    Args:
        policy: ``[S, A]`` of a softmax.
        turns: ``[H, S]`` of ``Visits``.
        weights: ``[H, S, A]`` the expected weight of a turn, given its state and its action;
            ``[S, A]`` if it is the same at every turn.
    """
    chosen = policy * weights
    centred = chosen - policy * chosen.sum(axis=-1, keepdims=True)
    return (turns[:, :, None] * centred).sum(axis=0)


def root_mean_square(policy: Numbers, per_state: Numbers, signal: Numbers) -> Any:
    """Return the RMS of ``[S, A]`` g over the turns that a policy plays (paper, eq:rms_norm)."""
    share = per_state[:, None] * policy
    return np.sqrt((share * signal**2).sum() / share.sum())


_STEP = 1e-30  # nothing is subtracted, so it can be so small that its square vanishes


def gradient(function: Callable[[Numbers], Any], logits: Array) -> Array:
    """Return the gradient of a number by an array.

    Args:
        function: analytic at ``logits``, and able to take complex numbers.
        logits: where; any shape.
    """
    result = np.zeros_like(logits)
    moved = logits.astype(np.complex128)
    for place in np.ndindex(*logits.shape):
        moved[place] += 1j * _STEP
        result[place] = function(moved).imag / _STEP
        moved[place] = logits[place]
    return result
