"""The charts of a run: which figures are drawn, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cast_ray.metrics import StepMetrics
from cast_ray.report.bars import Part, stacked_bars
from cast_ray.report.comparison import Showcase
from cast_ray.report.contents import GroupCounts
from cast_ray.report.episodes import Episode, Evaluation, share_solved
from cast_ray.report.game_words import GameWords, words_of
from cast_ray.report.line_chart import Line, line_chart
from cast_ray.report.phrasing import percent, signed

_SMALL = (330, 180)
_NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart with its words."""

    title: str
    latest: str
    """The newest value in words; may be empty."""
    caption: str
    chart: Markup


def learning_figures(steps: Sequence[StepMetrics], words: GameWords) -> list[Figure]:
    """Return the large charts: success, and the solver's signal."""
    last = steps[-1]
    return [
        Figure(
            title="Success",
            latest=f"{percent(last.success)} of the last step’s episodes",
            caption=(
                "Training: the step’s own episodes, sampled at temperature 1. Validation: a fixed "
                "set of boards that is never trained on, at the evaluation’s temperature."
            ),
            chart=line_chart(
                [
                    _line("training", "a", steps, lambda row: row.success),
                    _line("validation", "b", steps, _validation),
                ],
                title="Success in training and validation over steps",
                x_name="step",
                write=percent,
            ),
        ),
        Figure(
            title="Turns, judged by the solver",
            latest=f"{percent(last.progress_fraction)} progress, "
            f"{percent(last.harmful_fraction)} harmful",
            caption=(
                "Progress: the turn brought the board closer to its goal. Harmful: "
                f"{words.harmful}. The rest left the distance as it was."
            ),
            chart=line_chart(
                [
                    _line("progress", "a", steps, lambda row: row.progress_fraction),
                    _line("harmful", "c", steps, lambda row: row.harmful_fraction),
                ],
                title="Share of turns with progress and of harmful turns over steps",
                x_name="step",
                write=percent,
            ),
        ),
    ]


def turn_figures(steps: Sequence[StepMetrics], words: GameWords) -> list[Figure]:
    """Return the small charts about episodes and turns."""
    failures = _small(
        steps,
        "Episodes lost for good",
        lambda row: row.lost_fraction,
        lambda value: percent(value, digits=1),
        words.failures,
    )
    return [
        _small(
            steps,
            "Mean shifted advantage",
            lambda row: row.shifted_advantage_mean,
            lambda value: signed(value, digits=2),
            words.mean_advantage,
        ),
        _small(
            steps,
            "Turns of an episode",
            lambda row: row.turns_mean,
            lambda value: f"{value:.1f}",
            "Mean over the step; a solved board ends early.",
        ),
        *([failures] if words.failures else []),
        _small(
            steps,
            "Turns without effect",
            lambda row: row.ineffective_fraction,
            lambda value: percent(value, digits=1),
            "Valid actions that changed nothing: something was in the way.",
        ),
        _small(
            steps,
            "Turns without an action",
            lambda row: row.invalid_fraction,
            lambda value: percent(value, digits=1),
            "No action could be read, or the rules forbid it.",
        ),
        _small(
            steps,
            "Tokens per second",
            lambda row: row.tokens_per_s,
            lambda value: f"{value:,.0f}",
            "Tokens that the policy wrote, per second of generation.",
        ),
    ]


def health_figures(steps: Sequence[StepMetrics]) -> list[Figure]:
    """Return the small charts about the learner and the weight sync."""
    divergence = _small(
        steps,
        "Divergence from the reference",
        lambda row: row.kl,
        _plain,
        "KL at the tokens in the loss, in nats, mean over the step’s updates.",
    )
    skipped = _small(
        steps,
        "Skipped updates",
        lambda row: row.skipped_updates,
        _plain,
        "Loss or gradient was not finite: the weights stayed as they were.",
    )
    return [
        _small(steps, "Loss", lambda row: row.loss, _plain, "Mean over the step’s updates."),
        _small(
            steps,
            "Gradient norm",
            lambda row: row.grad_norm,
            _plain,
            "Before clipping, mean over the step’s updates.",
        ),
        _small(
            steps,
            "Clipped tokens",
            lambda row: row.clip_fraction,
            lambda value: percent(value, digits=1),
            "Share of tokens whose ratio left the clip range.",
        ),
        _small(
            steps,
            "Entropy",
            lambda row: row.entropy,
            _plain,
            "Mean over the tokens in the loss, in nats.",
        ),
        _small(
            steps,
            "Logprob difference, mean",
            lambda row: row.logprob_abs_diff,
            _plain,
            "|engine − learner| of the same tokens before any update; in bf16, 0.01 is healthy.",
        ),
        _small(
            steps,
            "Logprob difference, largest",
            lambda row: row.logprob_abs_diff_max,
            _plain,
            "The worst single token of the step.",
        ),
        _small(
            steps,
            "Divergence of engine and learner",
            lambda row: row.rollout_kl,
            _plain,
            "KL(engine || learner) at the step’s tokens, in nats, before any update.",
        ),
        _small(
            steps,
            "Corrected tokens",
            lambda row: row.rollout_clip_fraction,
            lambda value: percent(value, digits=2),
            "Share of tokens whose ratio learner / engine is beyond the cap.",
        ),
        *([divergence] if any(row.kl for row in steps) else []),
        *([skipped] if any(row.skipped_updates for row in steps) else []),
    ]


def group_figure(groups: Sequence[GroupCounts]) -> Figure:
    """Return the chart of groups that the outcome can and cannot tell apart."""
    silent = sum(group.none_solved + group.all_solved for group in groups)
    total = silent + sum(group.mixed for group in groups)
    return Figure(
        title="Groups by outcome",
        latest=f"{percent(silent / total)} of all groups end alike" if total else "",
        caption=(
            "In a group that all attempts solve, or none, every outcome advantage is 0: only the "
            "solver’s credit teaches there."
        ),
        chart=stacked_bars(
            [group.step for group in groups],
            [
                Part(
                    label=label,
                    style=style,
                    values=tuple(float(getattr(group, field)) for group in groups),
                )
                for label, style, field in (
                    ("all solved", "group-all", "all_solved"),
                    ("mixed", "group-mixed", "mixed"),
                    ("none solved", "group-none", "none_solved"),
                )
            ],
            title="Groups that all attempts solved, some, or none, by step",
            write=lambda value: f"{value:.0f}",
            size=(1020, 190),
        ),
    )


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


def _small(
    steps: Sequence[StepMetrics],
    title: str,
    value: Callable[[StepMetrics], float],
    write: Callable[[float], str],
    caption: str,
) -> Figure:
    return Figure(
        title=title,
        latest=write(value(steps[-1])),
        caption=caption,
        chart=line_chart(
            [_line(title, "a", steps, value)],
            title=f"{title} over steps",
            x_name="step",
            write=write,
            size=_SMALL,
        ),
    )


def _line(
    label: str, style: str, steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]
) -> Line:
    return Line(label=label, style=style, points=tuple((row.step, value(row)) for row in steps))


def _validation(row: StepMetrics) -> float:
    return _NAN if row.validation_success is None else row.validation_success


def _plain(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
