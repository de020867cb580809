"""DAPO's dynamic sampling: groups that all solve or none make way for other puzzles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cast_ray.puzzles import Puzzle


def play_informative(
    draw: Callable[[int], list[Puzzle]],
    play: Callable[[list[Puzzle], int], pa.Table],
    *,
    num_groups: int,
    further_draws: int,
) -> tuple[pa.Table, int]:
    """Return a step's scored trajectories, and how many groups were played and dropped.

    A group is informative if its rewards differ; the others are replaced, draw by draw. Where too
    few are found, uninformative ones fill the step up to its full number, those played first.

    Args:
        draw: from the number of a draw to its puzzles, ``num_groups`` of them; 0 is the first.
        play: plays puzzles as groups that are numbered from the second argument on, and returns
            them ordered by group.
        num_groups: groups of the step.
        further_draws: most draws after the first; 0 = the step is what comes up.
    """
    table, num_played = play(draw(0), 0), num_groups
    for number in range(1, further_draws + 1):
        num_missing = num_groups - len(informative_groups(table))
        if num_missing == 0:
            break
        more = play(draw(number)[:num_missing], num_played)
        table = pa.concat_tables([table, more])
        num_played += num_missing
    if num_played == num_groups:
        return table, 0
    informative = informative_groups(table)
    others = np.setdiff1d(table["group"].to_numpy(), informative)
    kept = np.concatenate([informative, others[: num_groups - len(informative)]])
    is_kept = np.isin(table["group"].to_numpy(), kept)
    return table.filter(pa.array(is_kept)).combine_chunks(), num_played - num_groups


def informative_groups(table: pa.Table) -> np.ndarray:
    """Return the numbers of the groups whose rewards are not all the same, ascending."""
    groups, rewards = table["group"].to_numpy(), table["reward"].to_numpy()
    numbers = np.unique(groups)
    differ = [np.ptp(rewards[groups == number]) > 0 for number in numbers]
    return numbers[np.array(differ, dtype=bool)]
