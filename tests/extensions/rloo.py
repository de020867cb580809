"""REINFORCE with a leave-one-out baseline: each reward less the mean of the others in its group."""

import numpy as np

from cast_ray.algorithms.credit import Credit


def leave_one_out(credit: Credit) -> np.ndarray:
    """Return ``[R]`` advantages."""
    rewards, advantages = credit.rewards, np.zeros(len(credit.rewards))
    for group in np.unique(credit.groups):
        rows = credit.groups == group
        size = rows.sum()
        if size > 1:
            others = (rewards[rows].sum() - rewards[rows]) / (size - 1)
            advantages[rows] = rewards[rows] - others
    return advantages
