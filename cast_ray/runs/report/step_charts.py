"""The charts of a run: which figures are drawn, and what they say.

A chart with its words, and the charts of one figure over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from markupsafe import Markup
from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.line_chart import Line, line_chart
from cast_ray.runs.report.wording import written
from collections.abc import Sequence
from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.bars import Part, stacked_bars
from cast_ray.runs.report.read import GroupCounts
from cast_ray.games.wording import GameWording
from cast_ray.runs.report.line_chart import line_chart
from cast_ray.runs.report.wording import percent, signed


SMALL = (330, 180)
"""Width and height of a small chart, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart with its words."""

    title: str
    latest: str
    """The newest value in words; may be empty."""
    caption: str
    chart: Markup


def small_figure(
    steps: Sequence[StepMetrics],
    title: str,
    value: Callable[[StepMetrics], float],
    write: Callable[[float], str],
    caption: str,
) -> Figure:
    """Return the chart of one figure; a NaN is left out, and no newest value in words."""
    return Figure(
        title=title,
        latest=written(value(steps[-1]), write),
        caption=caption,
        chart=line_chart(
            [step_line(title, "a", steps, value)],
            title=f"{title} over steps",
            x_name="step",
            write=write,
            size=SMALL,
        ),
    )


def step_line(
    label: str, style: str, steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]
) -> Line:
    """Return one figure of each step as a line."""
    return Line(label=label, style=style, points=tuple((row.step, value(row)) for row in steps))


def is_known(steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]) -> bool:
    """Return whether a figure was measured at any step."""
    return not all(math.isnan(value(row)) for row in steps)


def plain(value: float) -> str:
    """Return a number in three digits."""
    return f"{value:.3g}".replace("-", "−")


_NAN = float("nan")


def learning_figures(steps: Sequence[StepMetrics], words: GameWording) -> list[Figure]:
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
                    step_line("training", "a", steps, lambda row: row.success),
                    step_line("validation", "b", steps, _validation),
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
                    step_line("progress", "a", steps, lambda row: row.progress_fraction),
                    step_line("harmful", "c", steps, lambda row: row.harmful_fraction),
                ],
                title="Share of turns with progress and of harmful turns over steps",
                x_name="step",
                write=percent,
            ),
        ),
    ]


def turn_figures(steps: Sequence[StepMetrics], words: GameWording) -> list[Figure]:
    """Return the small charts about episodes and turns."""
    failures = small_figure(
        steps,
        "Episodes lost for good",
        lambda row: row.lost_fraction,
        lambda value: percent(value, digits=1),
        words.failures,
    )
    return [
        small_figure(
            steps,
            "Mean shifted advantage",
            lambda row: row.shifted_advantage_mean,
            lambda value: signed(value, digits=2),
            words.mean_advantage,
        ),
        small_figure(
            steps,
            "Turns of an episode",
            lambda row: row.turns_mean,
            lambda value: f"{value:.1f}",
            "Mean over the step; a solved board ends early.",
        ),
        *([failures] if words.failures else []),
        small_figure(
            steps,
            "Turns without effect",
            lambda row: row.ineffective_fraction,
            lambda value: percent(value, digits=1),
            "Valid actions that changed nothing: something was in the way.",
        ),
        small_figure(
            steps,
            "Turns without an action",
            lambda row: row.invalid_fraction,
            lambda value: percent(value, digits=1),
            "No action could be read, or the rules forbid it.",
        ),
        small_figure(
            steps,
            "Tokens per second",
            lambda row: row.tokens_per_s,
            lambda value: f"{value:,.0f}",
            "Tokens that the policy wrote, per second of generation.",
        ),
    ]


def health_figures(steps: Sequence[StepMetrics]) -> list[Figure]:
    """Return the small charts about the learner and the weight sync."""
    divergence = small_figure(
        steps,
        "Divergence from the reference",
        lambda row: row.kl,
        plain,
        "KL at the tokens in the loss, in nats, mean over the step’s updates.",
    )
    skipped = small_figure(
        steps,
        "Skipped updates",
        lambda row: row.skipped_updates,
        plain,
        "Loss or gradient was not finite: the weights stayed as they were.",
    )
    return [
        small_figure(steps, "Loss", lambda row: row.loss, plain, "Mean over the step’s updates."),
        small_figure(
            steps,
            "Gradient norm",
            lambda row: row.grad_norm,
            plain,
            "Before clipping, mean over the step’s updates.",
        ),
        small_figure(
            steps,
            "Clipped tokens",
            lambda row: row.clip_fraction,
            lambda value: percent(value, digits=1),
            "Share of tokens whose ratio left the clip range.",
        ),
        small_figure(
            steps,
            "Entropy",
            lambda row: row.entropy,
            plain,
            "Mean over the tokens in the loss, in nats.",
        ),
        small_figure(
            steps,
            "Logprob difference, mean",
            lambda row: row.logprob_abs_diff,
            plain,
            "|engine − learner| of the same tokens before any update; in bf16, 0.01 is healthy.",
        ),
        small_figure(
            steps,
            "Logprob difference, largest",
            lambda row: row.logprob_abs_diff_max,
            plain,
            "The worst single token of the step.",
        ),
        small_figure(
            steps,
            "Divergence of engine and learner",
            lambda row: row.rollout_kl,
            plain,
            "KL(engine || learner) at the step’s tokens, in nats, before any update.",
        ),
        small_figure(
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


def _validation(row: StepMetrics) -> float:
    return _NAN if row.validation_success is None else row.validation_success
