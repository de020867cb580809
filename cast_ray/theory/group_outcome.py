"""What GRPO's division by sigma does to the task gradient (eq:outcome_advantage, Assumption A3)."""

from __future__ import annotations

import math

import numpy as np

from cast_ray.advantages import outcome_advantage


def outcome_gain(group_size: int, success: float) -> float:
    """Return c with E[sum_t grad log pi * outcome advantage] = c * grad(success), exactly.

    For rewards of 0 and 1 the other members of a group are a binomial count. A win weighs
    E[advantage | win], a loss E[advantage | loss]; since grad E[R] is what a win gains and a loss
    gives up, the expected gradient is their difference times the gradient of the success rate. So
    on one board the direction is that of the task return, as the paper assumes; but c depends on
    the board's success rate, it is no constant that a learning rate could absorb.

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
        gain += chance * (_win(num_wins + 1, group_size) - _loss(num_wins, group_size))
    return gain


def _win(num_wins: int, group_size: int) -> float:
    """Return the advantage of a member that won, of ``num_wins`` in all."""
    return float(outcome_advantage(_rewards(num_wins, group_size))[0])


def _loss(num_wins: int, group_size: int) -> float:
    """Return the advantage of a member that lost."""
    return float(outcome_advantage(_rewards(num_wins, group_size))[-1])


def _rewards(num_wins: int, group_size: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [num_wins, group_size - num_wins])
