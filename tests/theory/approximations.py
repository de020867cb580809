"""The approximate statements of the theory, as curves: how large the error is, and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cast_ray.algorithms.advantages import Array
from tests.theory.ascent import ascend, entropy, mean_over_turns, task_advantage
from tests.theory.exact import corridor_rewards, return_gradient
from tests.theory.expectations import (
    action_values,
    expected_gradient,
    gradient,
    softmax,
    visits,
)
from tests.theory.finite_game import FiniteGame, shifted_advantages
from tests.theory.objective import (
    CastTerm,
    beta_eff,
    cast_gradient,
    cast_term,
    log_teacher,
    moving_objective,
    small_signal_beta,
)

Curve = tuple[tuple[float, float], ...]
"""x and y of each point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallSignal:
    """Constant beta with 1/sqrt(2), advantages scaled down by 2**-x (the limit of the theorem)."""

    error: Curve
    """log10 of the length of the difference of the solver terms' gradients."""
    relative_error: Curve
    """log10 of the same, as a share of the solver term's gradient."""
    error_slope: float
    """Power of the scale with which the error falls, over the last four halvings."""
    relative_slope: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlongTheWay:
    """At policies on the way from uniform (x = 0) to the teacher (x = 100)."""

    constant_beta: Curve
    """Error of the constant beta with 1/sqrt(2), as a share of the solver term's gradient."""
    small_signals: Curve
    """Share of turns with |A| <= 1, where the paper calls the signal small."""
    cosine: Curve
    """Between CAST's gradient and that of the objective whose visits move."""
    cosine_solver_term: Curve
    """The same of the solver terms alone, for any alpha."""
    moving_part: Curve
    """Gradient that frozen visits leave out, as a share of the solver term's gradient."""
    beta: Curve
    """beta = alpha * tau / (RMS + epsilon), identity transform."""


def small_signal(game: FiniteGame, logits: Array, *, tau: float, num_halvings: int) -> SmallSignal:
    """Scale all advantages A by 1, 1/2, 1/4, ... and compare asinh with its linear part."""
    advantage = shifted_advantages(game) - 1.0
    points: list[tuple[float, float]] = []
    for halvings in range(num_halvings + 1):
        points.append(_constant_beta_error(game, logits, 1.0 + advantage * 0.5**halvings, tau))
    errors, shares = np.log10(np.array(points)).T
    return SmallSignal(
        error=_curve(range(num_halvings + 1), errors),
        relative_error=_curve(range(num_halvings + 1), shares),
        error_slope=_slope(errors),
        relative_slope=_slope(shares),
    )


def beta_ratio(advantages: Sequence[float]) -> Curve:
    """Return beta_eff(A) over the constant beta with 1/sqrt(2), at the given A."""
    term = CastTerm(signal=np.zeros((1, 1)), scale=1.0, alpha=1.0)
    values = beta_eff(term, np.array(advantages, dtype=np.float64), 1.0)
    return _curve(advantages, values / small_signal_beta(term, 1.0))


def normaliser_gap(game: FiniteGame, logits: Array, *, temperatures: Sequence[float]) -> Curve:
    """Return, by tau, the error of beta_eff * log pi_S, as a share of the solver term's gradient.

    log pi_S = A / tau - log Z(s), and beta_eff depends on the action: log Z is no baseline here.
    """
    shifted = shifted_advantages(game)
    policy = softmax(logits)
    turns = visits(game, policy).turns
    term = cast_term(game, logits, shifted, alpha=1.0, transform="asinh")
    ours = expected_gradient(policy, turns, term.solver_advantage)
    shares: list[float] = []
    for tau in temperatures:
        weights = beta_eff(term, shifted - 1.0, tau) * log_teacher(shifted, tau)
        theirs = expected_gradient(policy, turns, weights)
        shares.append(float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours)))
    return _curve(temperatures, shares)


def along_the_way(game: FiniteGame, *, alpha: float, tau: float, num_points: int) -> AlongTheWay:
    """Follow the policies exp(x / 100 * shifted advantage / tau), normalised."""
    shifted = shifted_advantages(game)
    teacher = log_teacher(shifted, tau)
    percents = np.linspace(0.0, 100.0, num_points)
    rows: list[tuple[float, ...]] = []
    for percent in percents:
        logits = percent / 100.0 * shifted / tau
        policy = softmax(logits)
        played = visits(game, policy)
        share = played.per_state[:, None] * policy
        term = cast_term(game, logits, shifted, alpha=alpha, transform="identity")
        ours = cast_gradient(game, logits, term)
        log_preferences = term.beta(tau) * teacher
        theirs = gradient(lambda moved, p=log_preferences: moving_objective(game, moved, p), logits)
        solver_part = expected_gradient(policy, played.turns, alpha * term.solver_advantage)
        rows.append(
            (
                _constant_beta_error(game, logits, shifted, tau)[1],
                float(share[np.abs(shifted - 1.0) <= 1.0].sum() / share.sum()),
                _cosine(ours, theirs),
                _cosine(solver_part, solver_part + theirs - ours),
                float(np.linalg.norm(theirs - ours) / np.linalg.norm(solver_part)),
                term.beta(tau),
            )
        )
    columns = [_curve(percents, column) for column in np.array(rows).T]
    return AlongTheWay(
        constant_beta=columns[0],
        small_signals=columns[1],
        cosine=columns[2],
        cosine_solver_term=columns[3],
        moving_part=columns[4],
        beta=columns[5],
    )


