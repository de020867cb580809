"""The charts of how a run's episodes were played, and of where its time went.

Values that were not measured are left out; a chart without any value is left out, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from markupsafe import Markup

from cast_ray.runs.metrics import StepMetrics, metric_texts
from cast_ray.runs.report.bars import Part, stacked_bars
from cast_ray.runs.report.line_chart import Figure, Line, line_figure
from cast_ray.runs.report.step_charts import (
    SMALL,
    is_known,
    metric_figure,
    plain,
    step_line,
)
from cast_ray.runs.report.step_table import TimeSplit, time_split, was_watched
from cast_ray.runs.report.wording import count, duration, percent, written

_STYLES = "abcd"
_STALE_PARTS = 4  # the last one holds everything older, too

Value = Callable[[StepMetrics], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine over all steps, as text."""

    name: str
    busy: str
    """Mean share of the steps' time with a request running."""
    idle: str
    away: int
    """Steps at whose end the engine did not answer."""


def engine_rows(steps: Sequence[StepMetrics]) -> list[EngineRow]:
    """Return how busy each engine was, averaged over the steps in which that is known."""
    watched = [row for row in steps if row.engine_busy_fractions]
    rows: list[EngineRow] = []
    for index in range(_num_engines(watched)):
        shares = [_busy(row, index) for row in watched]
        known = [share for share in shares if not math.isnan(share)]
        mean = _mean(known)
        rows.append(
            EngineRow(
                name=f"engine {index}",
                busy=written(mean, lambda share: percent(share, digits=1)),
                idle=written(1 - mean, lambda share: percent(max(0.0, share), digits=1)),
                away=len(shares) - len(known),
            )
        )
    return rows


def rollout_figures(steps: Sequence[StepMetrics], *, max_staleness: int) -> list[Figure]:
    """Return the small charts about engines, queues, waits, caches, memory and faults."""
    if max_staleness:
        tail = "Meanwhile the engines play the next step’s episodes."
        waiting = "With max_staleness above 0 the next step’s episodes use the engines meanwhile."
    else:
        tail = "With max_staleness 0 nothing else may be played meanwhile."
        waiting = "With max_staleness 0 their slots in the engines stay empty."
    figures = [
        _engines(steps),
        _several(
            steps,
            "Waiting requests",
            (
                ("mean", attrgetter("engine_queue_mean")),
                ("largest", attrgetter("engine_queue_max")),
            ),
            lambda value: f"{value:.3g}",
            "Requests that wait in an engine for a slot, over engines and seconds.",
        ),
        _one(steps, "seconds_queueing"),
        _one(steps, "seconds_long_tail", tail),
        _one(steps, "waiting_fraction", waiting),
        _several(
            steps,
            "Cache hits",
            (
                ("prefixes", attrgetter("prefix_hit_fraction")),
                ("solvers", attrgetter("oracle_hit_fraction")),
            ),
            percent,
            "Share of prompt tokens in the engines’ prefix caches, and of look-ups whose solver "
            "was in an oracle’s cache.",
        ),
        _several(
            steps,
            "Memory",
            (
                ("driver", lambda row: row.memory_driver_mib / 1024),
                ("environment", lambda row: row.memory_environment_mib / 1024),
                ("oracle", lambda row: row.memory_oracle_mib / 1024),
                ("engine", lambda row: row.memory_engine_mib / 1024),
            ),
            lambda gibibytes: f"{gibibytes:.3g} GiB",
            "Resident memory of the largest process of each kind at the end of the step.",
        ),
        _faults(steps),
    ]
    return [figure for figure in figures if figure is not None]


def staleness_figure(steps: Sequence[StepMetrics]) -> Figure | None:
    """Return the shares of tokens by the age of their weights; None if none was stale."""
    known = [row for row in steps if sum(row.staleness_tokens)]
    oldest = max((row.staleness_max for row in known), default=0)
    if not oldest:
        return None
    names = staleness_names(known)
    shares = [_age_shares(row, len(names)) for row in known]
    parts = [
        Part(label=name, style=style, values=tuple(share[age] for share in shares))
        for age, (style, name) in enumerate(names)
    ]
    return Figure(
        title="Age of the trained tokens",
        beside=f"at most {count(oldest, 'step')} behind",
        caption=(
            "Share of the policy’s tokens by the number of steps between the weights that wrote "
            "them and those that they trained."
        ),
        chart=stacked_bars(
            [row.step for row in known],
            parts,
            title="Shares of the trained tokens by staleness, by step",
            write=percent,
            size=(1020, 190),
        ),
    )


def staleness_names(steps: Sequence[StepMetrics]) -> list[tuple[str, str]]:
    """Return ``[(style, name), …]`` of the parts of ``staleness_figure``, for its legend."""
    oldest = max((row.staleness_max for row in steps), default=0)
    last = min(oldest, _STALE_PARTS - 1)
    names = [_age(age, more=age == last and oldest > last) for age in range(last + 1)]
    return [(f"stale-{age}", name) for age, name in enumerate(names)]


def _age(age: int, *, more: bool = False) -> str:
    name = {0: "current weights", 1: "1 step behind"}.get(age, f"{age} steps behind")
    return f"{name} or more" if more else name


