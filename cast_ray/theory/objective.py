"""Both sides of the theorem: the gradient that CAST follows, and the objective it is said to climb.

Assumptions as the paper makes them: the outcome term is R - E[R] without sigma, the RMS is a
number taken under d^pi, and the distillation term does not see that d^pi moves with the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.advantages import TRANSFORMS, Array, asinh, final_advantage
from cast_ray.theory.expectations import (
    Numbers,
    action_values,
    expected_gradient,
    expected_return,
    root_mean_square,
    softmax,
    visits,
)
from cast_ray.theory.finite_game import FiniteGame


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
    epsilon: float = 1e-8,
) -> CastTerm:
    """Return the solver's term for ``[S, A]`` shifted advantages, under a policy's visits."""
    policy = softmax(logits)
    signal = TRANSFORMS[transform](shifted)
    rms = float(root_mean_square(policy, visits(game, policy).per_state, signal))
    return CastTerm(signal=signal, scale=rms + epsilon, alpha=alpha)


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
