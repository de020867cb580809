"""The progress view: plain lines in a file, a table on a terminal."""

from __future__ import annotations

import io
import logging
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.file_proxy import FileProxy

from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.step_table import OVERLAP_NOTE, StepTable
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.statistics import Success
from tests.support.figures import figures_in
from tests.support.made_up_run import step_row
from tests.support.odd_names import ODD_NAME

RATE = Success(success=0.334, low=0.291, high=0.377, n=800)
SUMMARY = {
    "before": {"success": 0.334, "low": 0.29, "high": 0.38, "n": 800},
    "after": {"success": 0.579, "low": 0.53, "high": 0.62, "n": 800},
    "seconds": 523.4,
    "seed": 3,
    "game": "sokoban",
    "tier": "mini",
    "algorithm": "gspo",
    "steps": 12,
}


def row(step: int, *, validation_success: float | None = None) -> StepMetrics:
    return step_row(
        step,
        success=0.415,
        validation_success=validation_success,
        turns_mean=8.25,
        lost_fraction=0.08,
        progress_fraction=0.44,
        harmful_fraction=0.18,
        ineffective_fraction=0.15,
        invalid_fraction=0.02,
        shifted_advantage_mean=-0.125,
        tokens_per_s=1234.0,
        seconds_total=10.5,
        seconds_generation=6.0,
        seconds_solver=0.3,
        seconds_learner=3.5,
        seconds_sync=0.4,
        seconds_validation=0.0 if validation_success is None else 1.0,
    )


def ticking(seconds: float) -> Iterator[float]:
    """Return a clock that gains so many seconds each time it is read."""
    now = 0.0
    while True:
        yield now
        now += seconds


def in_a_file() -> tuple[TrainProgress, io.StringIO]:
    file = io.StringIO()
    return TrainProgress(Console(file=file, force_terminal=False), clock=lambda: 0.0), file


def on_a_terminal(width: int = 120) -> tuple[TrainProgress, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, _environ={"TERM": "xterm"})
    return TrainProgress(console, clock=lambda: 0.0), file


def visible(file: io.StringIO) -> str:
    """Return what was written, without control codes."""
    return "\n".join(line.plain for line in AnsiDecoder().decode(file.getvalue()))


def test_every_event_in_a_file_is_one_plain_line() -> None:
    progress, file = in_a_file()
    with progress:
        progress.phase("starting Ray")
        progress.evaluation("held-out before training", RATE)
        progress.rollout(3, 16)
        progress.note("stopping after this step [bold]not markup[/bold]")
    phase, result, note = file.getvalue().splitlines()
    assert phase == "[00:00] starting Ray"
    assert result.startswith("[00:00] held-out before training")
    assert figures_in(result) == "00 00 33.4% 95% 29.1% 37.7% 800"
    assert note == "[00:00] stopping after this step [bold]not markup[/bold]"


def test_step_in_a_file_tells_success_signal_time_and_what_is_left() -> None:
    progress, file = in_a_file()
    with progress:
        progress.step(row(2, validation_success=0.44), 12)
    (line,) = file.getvalue().splitlines()
    step, episodes, turns, seconds, left = line.split("|")
    assert figures_in(step) == "00 00 2 12 10.5"
    assert figures_in(episodes) == "42% 44% 8.2 8%"
    assert figures_in(turns) == "44% 18% 17% −0.12"
    assert figures_in(seconds) == "6.0 0.3 3.5 0.4 0.6"
    assert figures_in(left) == "1,234 1 55"


def test_file_holds_no_control_codes() -> None:
    progress, file = in_a_file()
    with progress:
        progress.phase("starting Ray")
        progress.warm_start(300, 300, 0.41)
        progress.step(row(1), 2)
        progress.finish(Path("runs/one"), SUMMARY)
    assert "\x1b" not in file.getvalue()
    assert "\r" not in file.getvalue()


def test_warm_start_leaves_ten_lines_in_a_file() -> None:
    progress, file = in_a_file()
    with progress:
        for step in range(1, 301):
            progress.warm_start(step, 300, 120 / step)
    lines = file.getvalue().splitlines()
    assert len(lines) == 10
    assert figures_in(lines[-1]) == "00 00 300 300 0.40"


def test_lines_in_a_file_carry_the_time_since_the_start() -> None:
    file = io.StringIO()
    clock = ticking(40.0)
    progress = TrainProgress(Console(file=file, force_terminal=False), clock=lambda: next(clock))
    progress.note("later")
    minutes, seconds = file.getvalue()[1:6].split(":")
    assert int(minutes) * 60 + int(seconds) >= 40


def test_end_in_a_file_names_result_report_and_model() -> None:
    progress, file = in_a_file()
    with progress:
        progress.finish(Path("runs/one"), SUMMARY)
    result, run, *files = file.getvalue().splitlines()
    assert figures_in(result) == "00 00 33.4% 57.9% +24.5"
    assert figures_in(run) == "00 00 12 3 8 43"
    assert all(name in run for name in ("sokoban", "mini", "gspo"))
    assert [line.split()[-1] for line in files] == [
        "runs/one/report.html",
        "runs/one/model",
        "runs/one",
    ]


def test_end_names_a_command_that_the_shell_reads_as_meant() -> None:
    progress, file = in_a_file()
    with progress:
        progress.finish(Path(f"runs/{ODD_NAME}"), SUMMARY)
    *_, check = file.getvalue().splitlines()
    assert shlex.split(check)[-1] == f"runs/{ODD_NAME}"


