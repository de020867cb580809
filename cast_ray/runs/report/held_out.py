"""The held-out boards before and after training: gain, showcase, and their charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from cast_ray.games.wording import GameWording
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
    game: str
    before: Episode | None
    after: Episode | None

    @property
    def has_costs(self) -> bool:
        """Whether a cost-to-go is known: of games with a solver."""
        played = [episode.costs for episode in (self.before, self.after) if episode is not None]
        return not np.isnan(np.concatenate(played)).all()


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
    if not earlier or not later:
        return _only_one(earlier, later)
    both = [puzzle for puzzle in earlier if puzzle in later]
    turned = [
        puzzle
        for puzzle in both
        if share_solved(earlier[puzzle]) < 1 and share_solved(later[puzzle]) > 0
    ]
    if turned:
        chosen = min(turned, key=lambda puzzle: _contrast(earlier[puzzle], later[puzzle]))
        return _turned(earlier[chosen], later[chosen], num_turned=len(turned), num_boards=len(both))
    if not both:
        return _only_one(earlier, {})
    return Showcase(
        reason=(
            "No board was lost before training and solved after it. Shown is the first held-out "
            "board, with the first attempt before and after."
        ),
        game=earlier[both[0]][0].game,
        before=earlier[both[0]][0],
        after=later[both[0]][0],
    )


def _contrast(earlier: list[Episode], later: list[Episode]) -> tuple[float, float, str]:
    first = earlier[0]
    contrast = share_solved(later) - share_solved(earlier)
    return (-contrast, -np.nan_to_num(first.costs[0], posinf=0.0), first.puzzle_id)


def _turned(
    earlier: list[Episode], later: list[Episode], *, num_turned: int, num_boards: int
) -> Showcase:
    num_lost = sum(not episode.is_solved for episode in earlier)
    num_solved = sum(episode.is_solved for episode in later)
    return Showcase(
        reason=(
            "Chosen for its contrast, not as a typical game. This board was lost in "
            f"{num_lost} of {len(earlier)} attempts before training and solved in {num_solved} of "
            f"{len(later)} after it. Shown are the first lost and the first solved attempt. "
            f"{num_turned} of the {num_boards} held-out boards have such a pair."
        ),
        game=earlier[0].game,
        before=next(episode for episode in earlier if not episode.is_solved),
        after=next(episode for episode in later if episode.is_solved),
    )


def _only_one(
    earlier: dict[str, list[Episode]], later: dict[str, list[Episode]]
) -> Showcase | None:
    if not earlier and not later:
        return None
    when, games = ("before", earlier) if earlier else ("after", later)
    first = next(iter(games.values()))[0]
    return Showcase(
        reason=(
            f"Only the games {when} training are stored, so nothing can be compared yet: this is "
            "the first held-out board, the first attempt."
        ),
        game=first.game,
        before=first if earlier else None,
        after=None if earlier else first,
    )


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
    return Figure(
        title="Success by distance",
        caption=f"Held-out boards by {words.letter} of their start: {words.of_start}",
        chart=line_chart(
            lines,
            title="Success on held-out boards, before and after",
            x_name=f"{words.letter} of the start board, in {words.unit}s",
            unit="share",
        ),
    )


def showcase_costs(showcase: Showcase) -> Markup:
    """Return the cost-to-go along the shown games."""
    games = [("before", "b", showcase.before), ("after", "a", showcase.after)]
    played = [(name, style, one.costs) for name, style, one in games if one is not None]
    return cost_chart(showcase.game, played, of="the shown games")


def cost_chart(game: str, played: Sequence[tuple[str, str, Sequence[float]]], *, of: str) -> Markup:
    """Return a chart of the cost-to-go along some games.

    Args:
        game: its name.
        played: name, style of the line, and ``[T + 1]`` costs of each.
        of: what they are, for screen readers.
    """
    words = words_of(game)
    return line_chart(
        [Line(name=name, style=style, points=tuple(enumerate(n))) for name, style, n in played],
        title=f"Cost-to-go {words.letter} of {of}",
        x_name="turn",
        infinite=words.infinite,
    )


def _by_distance(episodes: Sequence[Episode]) -> tuple[tuple[float, float], ...]:
    by_cost: dict[float, list[Episode]] = {}
    for episode in episodes:
        by_cost.setdefault(episode.costs[0], []).append(episode)
    finite = sorted(cost for cost in by_cost if cost < float("inf"))
    return tuple((cost, share_solved(by_cost[cost])) for cost in finite)