def endogenous_gap(corridors: Sequence[FiniteGame], *, tau: float) -> Curve:
    """Return, by horizon, how far the gradients under r_hat and r_tilde are apart, as a share.

    Shaping adds N(s_T) - N(s_0) to a return; N(s_T) is 0 only where the episode was won.
    """
    points: list[tuple[float, float]] = []
    for corridor in corridors:
        hats, tildes = corridor_rewards(corridor, tau)
        there = np.zeros_like(hats)
        of_hats = return_gradient(corridor, hats, there)
        of_tildes = return_gradient(corridor, tildes, there)
        share = np.linalg.norm(of_hats - of_tildes) / np.linalg.norm(of_tildes)
        points.append((float(corridor.horizon), float(share)))
    return tuple(points)


def entropy_paths(
    game: FiniteGame, *, alpha: float, tau: float, num_steps: int
) -> dict[str, Curve]:
    """Return the mean entropy over natural gradient ascent from the uniform policy, in nats.

    ``kl``: task advantage frozen, KL to the teacher. ``cross_entropy``: the same without the
    entropy term. Both weigh the states by the visits of the uniform policy. ``cast``: the training
    rule itself with asinh, with everything recomputed at every step and states by its own visits.
    """
    shifted = shifted_advantages(game)
    uniform = np.zeros_like(shifted)
    policy = softmax(uniform)
    teacher = log_teacher(shifted, tau)
    beta = cast_term(game, uniform, shifted, alpha=alpha, transform="identity").beta(tau)
    advantage = task_advantage(game, policy)
    at_start = visits(game, policy).per_state

    def path(payoff: Callable[[Array], Array], *, rate: float, own_visits: bool) -> Curve:
        means: list[float] = []
        for logits in ascend(uniform, payoff, rate=rate, num_steps=num_steps):
            now = softmax(logits)
            weight = visits(game, now).per_state if own_visits else at_start
            means.append(float((weight * entropy(now)).sum() / weight.sum()))
        return _curve(range(num_steps + 1), means)

    def kl(now: Array) -> Array:
        return advantage + beta * (teacher - np.log(now))

    return {
        "kl": path(kl, rate=0.25 / beta, own_visits=False),
        "cross_entropy": path(
            lambda _: advantage + beta * teacher, rate=0.25 / beta, own_visits=False
        ),
        "cast": path(
            lambda now: cast_payoff(game, now, shifted, alpha), rate=0.25 / beta, own_visits=True
        ),
    }


def cast_payoff(game: FiniteGame, policy: Array, shifted: Array, alpha: float) -> Array:
    """Return ``[S, A]`` the mean combined advantage of each action: CAST's natural gradient."""
    played = visits(game, policy)
    logits = np.log(np.maximum(policy, np.finfo(np.float64).tiny))  # an action may have died out
    term = cast_term(game, logits, shifted, alpha=alpha, transform="asinh")
    values = action_values(game, policy, game.task_rewards)
    outcome = values - (policy[0] * values[0, 0]).sum()
    return mean_over_turns(played.turns, outcome + alpha * term.solver_advantage)


def _constant_beta_error(
    game: FiniteGame, logits: Array, shifted: Array, tau: float
) -> tuple[float, float]:
    """Return how far the solver terms' gradients are apart, and that as a share of CAST's."""
    policy = softmax(logits)
    turns = visits(game, policy).turns
    term = cast_term(game, logits, shifted, alpha=1.0, transform="asinh")
    ours = expected_gradient(policy, turns, term.solver_advantage)
    weights = small_signal_beta(term, tau) * log_teacher(shifted, tau)
    error = float(np.linalg.norm(expected_gradient(policy, turns, weights) - ours))
    return error, error / float(np.linalg.norm(ours))


def _cosine(one: Array, other: Array) -> float:
    return float((one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other))


def _curve(x: Sequence[float] | range | Array, y: Sequence[float] | Array) -> Curve:
    return tuple((float(a), float(b)) for a, b in zip(x, y, strict=True))


def _slope(logs: Array) -> float:
    """Return minus the slope of log10 values against log10 of the scale, over four halvings."""
    return float(-(logs[-1] - logs[-5]) / (4 * np.log10(2.0)))
