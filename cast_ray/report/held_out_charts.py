"""The charts of the held-out games: success by distance, and the cost along the shown ones."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cast_ray.report.comparison import Showcase
from cast_ray.report.episodes import Episode, Evaluation, share_solved
from cast_ray.report.figures import Figure
from cast_ray.report.game_words import GameWords, words_of
from cast_ray.report.line_chart import Line, line_chart
from cast_ray.report.phrasing import percent


def distance_figure(
    before: Evaluation | None, after: Evaluation | None, words: GameWords
) -> Figure | None:
    """Return success by the distance of the start board; None without at least two distances."""
    lines = [
        Line(label=name, style=style, points=_by_distance(evaluation.episodes))
        for name, style, evaluation in (("before", "b", before), ("after", "a", after))
        if evaluation is not None and evaluation.episodes
    ]
    if not lines or max(len(line.points) for line in lines) < 2:
        return None
    return Figure(
        title="Success by distance",
        latest="",
        caption=f"Held-out boards by {words.letter} of their start: {words.of_start}",
        chart=line_chart(
            lines,
            title="Success on held-out boards by distance to the goal, before and after",
            x_name=f"{words.letter} of the start board, in {words.unit}s",
            write=percent,
            size=(500, 220),
        ),
    )


def cost_chart(showcase: Showcase) -> Markup:
    """Return the cost-to-go along the shown games."""
    words = words_of(showcase.game)
    games = [("before", "b", showcase.before), ("after", "a", showcase.after)]
    lines = [
        Line(label=name, style=style, points=tuple(enumerate(episode.costs)))
        for name, style, episode in games
        if episode is not None
    ]
    return line_chart(
        lines,
        title=f"Cost-to-go {words.letter} after each turn of the shown games",
        x_name="turn",
        write=lambda value: f"{value:.3g}",
        infinite=words.infinite,
        size=(1020, 200),
    )


def _by_distance(episodes: Sequence[Episode]) -> tuple[tuple[float, float], ...]:
    by_cost: dict[float, list[Episode]] = {}
    for episode in episodes:
        by_cost.setdefault(episode.costs[0], []).append(episode)
    finite = sorted(cost for cost in by_cost if cost < float("inf"))
    return tuple((cost, share_solved(by_cost[cost])) for cost in finite)
