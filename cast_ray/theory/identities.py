"""The appendix's exact statements: performance difference and endogenous reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from cast_ray.advantages import Array
from cast_ray.theory.expectations import Numbers, action_values, visits
from cast_ray.theory.finite_game import FiniteGame


def cumulative_advantage(game: FiniteGame, new: Array, old: Array, rewards: Array) -> float:
    """Return the sum over t of E_{d_t^new, new}[A_t^old], the right side of eq:app_pdl.

    Args:
        game: the puzzle.
        new, old: ``[S, A]`` policies.
        rewards: ``[S, A]`` any reward.
    """
    values = action_values(game, old, rewards)
    advantages = values - (old * values).sum(axis=-1, keepdims=True)
    turns = visits(game, new).turns
    return float((turns[:, :, None] * new * advantages).sum())


def endogenous_rewards(game: FiniteGame, log_teacher: Array, tau: float) -> Array:
    """Return ``[S, A]`` tau * log pi_S + V(s) - V(s') with V = -N (paper, eq:app_endogenous).

    V(s) - V(s') undoes the move: what is left is the reward of one move. A move into a dead state
    has none, because V is minus infinity there: it gets NaN.
    """
    value = -game.cost_to_go
    with np.errstate(invalid="ignore"):  # inf - inf, where play goes on in dead states
        rise = value[:, None] - value[game.next_state]
    return np.where(np.isfinite(rise), tau * log_teacher + rise, np.nan)


def expected_final_cost(game: FiniteGame, policy: Numbers) -> Any:
    """Return E[N(s_T)] over the last states of episodes, all of which must be finite."""
    return (visits(game, policy).end * game.cost_to_go).sum()
