"""Writes a run's report: one HTML file with everything from the run directory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup

from cast_ray.envs.text_env import SOLVED
from cast_ray.files import write_text
from cast_ray.functions import short_name
from cast_ray.runs.report import wording
from cast_ray.runs.report.episode import player_data
from cast_ray.runs.report.figures import placeholder, run_data
from cast_ray.runs.report.held_out import choose_showcase, distance_figure, gain, with_credit
from cast_ray.runs.report.read import Evaluation, RunContents, read_run
from cast_ray.runs.report.script import WEB, page_script, script_hash
from cast_ray.runs.report.step_table import TIME_PARTS, time_split, was_watched
from cast_ray.runs.report.wording import words_of
from cast_ray.runs.run_directory import RunDirectory


def page_templates() -> Environment:
    """Return the templates of all pages: text is escaped, and an undefined name is an error."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("cast_ray.runs.report", "template"), FileSystemLoader(WEB)]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("percent", "points", "signed", "duration", "end_reason")
    environment.filters.update({name: getattr(wording, name) for name in names})
    environment.tests["unknown"] = math.isnan
    script = page_script()
    told = {"count": wording.count, "script": Markup(script), "script_hash": script_hash(script)}
    environment.globals.update(told)
    return environment


def write_report(run: RunDirectory) -> Path:
    """Write ``report.html`` from the run directory and return its path.

    This works at any time: the report says if a run has no step yet or is not finished.

    Raises:
        RunDirectoryError: there is no run, or one of its files is broken.
        TrajectoryError: a table is of another stage.
    """
    page = page_templates().get_template("page.html").render(_view(read_run(run)))
    write_text(run.report, page)
    return run.report


def _view(contents: RunContents) -> dict[str, Any]:  # Any: what the template reads by name
    before, after = contents.before, contents.after
    config = contents.config
    words, name = words_of(config.game, config.oracle), short_name(config.game)
    alone = contents.outcome_alone.steps if contents.outcome_alone else ()
    showcase = choose_showcase(before, after)
    games = [with_credit(one, config) for one in (showcase.games if showcase else {}).values()]
    return {
        "run": contents,
        "title": name if ":" in config.game else name.replace("_", " ").title(),
        "words": words,
        "change": gain(before, after, seed=config.seed) if before and after else None,
        "rates": _rates(before, after),
        "distance": distance_figure(before, after, words),
        "endings": _endings(before, after),
        "showcase": showcase,
        "has_costs": any(turn["cost_before"] is not None for one in games for turn in one["turns"]),
        "player_data": player_data(games),
        "run_data": run_data(contents.steps, contents.groups, config, alone),
        **_step_view(contents),
    }


def _step_view(contents: RunContents) -> dict[str, Any]:
    """Return what is told of the steps; nothing if there are none yet."""
    steps, config = contents.steps, contents.config
    if not steps:
        return {"num_watched": 0}
    split = time_split(steps, is_asynchronous=config.max_staleness > 0)
    return {
        "layer_error": _largest_known(row.layer_error for row in steps),
        "split": split,
        "num_watched": sum(map(was_watched, steps)),
        "num_replayed": sum(row.is_replayed for row in steps),
        "time_parts": TIME_PARTS,
        "overlapping": {
            "solver, during generation": split.solver,
            "environments, summed over episodes": split.environment,
            "generation, during learning": split.generation_overlap,
            "validation, during the next steps": split.validation_overlap,
        },
    }


def _largest_known(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _rates(before: Evaluation | None, after: Evaluation | None) -> Markup | None:
    """Return a chart of success rates with their intervals."""
    intervals = [
        {"name": name, "style": style, "low": rate.low, "value": rate.success, "high": rate.high}
        for name, style, one in (("before", "b", before), ("after", "a", after))
        if one is not None and (rate := one.success)
    ]
    label = "Share of attempts solved, 95% intervals"
    spec = {"label": label, "unit": "share", "intervals": intervals}
    return placeholder("chart", spec) if intervals else None


def _endings(
    before: Evaluation | None, after: Evaluation | None
) -> list[tuple[str, list[float | None]]]:
    """Return ``[(reason, shares before and after), …]``, solved first, then by frequency."""
    counts = [
        Counter(episode.end_reason for episode in evaluation.episodes) if evaluation else Counter()
        for evaluation in (before, after)
    ]
    total = counts[0] + counts[1]
    order = sorted(total, key=lambda reason: (reason != SOLVED, -total[reason], reason))
    return [
        (reason, [one[reason] / one.total() if one else None for one in counts]) for reason in order
    ]
