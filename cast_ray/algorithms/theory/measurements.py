"""All numbers on the page about the theorem, measured in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cast_ray.algorithms.theory.approximations import (
    AlongTheWay,
    Curve,
    SmallSignal,
    along_the_way,
    beta_ratio,
    endogenous_gap,
    entropy_paths,
    normaliser_gap,
    small_signal,
)
from cast_ray.algorithms.theory.exact import (
    IdentityErrors,
    TheoremErrors,
    identity_errors,
    theorem_errors,
)
from cast_ray.algorithms.theory.expectations import softmax, visits
from cast_ray.algorithms.theory.finite_game import FiniteGame
from cast_ray.algorithms.theory.objective import outcome_gain

_PERCENTS = (0.1, 0.5, 1.0, 2.0, 3.5, 5.0, 10.0, 15.0, *(float(p) for p in range(20, 81, 10)))
_SUCCESS_PERCENTS = _PERCENTS + tuple(100.0 - p for p in reversed(_PERCENTS[:8]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryNumbers:
    """The measurements."""

    alpha: float
    tau: float
    room: FiniteGame
    two_boxes: FiniteGame
    mean_turns: float
    """Expected length of the uniform policy's episodes in the room; d^pi sums to it."""
    theorem: TheoremErrors
    theorem_two_boxes: TheoremErrors
    identities: IdentityErrors
    small_signal: SmallSignal
    beta_ratio: Curve
    way: AlongTheWay
    normaliser: Curve
    endogenous: Curve
    board_beta: dict[int, Curve]
    """By group size: 1 / (gain of the outcome term), x = success rate of the board in percent."""
    entropies: dict[str, Curve]
    entropies_two_boxes: dict[str, Curve]


def measure(
    room: FiniteGame,
    two_boxes: FiniteGame,
    corridors: Sequence[FiniteGame],
    *,
    alpha: float,
    tau: float,
    seed: int,
) -> TheoryNumbers:
    """Measure everything.

    Args:
        room: small enough for all its episodes to be listed; has deadlocks and walls to run into.
        two_boxes: larger.
        corridors: one puzzle without deadlocks, with rising horizons.
        alpha, tau: as in the paper.
        seed: of the policy at which gradients are compared.
    """
    rng = np.random.default_rng(seed)
    logits, large_logits = (rng.normal(size=g.next_state.shape) for g in (room, two_boxes))
    uniform = softmax(np.zeros_like(logits))
    temperatures = [tenth / 10 for tenth in range(1, 21)]
    return TheoryNumbers(
        alpha=alpha,
        tau=tau,
        room=room,
        two_boxes=two_boxes,
        mean_turns=float(visits(room, uniform).per_state.sum()),
        theorem=theorem_errors(room, logits, alpha=alpha, tau=tau),
        theorem_two_boxes=theorem_errors(
            two_boxes, large_logits, alpha=alpha, tau=tau, with_episodes=False
        ),
        identities=identity_errors(room, corridors[0], logits, alpha=alpha, tau=tau),
        small_signal=small_signal(room, logits, tau=tau, num_halvings=10),
        beta_ratio=beta_ratio([half / 2 for half in range(-24, 1)]),
        way=along_the_way(room, alpha=alpha, tau=tau, num_points=21),
        normaliser=normaliser_gap(room, logits, temperatures=temperatures),
        endogenous=endogenous_gap(corridors, tau=tau),
        board_beta={
            size: tuple((p, 1.0 / outcome_gain(size, p / 100)) for p in _SUCCESS_PERCENTS)
            for size in (8, 64)
        },
        entropies=entropy_paths(room, alpha=alpha, tau=tau, num_steps=40),
        entropies_two_boxes=entropy_paths(two_boxes, alpha=alpha, tau=tau, num_steps=40),
    )
