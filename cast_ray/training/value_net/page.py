"""The page about a value network: how good a teacher it is, and where it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cast_ray.files import write_text
from cast_ray.runs.report.episode import shown_boards
from cast_ray.runs.report.figures import Figure, Line, line_chart, placeholder
from cast_ray.runs.report.page import page_templates
from cast_ray.runs.report.wording import percent, words_of
from cast_ray.statistics import Estimate, Success
from cast_ray.training.value_net.quality import (
    JudgedState,
    TeacherQuality,
    by_distance,
    optimal_choice,
    sign_agreement,
)

if TYPE_CHECKING:
    from cast_ray.training.value_net.analysis import ValueNetAnalysis

_SCALE = 2.0
"""Of the credit that the page shows (paper, tab:dqn_hp)."""
_FEWEST = 10
"""States or moves behind a point of a chart, at least."""
_MOST_BOARDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One figure in words."""

    name: str
    figure: str
    interval: str
    """Of 95%, over boards."""
    meaning: str


def write_value_net_page(
    path: Path,
    analysis: ValueNetAnalysis,
    *,
    game: str,
    tier: str,
    num_boards: int,
) -> None:
    """Write the page, one file that asks no other host for anything.

    Args:
        path: of the page.
        analysis: what the page shows.
        game: name of the game.
        tier: of the boards.
        num_boards: how many they are.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    finite = [state for state in analysis.states if math.isfinite(state.cost)]
    text = (
        page_templates()
        .get_template("value_net.html")
        .render(
            game=game.replace("_", " ").title(),
            tier=tier,
            num_boards=num_boards,
            quality=analysis.quality,
            headlines=analysis.headlines(game),
            figures=_figures(finite, game),
            wrong=_most_wrong(finite, game),
        )
    )
    write_text(path, text)


def headlines(game: str, quality: TeacherQuality, play: dict[str, Success]) -> list[Headline]:
    """Return how good a teacher a network is, and how often it solves boards by itself.

    Args:
        game: name of the game.
        quality: of all states together.
        play: boards solved, by the name of the way of playing.
    """
    letter = words_of(game).letter
    rows: list[tuple[str, Estimate | None, Callable[[float], str], str]] = [
        (
            f"Spearman’s correlation of V with −{letter}",
            quality.spearman,
            lambda value: f"{value:.3f}".replace("-", "−"),
            "whether nearer states have larger values",
        ),
        (
            "Signs that agree",
            quality.sign_agreement,
            _share,
            f"of moves that change {letter}: whether progress earns and regress costs",
        ),
        (
            "Losing moves that cost something",
            quality.loss_agreement,
            _share,
            "of moves after which nothing can be won",
        ),
        (
            "Best moves that are optimal",
            quality.optimal_choice,
            _share,
            "of states: whether the move with the largest value after it is one of the solver’s",
        ),
    ]
    rows += [
        (
            f"Boards solved, {name}",
            Estimate(value=rate.success, low=rate.low, high=rate.high, n=rate.n),
            _share,
            "by the network alone, within the turns of the tier",
        )
        for name, rate in play.items()
    ]
    return [
        Headline(
            name=name,
            figure=write(found.value),
            interval=f"{write(found.low)} to {write(found.high)}",
            meaning=meaning,
        )
        for name, found, write, meaning in rows
        if found is not None
    ]


def _share(value: float) -> str:
    return percent(value, digits=1)


def _figures(states: Sequence[JudgedState], game: str) -> list[Figure]:
    words = words_of(game)
    groups = {cost: of for cost, of in by_distance(states).items() if len(of) >= _FEWEST}
    distance = f"{words.letter}, in {words.unit}s"
    return [
        line_chart(
            "Value by distance",
            "The lines should fall, and differ from one distance to the next.",
            _quantiles({cost: [one.value for one in of] for cost, of in groups.items()}),
            x_name=distance,
            from_zero=False,
        ),
        line_chart(
            "Credit by progress",
            f"What a move earns, {_SCALE:g}·(V after − V before), by how many {words.unit}s nearer "
            "it leads.",
            _quantiles(_credit(states)),
            x_name=f"drop of {words.letter}",
        ),
        line_chart(
            "Signs that agree, by distance",
            "Of moves that change the distance.",
            [_shares("signs", groups, sign_agreement)],
            x_name=distance,
            unit="share",
        ),
        line_chart(
            "Best moves that are optimal, by distance",
            "A wrong sign hurts most where one move matters; a wrong choice shows where.",
            [_shares("optimal", groups, optimal_choice)],
            x_name=distance,
            unit="share",
        ),
    ]


def _quantiles(values: dict[int, list[float]]) -> list[Line]:
    """Return three lines, of groups of values that are large enough."""
    shown = {place: of for place, of in sorted(values.items()) if len(of) >= _FEWEST}
    return [
        Line(
            name=label,
            style=style,
            points=tuple((place, float(np.quantile(of, share))) for place, of in shown.items()),
        )
        for label, style, share in (("90%", "b", 0.9), ("median", "a", 0.5), ("10%", "c", 0.1))
    ]


def _credit(states: Sequence[JudgedState]) -> dict[int, list[float]]:
    """Return the credit of all moves between finite costs, by the drop of N."""
    found: dict[int, list[float]] = {}
    for state in states:
        for cost, value in zip(state.costs_after, state.values_after, strict=True):
            if math.isfinite(cost):
                drop = int(state.cost - cost)
                found.setdefault(drop, []).append(_SCALE * (value - state.value))
    return found


def _shares(
    name: str,
    groups: dict[int, tuple[JudgedState, ...]],
    figure: Callable[[Sequence[JudgedState]], float | None],
) -> Line:
    points = ((cost, figure(of)) for cost, of in groups.items())
    known = tuple((float(cost), share) for cost, share in points if share is not None)
    return Line(name=name, style="a", points=known)


def _most_wrong(states: Sequence[JudgedState], game: str) -> list[dict[str, Any]]:
    """Return the boards whose chosen move loses most compared with the best one."""
    by_loss = sorted([state for state in states if state.actions], key=_loss, reverse=True)
    worst = [state for state in by_loss if _loss(state) > 0][:_MOST_BOARDS]
    letter = words_of(game).letter
    return [
        {
            "board": placeholder("board", {"game": game, **shown_boards(game, [state.board])[0]}),
            "choice": state.actions[state.network_choice],
            "best": state.actions[int(np.argmin(state.costs_after))],
            "loss": "after it nothing can be won"
            if math.isinf(_loss(state))
            else f"{letter} {state.costs_after[state.network_choice]:.0f} instead of "
            f"{min(state.costs_after):.0f}",
        }
        for state in worst
    ]


def _loss(state: JudgedState) -> float:
    """Return how many moves farther the network's choice leads than the best one."""
    best = min(state.costs_after)
    return 0.0 if math.isinf(best) else state.costs_after[state.network_choice] - best
