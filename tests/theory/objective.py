"""Both sides of the theorem: the gradient that CAST follows, and the objective that it climbs.

Assumptions as the paper makes them: the outcome term is R - E[R] without sigma, the RMS is a
number taken under d^pi, and the distillation term does not see that d^pi moves with the policy.
``outcome_gain`` is what GRPO's division by sigma does to the task gradient (Assumption A3). The
appendix's exact statements (performance difference, endogenous reward) are at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.algorithms.advantages import (
    TRANSFORMS,
    Array,
    asinh,
    final_advantage,
    outcome_advantage,
)
from tests.theory.expectations import (
    Numbers,
    action_values,
    expected_gradient,
    expected_return,
    root_mean_square,
    softmax,
    visits,
)
from tests.theory.finite_game import CREDIT, FiniteGame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CastTerm:
    """The solver's part of the training rule at one policy: a signal, and its constant scale."""

    signal: Array
    """``[S, A]`` g(shifted advantage)."""
    scale: float
    """RMS + epsilon, a number: nothing is differentiated through it."""
    alpha: float

    @property
    def solver_advantage(self) -> Array:
        """Return ``[S, A]`` h (paper, eq:rms_norm)."""
        return self.signal / self.scale

    def beta(self, tau: float) -> float:
        """Return alpha * tau / (RMS + epsilon): the theorem's beta but for the slope of g."""
        return self.alpha * tau / self.scale


def cast_term(
    game: FiniteGame,
    logits: Array,
    shifted: Array,
    *,
    alpha: float,
    transform: str,
) -> CastTerm:
    """Return the solver's term for ``[S, A]`` shifted advantages, under a policy's visits."""
    policy = softmax(logits)
    signal = TRANSFORMS[transform](shifted)
    rms = float(root_mean_square(policy, visits(game, policy).per_state, signal))
    return CastTerm(signal=signal, scale=rms + CREDIT.epsilon, alpha=alpha)


def cast_gradient(game: FiniteGame, logits: Array, term: CastTerm) -> Array:
    """Return ``[S, A]`` E[sum over t of grad log pi * A_hat] (paper, eq:final_advantage).

    By eq:app_main_thm the gradient of ``frozen_objective``, with the identity transform.
    A turn's expected outcome advantage, given its state and action, is Q_t(s, a) - E[R].
    """
    policy = softmax(logits)
    values = action_values(game, policy, game.task_rewards)
    outcome = values - (policy[0] * values[0, 0]).sum()
    weights = final_advantage(outcome, term.solver_advantage, alpha=term.alpha)
    return expected_gradient(policy, visits(game, policy).turns, weights)


def log_teacher(preferences: Array, tau: float) -> Array:
    """Return ``[S, A]`` log pi_S for pi_S proportional to exp(preferences / tau).

    With the exact costs, log pi_S = A / tau - log Z(s): the paper's eq:app_adv_eq_logprob holds up
    to the normaliser. Where the weight is a constant times log pi_S, log Z(s) is a baseline and
    changes no gradient; where it is ``beta_eff`` times log pi_S, it does.
    """
    scaled = preferences / tau
    highest = scaled.max(axis=-1, keepdims=True)
    return scaled - highest - np.log(np.exp(scaled - highest).sum(axis=-1, keepdims=True))


def task_return(game: FiniteGame, logits: Numbers) -> Any:
    """Return E[V_task(s_0)], one number."""
    return expected_return(game, softmax(logits), game.task_rewards)


def frozen_objective(
    game: FiniteGame, logits: Numbers, per_state: Array, log_preferences: Array
) -> Any:
    """Return task return + E[log_preferences] under given visits (paper, eq:app_main_thm).

    Args:
        game: the puzzle.
        logits: ``[S, A]`` of the policy.
        per_state: ``[S]`` d^pi, a constant.
        log_preferences: ``[S, A]``; ``beta * log pi_S`` makes this the theorem's objective, because
            the cross-entropy is -E_pi[log pi_S].
    """
    preferred = (softmax(logits) * log_preferences).sum(axis=-1)
    return task_return(game, logits) + (per_state * preferred).sum()


def moving_objective(game: FiniteGame, logits: Numbers, log_preferences: Array) -> Any:
    """Return the same with visits that move with the policy: what the symbols of eq:implicit_obj
    say, and what CAST's update is not the gradient of.

    With ``beta * log pi_S`` it is eq:app_j_kl_form: the return less beta times the divergence from
    the teacher, less beta times the entropy.
    """
    return task_return(game, logits) + expected_return(game, softmax(logits), log_preferences)


def beta_eff(term: CastTerm, advantage: Array, tau: float) -> Array:
    """Return the step's own coefficient under asinh, for any shape (paper, eq:app_beta_eff).

    Args:
        term: for alpha and the scale.
        advantage: A = shifted advantage - 1; at 0 the ratio is its limit, 1/sqrt(2).
        tau: temperature of the teacher.
    """
    rise = asinh(advantage + 1.0) - asinh(np.ones_like(advantage))
    at_zero = np.full_like(advantage, 1.0 / np.sqrt(2.0))
    slope = np.divide(rise, advantage, out=at_zero, where=advantage != 0)
    return term.beta(tau) * slope


def small_signal_beta(term: CastTerm, tau: float) -> float:
    """Return the theorem's constant beta under asinh, with 1/sqrt(2) (paper, eq:implicit_obj).

    The coefficient of log pi_S in eq:app_shape_logprob, whose error is of second order.
    """
    return term.beta(tau) / np.sqrt(2.0)


def outcome_gain(group_size: int, success: float) -> float:
    """Return c with E[sum_t grad log pi * outcome advantage] = c * grad(success), exactly.

    For rewards of 0 and 1 the number of wins among the other members of a group is binomial. A win
    weighs E[advantage | win], a loss E[advantage | loss]; since grad E[R] is what a win gains and a
    loss gives up, the expected gradient is their difference times the gradient of the success rate.
    So on one board the direction is that of the task return, as the paper assumes; but c depends on
    the board's success rate, so a learning rate cannot absorb it.

    Args:
        group_size: G, >= 2.
        success: the policy's chance to win this board.
    """
    others = group_size - 1
    gain = 0.0
    for num_wins in range(group_size):
        chance = (
            math.comb(others, num_wins) * success**num_wins * (1 - success) ** (others - num_wins)
        )
        if_won, if_lost = _outcomes(num_wins + 1, group_size), _outcomes(num_wins, group_size)
        gain += chance * (if_won[0] - if_lost[-1])
    return float(gain)


def _outcomes(num_wins: int, group_size: int) -> Array:
    """Return ``[G]`` outcome advantages of a group; the members that won come first."""
    rewards = np.repeat([1.0, 0.0], [num_wins, group_size - num_wins])
    return outcome_advantage(rewards, std=CREDIT.std, delta=CREDIT.delta)


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
