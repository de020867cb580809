"""Where the objectives lead: ascent on tabular policies, and the closed form of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from cast_ray.algorithms.advantages import Array
from tests.theory.expectations import Numbers, action_values, softmax, visits
from tests.theory.finite_game import FiniteGame


def task_advantage(game: FiniteGame, policy: Array) -> Array:
    """Return ``[S, A]`` A_task, averaged over the turns at which a state is met.

    With a horizon the advantage depends on the turn; a policy that is indexed by the state sees its
    mean under d_t(s). States that are never met get 0.
    """
    values = action_values(game, policy, game.task_rewards)
    over_baseline = values - (policy * values).sum(axis=-1, keepdims=True)
    return mean_over_turns(visits(game, policy).turns, over_baseline)


def mean_over_turns(turns: Array, weights: Array) -> Array:
    """Return ``[S, A]`` the mean of ``[H, S, A]`` weights under ``[H, S]`` visits; 0 if unmet."""
    per_state = turns.sum(axis=0)[:, None]
    total = (turns[:, :, None] * weights).sum(axis=0)
    return np.divide(total, per_state, out=np.zeros_like(total), where=per_state > 0)


def closed_form(log_teacher: Array, advantage: Array, beta: float) -> Array:
    """Return ``[S, A]`` pi* proportional to pi_S * exp(A_task / beta) (eq:app_optimal_policy)."""
    return softmax(log_teacher + advantage / beta)


def kl_regularised(policy: Numbers, log_teacher: Array, advantage: Array, beta: float) -> Numbers:
    """Return ``[S]`` E_pi[A_task] - beta * KL(pi || pi_S), with A_task frozen (eq:app_kl)."""
    return (policy * (advantage + beta * (log_teacher - np.log(policy)))).sum(axis=-1)


def cross_entropy_regularised(
    policy: Numbers, log_teacher: Array, advantage: Array, beta: float
) -> Numbers:
    """Return ``[S]`` E_pi[A_task] - beta * H(pi, pi_S), with A_task frozen: no entropy term.

    H is the paper's eq:app_cross_entropy: by eq:app_ce_decomp the divergence and the entropy.
    """
    return (policy * (advantage + beta * log_teacher)).sum(axis=-1)


def entropy(policy: Array) -> Array:
    """Return ``[S]`` entropies in nats (paper, eq:app_entropy)."""
    logs = np.log(policy, out=np.zeros_like(policy), where=policy > 0)
    return -(policy * logs).sum(axis=-1)


def ascend(
    logits: Array, payoff: Callable[[Array], Array], *, rate: float, num_steps: int
) -> Iterator[Array]:
    """Yield ``[S, A]`` logits before the first and after every step of natural gradient ascent.

    For a softmax the natural gradient (the gradient by the inverse Fisher matrix) of a sum over
    actions of pi * payoff is the payoff itself, up to a constant per state; unlike the plain
    gradient's, its steps do not shrink where an action is already rare.

    Args:
        logits: where to start.
        payoff: from a ``[S, A]`` policy to what each action earns.
        rate: step size.
        num_steps: number of steps.
    """
    yield logits
    for _ in range(num_steps):
        logits = logits + rate * payoff(softmax(logits))
        logits = logits - logits.max(axis=-1, keepdims=True)
        yield logits