def _age_shares(row: StepMetrics, num_parts: int) -> list[float]:
    counts = row.staleness_tokens
    padded = [*counts, *[0] * num_parts]
    grouped = [*padded[: num_parts - 1], sum(padded[num_parts - 1 :])]
    return [tokens / sum(counts) for tokens in grouped]


def _engines(steps: Sequence[StepMetrics]) -> Figure | None:
    watched = [row for row in steps if row.engine_busy_fractions]
    number = _num_engines(watched)
    caption = "Share of the step’s time with a request running."
    if number <= len(_STYLES):
        values: list[tuple[str, Value]] = [
            (f"engine {index}", lambda row, index=index: _busy(row, index))
            for index in range(number)
        ]
        return _several(steps, "Busy engines", values, percent, caption)
    extremes: list[tuple[str, Value]] = [
        ("busiest", lambda row: max(_known_shares(row), default=math.nan)),
        ("mean", lambda row: _mean(_known_shares(row))),
        ("idlest", lambda row: min(_known_shares(row), default=math.nan)),
    ]
    return _several(steps, "Busy engines", extremes, percent, f"{caption} Of {number} engines.")


def _faults(steps: Sequence[StepMetrics]) -> Figure | None:
    values: list[tuple[str, Value]] = [
        ("groups lost", attrgetter("lost_groups")),
        ("retries", attrgetter("engine_retries")),
        ("overflows", attrgetter("engine_overflows")),
    ]
    if not any(value(row) for _, value in values for row in steps):
        return None
    return _several(
        [row for row in steps if not row.is_replayed],
        "Played or sent again",
        values,
        plain,
        "Groups lost with an actor; requests whose engine failed; episodes that moved to another "
        "engine because theirs was full.",
    )


def _one(steps: Sequence[StepMetrics], name: str, remark: str = "") -> Figure | None:
    """Return the chart of one metric, its text followed by a remark; None if it is not known."""
    caption = f"{metric_texts()[name]} {remark}".rstrip()
    known = is_known(steps, attrgetter(name))
    return metric_figure(steps, name, caption=caption) if known else None


def _several(
    steps: Sequence[StepMetrics],
    title: str,
    values: Sequence[tuple[str, Value]],
    write: Callable[[float], str],
    caption: str,
) -> Figure | None:
    lines: list[Line] = [
        step_line(name, style, steps, value)
        for style, (name, value) in zip(_STYLES, values, strict=False)
        if is_known(steps, value)
    ]
    if not lines:
        return None
    newest = lines[0].points[-1][1] if len(lines) == 1 else math.nan
    return line_figure(
        title,
        caption,
        lines,
        beside=written(newest, write),
        spoken=f"{title} over steps",
        x_name="step",
        write=write,
        size=SMALL,
    )


def _num_engines(steps: Sequence[StepMetrics]) -> int:
    return max((len(row.engine_busy_fractions) for row in steps), default=0)


def _busy(row: StepMetrics, index: int) -> float:
    shares = row.engine_busy_fractions
    return shares[index] if index < len(shares) else math.nan


def _known_shares(row: StepMetrics) -> list[float]:
    return [share for share in row.engine_busy_fractions if not math.isnan(share)]


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / len(shares) if shares else math.nan


_TIME_PARTS = (
    ("generation", "time-generation"),
    ("learner", "time-learner"),
    ("sync", "time-sync"),
    ("checkpoint", "time-checkpoint"),
    ("validation", "time-validation"),
    ("other", "time-other"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One row of the table next to the time chart."""

    label: str
    style: str
    seconds: str
    """Mean of a step."""
    share: str = ""
    """Of the step; empty for work that overlaps with the rest."""
    width: float = 0.0
    """The share in percent, for a bar."""


def time_chart(steps: Sequence[StepMetrics], *, is_asynchronous: bool) -> Markup:
    """Return the chart of each step's wall time by use, without replayed steps."""
    watched = [row for row in steps if was_watched(row)]
    splits = [time_split([row], is_asynchronous=is_asynchronous) for row in watched]
    return stacked_bars(
        [row.step for row in watched],
        [
            Part(label=name, style=style, values=tuple(getattr(split, name) for split in splits))
            for name, style in _TIME_PARTS
        ],
        title="Seconds of each step by use",
        write=lambda value: f"{value:.3g} s",
        overlay=Part(
            label="solver, during generation",
            style="time-solver",
            values=tuple(split.solver for split in splits),
        ),
    )


def time_rows(split: TimeSplit, *, num_steps: int) -> list[TimeRow]:
    """Return the table of time: the parts of a step, then the work that overlaps with them.

    Args:
        split: of all steps together.
        num_steps: number of these steps, at least one.
    """
    total = split.total or 1.0
    rows = [
        TimeRow(
            label=name,
            style=style,
            seconds=duration(getattr(split, name) / num_steps),
            share=percent(getattr(split, name) / total, digits=1),
            width=100 * getattr(split, name) / total,
        )
        for name, style in _TIME_PARTS
    ]
    overlapping = (
        ("solver, during generation", "time-solver", split.solver),
        ("environments, summed over episodes", "time-beside", split.environment),
        ("generation, during learning", "time-beside", split.generation_overlap),
        ("validation, during the next steps", "time-beside", split.validation_overlap),
    )
    return rows + [
        TimeRow(label=label, style=style, seconds=duration(seconds / num_steps))
        for label, style, seconds in overlapping
        if seconds or style == "time-solver"
    ]
