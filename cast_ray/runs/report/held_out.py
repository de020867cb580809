"""The held-out boards before and after training: gain, showcase, success by distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.algorithms.advantages import estimated_advantage
from cast_ray.algorithms.shifted import shifted_advantages
from cast_ray.config.train import TrainConfig
from cast_ray.games.wording import GameWording
from cast_ray.rollout.trajectory import costs_of
from cast_ray.runs.report.episode import shown_episode
from cast_ray.runs.report.figures import Figure, Line, line_chart
from cast_ray.runs.report.read import Episode, Evaluation, share_solved
from cast_ray.runs.report.wording import words_of
from cast_ray.statistics import Estimate, mean_estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What training changed on the boards that were played before and after."""

    difference: Estimate
    """Mean over boards of the share solved after minus before."""
    num_better: int
    """Boards solved more often than before."""
    num_same: int
    num_worse: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Showcase:
    """An attempt at a puzzle before training and one after, and why they are shown."""

    reason: str
    games: Mapping[str, Episode]
    """By ``before`` and ``after``; one of them may be missing."""


def gain(before: Evaluation, after: Evaluation, *, seed: int) -> Gain | None:
    """Return the change on the boards that both evaluations hold; None if there are none."""
    earlier, later = before.by_puzzle(), after.by_puzzle()
    both = [puzzle for puzzle in earlier if puzzle in later]
    if not both:
        return None
    change = np.array([share_solved(later[p]) - share_solved(earlier[p]) for p in both])
    return Gain(
        difference=mean_estimate(change, seed=seed),
        num_better=int((change > 0).sum()),
        num_same=int((change == 0).sum()),
        num_worse=int((change < 0).sum()),
    )


def choose_showcase(before: Evaluation | None, after: Evaluation | None) -> Showcase | None:
    """Return the games to show; None if no held-out game is stored.

    A board that was lost before and solved after is preferred: the one with the clearest contrast,
    then the one farthest from its goal, then the smallest id.
    """
    earlier = before.by_puzzle() if before else {}
    later = after.by_puzzle() if after else {}
    both = [puzzle for puzzle in earlier if puzzle in later]
    turned = [p for p in both if share_solved(earlier[p]) < 1 and share_solved(later[p]) > 0]
    if turned:
        chosen = min(turned, key=lambda puzzle: _contrast(earlier[puzzle], later[puzzle]))
        lost = [one for one in earlier[chosen] if not one.is_solved]
        solved = [one for one in later[chosen] if one.is_solved]
        return Showcase(
            reason="Chosen for its contrast, not as a typical game: lost in "
            f"{len(lost)} of {len(earlier[chosen])} attempts before training and solved in "
            f"{len(solved)} of {len(later[chosen])} after it, the first of each shown here. "
            f"{len(turned)} of the {len(both)} held-out boards have such a pair.",
            games={"before": lost[0], "after": solved[0]},
        )
    if both:
        return Showcase(
            reason="No board was lost before training and solved after it: this is the first "
            "attempt at the first held-out board.",
            games={"before": earlier[both[0]][0], "after": later[both[0]][0]},
        )
    when, games = ("before", earlier) if earlier else ("after", later)
    if not games:
        return None
    return Showcase(
        reason=f"Only the games {when} training are stored: this is the first attempt at the first "
        "held-out board.",
        games={when: next(iter(games.values()))[0]},
    )


def _contrast(earlier: list[Episode], later: list[Episode]) -> tuple[float, float, str]:
    first = earlier[0]
    contrast = share_solved(later) - share_solved(earlier)
    return (-contrast, -np.nan_to_num(first.cost, posinf=0.0), first.puzzle_id)


def with_credit(episode: Episode, config: TrainConfig) -> dict[str, Any]:
    """Return an episode for the page's player, with what earned its turns their credit."""
    row, costs = episode.row, costs_of(episode.row)
    if config.oracle == "turn_reward":
        name, credit = "reward", estimated_advantage(np.asarray(row["cost_estimates"]))
    else:
        rescue = config.advantage.rescue
        game, puzzle = row["game"], row["puzzle"]
        name = "shifted"
        credit = shifted_advantages(costs, row["effects"], game=game, puzzle=puzzle, rescue=rescue)
    has_credit = bool(words_of(row["game"], config.oracle).judge)
    values = [{name: value} if has_credit else None for value in credit.tolist()]
    return shown_episode(row, costs.tolist(), advantages=values)


def distance_figure(
    before: Evaluation | None, after: Evaluation | None, words: GameWording
) -> Figure | None:
    """Return success by the distance of the start board; None if there are fewer than two."""
    lines = [
        Line(name=name, style=style, points=_by_distance(evaluation.episodes))
        for name, style, evaluation in (("before", "b", before), ("after", "a", after))
        if evaluation is not None and evaluation.episodes
    ]
    if not lines or max(len(line.points) for line in lines) < 2:
        return None
    return line_chart(
        "Success by distance",
        f"Held-out boards, before and after, by the {words.letter} of their start, where finite.",
        lines,
        x_name=f"{words.letter} of the start board, in {words.unit}s",
        unit="share",
    )


def _by_distance(episodes: Sequence[Episode]) -> tuple[tuple[float, float], ...]:
    by_cost: dict[float, list[Episode]] = {}
    for episode in episodes:
        by_cost.setdefault(episode.cost, []).append(episode)
    finite = sorted(cost for cost in by_cost if cost < float("inf"))
    return tuple((cost, share_solved(by_cost[cost])) for cost in finite)
