"""Charts of the metrics over a run's steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

from cast_ray.games.wording import GameWording
from cast_ray.runs.metrics import METRICS, StepMetrics, metric_texts
from cast_ray.runs.report.bars import Part, stacked_bars
from cast_ray.runs.report.line_chart import Figure, Line, line_figure
from cast_ray.runs.report.read import GroupCounts
from cast_ray.runs.report.wording import percent, signed, written

LARGE, SMALL = (500, 230), (330, 180)
"""Width and height of a chart, in pixels."""


def metric_figure(steps: Sequence[StepMetrics], name: str, *, caption: str = "") -> Figure:
    """Return the chart of one metric over the steps, without those that are NaN.

    Args:
        steps: at least one.
        name: of the column.
        caption: empty = what the metric says of itself.
    """
    metric, value = METRICS[name], attrgetter(name)
    write = _WRITE.get(name, _WRITE.get(metric.unit, plain))
    return line_figure(
        metric.label,
        caption or metric_texts()[name],
        [step_line(metric.label, "a", steps, value)],
        beside=written(value(steps[-1]), write),
        spoken=f"{metric.label} over steps",
        x_name="step",
        write=write,
        size=SMALL,
    )


def step_line(
    label: str, style: str, steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]
) -> Line:
    """Return one value of each step as a line."""
    return Line(label=label, style=style, points=tuple((row.step, value(row)) for row in steps))


def is_known(steps: Sequence[StepMetrics], value: Callable[[StepMetrics], float]) -> bool:
    """Return whether a value was measured in any step."""
    return not all(math.isnan(value(row)) for row in steps)


def plain(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}".replace("-", "−")


_WRITE: dict[str, Callable[[float], str]] = {
    "rollout_clip_fraction": lambda value: percent(value, digits=2),
    "share": lambda value: percent(value, digits=1),
    "seconds": lambda value: f"{value:.3g} s",
    "moves": lambda value: signed(value, digits=2),
    "turns": lambda value: f"{value:.1f}",
    "tokens/s": lambda value: f"{value:,.0f}",
}
"""By column or unit."""


def learning_figures(steps: Sequence[StepMetrics], words: GameWording) -> list[Figure]:
    """Return the large charts: success and the turns' credit."""
    last = steps[-1]
    figures = [
        line_figure(
            METRICS["success"].label,
            "Training: the step’s episodes, sampled at temperature 1. Validation: a fixed set of "
            "boards that are never trained on, at the evaluation’s temperature.",
            [
                step_line("training", "a", steps, attrgetter("success")),
                step_line("validation", "b", steps, _validation),
            ],
            beside=f"{percent(last.success)} of the last step’s episodes",
            spoken="Success in training and validation over steps",
            x_name="step",
            write=percent,
            size=LARGE,
        ),
        line_figure(
            f"Turns, judged by {words.judge}",
            f"Progress: {words.progress}. Harmful: {words.harmful}. The rest did neither.",
            [
                step_line("progress", "a", steps, attrgetter("progress_fraction")),
                step_line("harmful", "c", steps, attrgetter("harmful_fraction")),
            ],
            beside=f"{percent(last.progress_fraction)} progress, "
            f"{percent(last.harmful_fraction)} harmful",
            spoken="Share of turns with progress and of harmful turns over steps",
            x_name="step",
            write=percent,
            size=LARGE,
        ),
    ]
    return figures if words.judge else figures[:1]


def turn_figures(steps: Sequence[StepMetrics], words: GameWording) -> list[Figure]:
    """Return the small charts about episodes and turns."""
    credit = metric_figure(steps, "shifted_advantage_mean", caption=words.mean_advantage)
    losses = metric_figure(steps, "lost_fraction", caption=words.failures)
    has_shares = any(row.reward_mean != row.success for row in steps)
    return [
        *([metric_figure(steps, "reward_mean")] if has_shares else []),
        *([credit] if words.judge else []),
        metric_figure(steps, "turns_mean"),
        *([losses] if words.failures else []),
        metric_figure(steps, "ineffective_fraction"),
        metric_figure(steps, "invalid_fraction"),
        metric_figure(steps, "tokens_per_s"),
    ]


def health_figures(steps: Sequence[StepMetrics]) -> list[Figure]:
    """Return the small charts about the learner and the weight sync."""
    always = ("loss", "grad_norm", "clip_fraction", "entropy", "logprob_abs_diff")
    always += ("logprob_abs_diff_max", "rollout_kl", "rollout_clip_fraction")
    if_any = [name for name in ("kl", "skipped_updates") if any(map(attrgetter(name), steps))]
    return [metric_figure(steps, name) for name in (*always, *if_any)]


def group_figure(groups: Sequence[GroupCounts]) -> Figure:
    """Return the chart of groups with mixed outcomes and with equal ones."""
    silent = sum(group.none_solved + group.all_solved for group in groups)
    total = silent + sum(group.mixed for group in groups)
    return Figure(
        title="Groups by outcome",
        beside=f"{percent(silent / total)} of all groups end alike" if total else "",
        caption=(
            "If all attempts of a group solve their puzzle, or none does, every outcome advantage "
            "is 0 and only the turns’ credit remains."
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
    return math.nan if row.validation_success is None else row.validation_success
