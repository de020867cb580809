"""Scored trajectories made by hand, with costs, effects and rewards of one's choice."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cast_ray.rollout.trajectory import Trajectory, to_rollout_batch, with_costs


def trajectory(
    *, group: int, episode: int, effects: tuple[str, ...], reward: float, tokens_per_turn: int = 2
) -> Trajectory:
    """Return a trajectory with one prompt token, and one observation token between turns."""
    num_turns = len(effects)
    starts = tuple(1 + turn * (tokens_per_turn + 1) for turn in range(num_turns))
    ends = tuple(start + tokens_per_turn for start in starts)
    mask = tuple(
        int(any(s <= i < e for s, e in zip(starts, ends, strict=True))) for i in range(ends[-1])
    )
    return Trajectory(
        step=4,
        group=group,
        episode=episode,
        attempt=0,
        game="sokoban",
        tier="mini",
        puzzle_id="0" * 16,
        puzzle="P_X_O",
        turn_budget=12,
        seed=0,
        token_ids=(7,) * ends[-1],
        loss_mask=mask,
        rollout_logprobs=(0.0,) * ends[-1],
        weight_versions=tuple(1 if one else -1 for one in mask),
        turn_starts=starts,
        turn_ends=ends,
        turn_seeds=(0,) * num_turns,
        answers=("",) * num_turns,
        actions=("",) * num_turns,
        effects=effects,
        states=("P_X_O",) * (num_turns + 1),
        reward=reward,
        end_reason="solved" if reward else "turn_budget",
        seconds_generation=0.0,
        seconds_environment=0.0,
    )


def scored(*played: tuple[Trajectory, list[float]]) -> pa.Table:
    """Return trajectories with their costs as one table."""
    batch = to_rollout_batch([one for one, _ in played])
    costs = np.concatenate([np.array(values, dtype=float) for _, values in played])
    return pa.Table.from_batches([with_costs(batch, costs)])


def changed(num_turns: int, *, group: int, episode: int, reward: float) -> Trajectory:
    return trajectory(group=group, episode=episode, effects=("changed",) * num_turns, reward=reward)
