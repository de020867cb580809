"""What the report says of rollouts: recoveries, and where the time went."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.runs.metrics import StepMetrics, write_metrics
from cast_ray.runs.recoveries import Recovery
from cast_ray.runs.report import write_report
from cast_ray.runs.report.step_table import time_split, wall_seconds
from tests.support.figures import figures_in
from tests.support.made_up_run import new_run, step_row
from tests.support.page import Element, parse_page
from tests.support.rooms import FIXED

NAN = math.nan
UNSEEN = (
    "seconds_generation",
    "engine_queue_mean",
    "engine_queue_max",
    "seconds_queueing",
    "prefix_hit_fraction",
    "oracle_hit_fraction",
    "seconds_solver",
    "seconds_solver_build",
    "tokens_per_s",
    "layer_error",
    *(f"memory_{role}_mib" for role in ("driver", "environment", "oracle", "engine")),
)
SECONDS = st.floats(0, 1e3, allow_subnormal=False)


def replayed(step: int) -> StepMetrics:
    """Return a row of updates that were taken again from the log: nobody saw the play."""
    return step_row(step, seconds_total=50.0, is_replayed=True, **dict.fromkeys(UNSEEN, NAN))


def page_of(
    path: Path, rows: list[StepMetrics], *, recoveries: str = "", max_staleness: int = 0
) -> Element:
    run = new_run(path / "run", max_staleness=max_staleness)
    write_metrics(run.metrics, rows)
    if recoveries:
        run.recoveries.write_text(recoveries)
    return parse_page(write_report(run).read_text(encoding="utf-8"))


def test_recoveries_are_a_table_with_their_text_escaped(tmp_path: Path) -> None:
    lines = [
        Recovery(utc="2026-01-02T03:04:05.678+00:00", kind=kind, what=what, seconds=seconds)
        for kind, what, seconds in (
            ("engine", "engine-1 is <b>another</b> process", 48.9),
            ("driver", "a new driver goes on", 3.25),
        )
    ]
    text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
    page = page_of(tmp_path, [step_row(1)], recoveries=text + '{"utc": "cut o')
    (table,) = page.all("recoveries")
    assert [cell.text for cell in table.all("td")] == [
        "2026-01-02 03:04:05",
        "engine",
        "engine-1 is <b>another</b> process",
        "49 s",
        "2026-01-02 03:04:05",
        "driver",
        "a new driver goes on",
        "3.2 s",
    ]


def test_recoveries_before_the_first_step_are_shown(tmp_path: Path) -> None:
    one = Recovery(utc="2026-01-02T03:04:05+00:00", kind="driver", what="new", seconds=1.0)
    page = page_of(tmp_path, [], recoveries=json.dumps(asdict(one)) + "\n")
    assert len(page.one("recoveries").all("td")) == 4


def test_run_without_recoveries_has_no_table_of_them(tmp_path: Path) -> None:
    assert not page_of(tmp_path, [step_row(1)]).all("recoveries")


def test_page_of_replayed_steps_alone_holds_no_time_and_no_nan(tmp_path: Path) -> None:
    page = page_of(tmp_path, [replayed(1), replayed(2)])
    sections = [section.attributes["id"] for section in page.all("section")]
    assert "time" not in sections
    assert "nan" not in page.text.lower()
    addresses = {a.attributes["href"].removeprefix("#") for a in page.all("nav")[0].all("a")}
    assert addresses <= set(sections)


def test_replayed_steps_are_left_out_of_the_time_and_said_to_be(tmp_path: Path) -> None:
    seen = step_row(1, seconds_total=10.0, seconds_generation=6.0, seconds_learner=3.0)
    page = page_of(tmp_path, [seen, replayed(2)])
    section = next(s for s in page.all("section") if s.attributes["id"] == "time")
    assert "10 s" in section.one("small").text
    assert figures_in(section.one("aside").text) == "10.0% 1"  # what is other, and left out
    assert "nan" not in page.text.lower()


def test_checkpoint_is_a_part_of_its_own_after_the_step() -> None:
    row = step_row(
        1, seconds_total=10.0, seconds_generation=6.0, seconds_learner=3.0, seconds_checkpoint=2.5
    )
    split = time_split([row])
    assert (split.checkpoint, split.other, split.total) == (2.5, 1.0, 12.5)
    assert split.overhead_fraction == pytest.approx(0.1)


def test_asynchronous_generation_and_validation_count_once() -> None:
    row = step_row(
        1,
        staleness_max=1,
        seconds_total=10.0,
        seconds_generation=9.0,
        seconds_learner=7.0,
        seconds_sync=0.5,
        seconds_validation=20.0,
    )
    split = time_split([row])
    assert (split.generation, split.generation_overlap) == (3.0, 6.0)
    assert (split.validation, split.validation_overlap) == (0.0, 20.0)
    assert split.total == pytest.approx(10.5)


def test_first_step_of_an_asynchronous_run_is_divided_like_the_others() -> None:
    row = step_row(1, seconds_total=10.0, seconds_generation=2.0, seconds_validation=20.0)
    assert time_split([row]).validation == 20.0
    assert time_split([row], is_asynchronous=True).validation == 0.0


@FIXED
@given(SECONDS, SECONDS, SECONDS, st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_parts_of_the_time_add_up_to_the_wall_time(
    total: float,
    validation: float,
    checkpoint: float,
    learner_share: float,
    generation_share: float,
    is_asynchronous: bool,
) -> None:
    learner = total * learner_share
    # Beside the learner generation may last as long as the step, else only as long as is left.
    longest = total if is_asynchronous else total - learner
    row = step_row(
        1,
        seconds_total=total,
        seconds_learner=learner,
        seconds_generation=longest * generation_share,
        seconds_validation=validation,
        seconds_checkpoint=checkpoint,
    )
    split = time_split([row], is_asynchronous=is_asynchronous)
    wall = wall_seconds(row, is_asynchronous=is_asynchronous)
    assert split.total == pytest.approx(wall, abs=1e-9)
    assert split.generation + split.generation_overlap == pytest.approx(row.seconds_generation)
