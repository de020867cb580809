"""Charts and boards as data inside the HTML, which the page's own modules draw (``serve/web``)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from cast_ray.config.train import TrainConfig
from cast_ray.runs.metrics import StepMetrics, metric_facts
from cast_ray.runs.report.read import GroupCounts
from cast_ray.runs.report.step_table import TIME_PARTS, time_split, was_watched
from cast_ray.runs.report.wording import words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    style: str
    """``a``, ``b``, ``c`` or ``d``: colour, dash and marker."""
    points: Sequence[tuple[float, float]]
    """x and y, by ascending x; NaN is left out, inf is drawn above all other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its texts."""

    title: str
    caption: str
    chart: Markup


def line_chart(
    title: str,
    caption: str,
    lines: Sequence[Line],
    *,
    x_name: str,
    unit: str = "",
    from_zero: bool = True,
) -> Figure:
    """Return a chart of lines against whole numbers.

    Args:
        title: of the chart.
        caption: below it.
        lines: at most four.
        x_name: what the x axis counts.
        unit: of y, as a metric's.
        from_zero: whether the y axis includes zero.
    """
    spec = {"label": title, "x": x_name, "unit": unit, "from_zero": from_zero}
    chart = placeholder("chart", {**spec, "lines": [asdict(line) for line in lines]})
    return Figure(title=title, caption=caption, chart=chart)


def placeholder(kind: str, value: Any) -> Markup:
    """Return an element that ``report.js`` fills.

    Any: a JSON value, which may also contain NaN and infinities.
    """
    text = json.dumps(plain(value), ensure_ascii=False)
    return Markup('<div data-{}="{}"></div>').format(Markup(kind), text)


def run_data(
    steps: Sequence[StepMetrics],
    groups: Sequence[GroupCounts],
    config: TrainConfig,
    outcome_alone: Sequence[StepMetrics] = (),
) -> dict[str, Any]:  # Any: lists of numbers, texts
    """Return what ``run_charts.js`` draws: values by metric and step, and what the metrics are.

    Args:
        steps: of the run.
        groups: of the same steps, or none.
        config: of the run.
        outcome_alone: of the run without credit from the same start.
    """
    rows = [asdict(row) for row in steps]
    columns = {name: plain([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    if other := {row.step: row.validation_success for row in outcome_alone}:
        columns["outcome_alone"] = plain([other.get(row.step, math.nan) for row in steps])
    splits = [
        time_split([row], is_asynchronous=config.max_staleness > 0) if was_watched(row) else None
        for row in steps
    ]
    return {
        "columns": columns,
        "metrics": metric_facts(),
        "time": {
            part: plain([math.nan if one is None else getattr(one, part) for one in splits])
            for part in TIME_PARTS
        },
        "groups": [asdict(one) for one in groups],
        "has_credit": bool(words_of(config.game, config.oracle).judge),
    }


def plain(value: Any) -> Any:
    """Return a value in JSON's types: None for NaN, ``infinite`` for infinities. Any: as above."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinite"
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value
