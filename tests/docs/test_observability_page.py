"""docs/observability.md names every figure of a step, and its one-liners run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path

import polars as pl
import pytest

from cast_ray.runs.metrics import StepMetrics, write_metrics
from cast_ray.runs.recoveries import Recovery
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training import prometheus as table
from tests.support.made_up_run import new_run, step_row

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text()
LINES = PAGE.partition("```python\n")[2].partition("```")[0].splitlines()
COLUMNS = PAGE.partition("## Where to look\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Two steps, the second one stale, and a recovery."""
    run = new_run(tmp_path_factory.mktemp("runs") / "run")
    nan = float("nan")
    rows = [
        step_row(1, engine_busy_fractions=(0.5, nan), staleness_tokens=(10,), seconds_total=4.0),
        step_row(2, engine_busy_fractions=(0.5, 0.25), staleness_tokens=(15, 5)),
        step_row(3, is_replayed=True, seconds_generation=nan, staleness_tokens=(10,)),
    ]
    write_metrics(run.metrics, rows)
    one = Recovery(utc="2026-01-02T03:04:05+00:00", kind="engine", what="engine-0", seconds=40.0)
    run.recoveries.write_text(json.dumps(asdict(one)) + "\n")
    return run


@pytest.mark.parametrize("line", LINES)
def test_one_liner_gives_a_table(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(run.path)
    found = eval(line, {"pl": pl})
    assert isinstance(found, pl.DataFrame)
    assert len(found) > 0


def test_line_about_stale_tokens_gives_their_share(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path)
    (line,) = [line for line in LINES if "stale=" in line]
    assert eval(line, {"pl": pl})["stale"].to_list() == [0.0, 0.25, 0.0]


def test_every_figure_of_a_step_is_the_answer_to_a_question() -> None:
    named = set(re.findall(r"`(\w+)`", COLUMNS)) - {"StepMetrics", "max_staleness"}
    assert named == {item.name for item in fields(StepMetrics)} - {"step"}


def test_every_metric_on_the_page_is_exported() -> None:
    ours = {metric.prometheus_name for metric in table.ALL}
    assert set(re.findall(r"`(ray_cast_\w+)`", PAGE)) <= ours
    endings = re.findall(r"`…(_\w+)`", PAGE)
    assert {f"ray_cast_engine{ending}" for ending in endings} | {"ray_cast_engine_up"} == {
        name for name in ours if name.startswith("ray_cast_engine_")
    }


def test_files_that_the_page_names_are_there() -> None:
    for path in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / path).is_file(), path