@pytest.mark.parametrize("shown", [in_a_file, on_a_terminal])
def test_a_name_is_shown_as_it_is(shown: Callable[[], tuple[TrainProgress, io.StringIO]]) -> None:
    progress, file = shown()
    with progress:
        progress.phase(f"{ODD_NAME} [/bold]")
        progress.note("that was it")
    assert f"{ODD_NAME} [/bold]" in visible(file)


def test_failure_in_a_file_names_the_phase_it_came_in() -> None:
    progress, file = in_a_file()
    with pytest.raises(ValueError, match="no"), progress:
        progress.phase("starting the engine")
        raise ValueError("no")
    started, stopped = file.getvalue().splitlines()
    assert started != stopped and "starting the engine" in stopped


def test_terminal_keeps_phases_results_and_a_row_for_each_step() -> None:
    progress, file = on_a_terminal()
    with progress:
        progress.phase("starting Ray")
        progress.warm_start(300, 300, 0.41)
        progress.evaluation("held-out before training", RATE)
        progress.rollout(8, 16)
        progress.step(row(1), 2)
        progress.step(row(2, validation_success=0.44), 2)
        progress.finish(Path("runs/one"), SUMMARY)
    text = visible(file)
    lines = [figures_in(line) for line in text.splitlines()]
    assert "✓ starting Ray" in text
    assert "● held-out before training" in text
    assert {"300 300 0.41 0.0", "33.4% 95% 29.1% 37.7% 800", "33.4% 57.9% +24.5"} <= {*lines}
    assert text.count(StepTable(120).header()[1].plain) == 1
    rest = "44% 18% 17% −0.12 6.0 0.3 3.5 0.4 0.6 1,234"
    assert {f"1 2 42% 8.2 8% {rest} 10", f"2 2 42% 44% 8.2 8% {rest} 0.0"} <= {*lines}
    assert "runs/one/report.html" in text


def test_terminal_marks_the_phase_that_failed() -> None:
    progress, file = on_a_terminal()
    with pytest.raises(ValueError, match="no"), progress:
        progress.phase("starting the engine")
        raise ValueError("no")
    assert "✗ starting the engine" in visible(file)


def test_view_that_is_paused_leaves_the_terminal_and_resumes_its_phase() -> None:
    progress, file = on_a_terminal()
    with progress:
        progress.phase("choosing puzzles")
        with progress.paused():
            assert not isinstance(sys.stderr, FileProxy)
        assert isinstance(sys.stderr, FileProxy)
    assert visible(file).count("✓ choosing puzzles") == 1


def test_log_lines_pass_through_the_live_view_and_handlers_get_their_stream_back() -> None:
    progress, file = on_a_terminal()
    handler = logging.StreamHandler()
    before = handler.stream
    logging.getLogger().addHandler(handler)
    try:
        with progress:
            logging.getLogger("cast_ray").warning("three times its healthy level")
    finally:
        logging.getLogger().removeHandler(handler)
    assert "three times its healthy level" in visible(file)
    assert handler.stream is before


@pytest.mark.parametrize("width", [80, 100, 120])
def test_step_table_fits_the_terminal(width: int) -> None:
    table = StepTable(width)
    lines = [*table.header(), table.row(row(7), total_steps=12, seconds_left=3601.0)]
    assert all(line.cell_len <= width for line in lines)
    assert len({line.cell_len for line in lines[1:]}) == 1


def test_narrow_step_table_keeps_success_signal_and_time() -> None:
    names = " ".join(StepTable(80).header()[1].plain.split())
    assert names == "step solved progress harm credit gen solver learn sync other time left"


def test_step_that_nobody_watched_is_told_without_its_play() -> None:
    nan = float("nan")
    unseen = replace(row(2), seconds_generation=nan, seconds_solver=nan, tokens_per_s=nan)
    progress, file = in_a_file()
    with progress:
        progress.step(unseen, 12)
    assert [figures_in(part) for part in file.getvalue().split("|")[3:]] == ["3.5 0.4", "1 45"]
    line = StepTable(120).row(unseen, total_steps=12, seconds_left=60.0).plain
    assert "– – 3.5 0.4 – –" in " ".join(line.split())
    assert "nan" not in line + file.getvalue()


def test_asynchronous_step_says_what_ran_beside_the_learner() -> None:
    stale = replace(row(3), staleness_max=1, seconds_generation=9.0)
    progress, file = in_a_file()
    with progress:
        progress.step(stale, 12)
    note, line = file.getvalue().splitlines()
    assert note.endswith(OVERLAP_NOTE)
    assert figures_in(line.split("|")[3]) == "9.0 0.3 3.5 0.4 0.0"
    live, terminal = on_a_terminal()
    with live:
        live.step(row(1), 12)
        live.step(stale, 12)
        live.step(replace(stale, step=4), 12)
    text = visible(terminal)
    assert text.count(f"! {OVERLAP_NOTE}") == 1
    assert "(9.0)" in text


def test_time_left_counts_asynchronous_validation_once() -> None:
    stale = replace(row(6, validation_success=0.44), staleness_max=1, seconds_validation=100.0)
    progress, file = in_a_file()
    with progress:
        progress.step(stale, 8)
    assert figures_in(file.getvalue()).endswith(" 21")
