"""What the theory says exactly, measured: differences that must vanish, and some that must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.algorithms.advantages import Array
from tests.theory.ascent import ascend, closed_form, task_advantage
from tests.theory.expectations import (
    Numbers,
    expected_gradient,
    expected_return,
    gradient,
    root_mean_square,
    softmax,
    visits,
)
from tests.theory.finite_game import (
    CREDIT,
    FiniteGame,
    all_episodes,
    gradient_over_episodes,
    shifted_advantages,
)
from tests.theory.objective import (
    beta_eff,
    cast_gradient,
    cast_term,
    cumulative_advantage,
    endogenous_rewards,
    expected_final_cost,
    frozen_objective,
    log_teacher,
    moving_objective,
    task_return,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoremErrors:
    """Largest absolute difference between CAST's expected gradient and that of an objective."""

    largest_entry: float
    """Largest entry of CAST's gradient, to compare the others with."""
    identity: float
    """Identity transform, against task return - beta * cross-entropy."""
    identity_by_episodes: float
    """The same, the expected gradient summed over all episodes one by one."""
    num_episodes: int
    asinh_beta_eff: float
    """asinh, against the weight beta_eff(A) * A / tau."""
    asinh_own_teacher: float
    """asinh, against the constant alpha * tau / (RMS + epsilon) and pi_S of asinh(A + 1)."""
    asinh_normalised: float
    """asinh, against beta_eff(A) * log pi_S as in the corollary: does not vanish."""
    moving_visits: float
    """Identity, against the objective whose visits move with the policy: does not vanish."""
    moving_rms: float
    """Identity, against the objective differentiated through the RMS too: does not vanish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityErrors:
    """Largest absolute differences in the appendix's other statements."""

    performance_difference: float
    performance_difference_augmented: float
    endogenous_reward: float
    """Endogenous reward against -1 - tau * log Z(s)."""
    endogenous_gradient: float
    """Gradient of the return under r_hat minus that under r_tilde, against grad E[N(s_T)]."""
    endogenous_immediate: float
    """Gradient with r_hat as the turn's weight, as CAST uses its signal, against 0."""
    closed_form: float
    """Policy reached by ascent, against pi_S * exp(A_task / beta)."""


def theorem_errors(
    game: FiniteGame, logits: Array, *, alpha: float, tau: float, with_episodes: bool = True
) -> TheoremErrors:
    """Compare both sides of the theorem at one policy.

    Args:
        game: the puzzle.
        logits: ``[S, A]`` of the policy.
        alpha, tau: as in the paper.
        with_episodes: also sum over all episodes one by one; else their number is given as 0.
    """
    shifted = shifted_advantages(game)
    policy = softmax(logits)
    per_state = visits(game, policy).per_state
    plain = cast_term(game, logits, shifted, alpha=alpha, transform="identity")
    bent = cast_term(game, logits, shifted, alpha=alpha, transform="asinh")
    teacher = log_teacher(shifted, tau)
    beta = beta_eff(bent, shifted - 1.0, tau)

    def frozen(log_preferences: Array) -> Array:
        return gradient(lambda x: frozen_objective(game, x, per_state, log_preferences), logits)

    target = frozen(plain.beta(tau) * teacher)
    ours, ours_bent = cast_gradient(game, logits, plain), cast_gradient(game, logits, bent)
    by_episodes = ours
    if with_episodes:
        by_episodes = gradient_over_episodes(game, policy, alpha=alpha, transform="identity")
    own_teacher = log_teacher(bent.signal, tau)
    with_visits = gradient(lambda x: moving_objective(game, x, plain.beta(tau) * teacher), logits)
    with_rms = gradient(
        lambda x: _with_moving_rms(game, x, per_state, shifted, alpha * tau * teacher), logits
    )
    return TheoremErrors(
        largest_entry=_largest(ours),
        identity=_largest(ours - target),
        identity_by_episodes=_largest(by_episodes - target),
        num_episodes=sum(1 for _ in all_episodes(game)) if with_episodes else 0,
        asinh_beta_eff=_largest(ours_bent - frozen(beta * (shifted - 1.0) / tau)),
        asinh_own_teacher=_largest(ours_bent - frozen(bent.beta(tau) * own_teacher)),
        asinh_normalised=_largest(ours_bent - frozen(beta * teacher)),
        moving_visits=_largest(ours - with_visits),
        moving_rms=_largest(ours - with_rms),
    )


