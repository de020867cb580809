"""A reward that prefers short solutions: half of it is for the turns that are left."""

from cast_ray.rollout.trajectory import ScoredTrajectory


def short_solutions(trajectory: ScoredTrajectory) -> float:
    """Return 1 for a win in no time, 0.5 for one in the last turn, 0 for no win."""
    share_left = 1 - len(trajectory.actions) / trajectory.turn_budget
    return trajectory.reward * (0.5 + 0.5 * share_left)