def identity_errors(
    room: FiniteGame, corridor: FiniteGame, logits: Array, *, alpha: float, tau: float
) -> IdentityErrors:
    """Check the appendix's statements other than the theorem, eq:app_pdl_applied among them.

    Args:
        room: a puzzle; may have dead states.
        corridor: a puzzle without dead states, for what needs a finite cost everywhere.
        logits: ``[S, A]`` of a policy on ``room``.
        alpha, tau: as in the paper.
    """
    shifted = shifted_advantages(room)
    policy = softmax(logits)
    teacher = log_teacher(shifted, tau)
    beta = cast_term(room, logits, shifted, alpha=alpha, transform="identity").beta(tau)
    augmented = room.task_rewards + beta * teacher
    advantage = task_advantage(room, policy)
    target = closed_form(teacher, advantage, beta)
    *_, last = ascend(
        logits,
        lambda now: advantage + beta * (teacher - np.log(now)),
        rate=0.5 / beta,
        num_steps=60,
    )
    reached = visits(room, policy).per_state > 0
    hats, tildes = corridor_rewards(corridor, tau)
    there = np.zeros_like(hats)
    walk = softmax(there)
    normaliser = (shifted_advantages(corridor) - 1.0) / tau - tildes / tau
    return IdentityErrors(
        performance_difference=_gap(room, policy, np.exp(teacher), room.task_rewards),
        performance_difference_augmented=_gap(room, policy, np.exp(teacher), augmented),
        endogenous_reward=_largest(hats + 1.0 + tau * normaliser),
        endogenous_gradient=_largest(
            return_gradient(corridor, hats, there)
            - return_gradient(corridor, tildes, there)
            - gradient(lambda moved: expected_final_cost(corridor, softmax(moved)), there)
        ),
        endogenous_immediate=_largest(expected_gradient(walk, visits(corridor, walk).turns, hats)),
        closed_form=_largest((softmax(last) - target)[reached]),
    )


def corridor_rewards(corridor: FiniteGame, tau: float) -> tuple[Array, Array]:
    """Return ``[S, A]`` r_hat and ``[S, A]`` r_tilde of the paper's eq:app_endogenous."""
    teacher = log_teacher(shifted_advantages(corridor), tau)
    return endogenous_rewards(corridor, teacher, tau), tau * teacher


def return_gradient(game: FiniteGame, rewards: Array, logits: Array) -> Array:
    """Return ``[S, A]`` the gradient of E[sum of rewards], visits moving with the policy."""
    return gradient(lambda moved: expected_return(game, softmax(moved), rewards), logits)


def _gap(game: FiniteGame, new: Array, old: Array, rewards: Array) -> float:
    difference = expected_return(game, new, rewards) - expected_return(game, old, rewards)
    return abs(float(difference) - cumulative_advantage(game, new, old, rewards))


def _with_moving_rms(
    game: FiniteGame, logits: Numbers, per_state: Array, signal: Array, log_preferences: Array
) -> Any:
    """Return the objective for ``log_preferences`` divided by an RMS that sees the policy."""
    policy = softmax(logits)
    rms = root_mean_square(policy, visits(game, policy).per_state, signal)
    preferred = (policy * log_preferences).sum(axis=-1)
    return task_return(game, logits) + (per_state * preferred).sum() / (rms + CREDIT.epsilon)


def _largest(difference: Array) -> float:
    return float(np.abs(difference).max())
