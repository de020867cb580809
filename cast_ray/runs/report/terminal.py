"""What the terminal shows while a job runs.

On a terminal, finished phases and steps scroll up as a table and the last two lines are live.
Otherwise (a file, CI) every event is one plain line.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.report.step_table import OVERLAP_NOTE, StepTable, step_sentence, wall_seconds
from cast_ray.runs.report.wording import duration, percent, points
from cast_ray.runs.uris import PathOrUri
from cast_ray.statistics import Success

_SPARKS = "▁▂▃▄▅▆▇█"
_WARM_START_LINES = 10  # of the warm start, in a log


class TrainProgress:
    """The progress of one job; a context manager."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Show nothing yet.

        Args:
            console: where to write; None = standard output, with a live view on a terminal only.
            clock: returns monotonic seconds.
        """
        self._console = console or Console(force_terminal=sys.stdout.isatty())
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._clock = clock
        self._started = clock()
        self._activity = _Activity(clock)
        self._live: Live | None = None
        self._table: StepTable | None = None
        self._log_handlers: list[logging.StreamHandler[Any]] = []

    def __enter__(self) -> TrainProgress:
        if self._is_live:
            view = _View(self._activity)
            self._live = Live(view, console=self._console, transient=True, refresh_per_second=8)
            terminal = sys.stderr
            self._live.start()  # this replaces sys.stderr
            self._log_handlers = _redirect_logs(terminal, sys.stderr)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_activity(failed=kind is not None)
        if self._live is not None:
            self._live.stop()
            self._live = None
            for handler in self._log_handlers:
                handler.setStream(sys.stderr)  # the terminal's stream

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to another display for the length of a block."""
        if self._live is not None:
            self._live.stop()
        yield
        if self._live is not None:
            self._live.start()

    def phase(self, text: str) -> None:
        """Start a phase, which lasts until the next event of another kind."""
        self._end_activity()
        self._activity.begin(text)
        if not self._is_live:
            self._say(text)

    def warm_start(self, step: int, total: int, loss: float) -> None:
        """Show the progress of the supervised warm start."""
        if not self._activity.text.startswith("warm start"):
            self._end_activity()
            self._activity.begin("warm start")
        self._activity.text = f"warm start {step}/{total}, loss {loss:.2f}"
        self._activity.done, self._activity.total = step, total
        if not self._is_live and (step == total or step % max(1, total // _WARM_START_LINES) == 0):
            self._say(self._activity.text)

    def rollout(self, done: int, total: int) -> None:
        """Show how many groups of the current batch have been played."""
        if not self._activity.text:
            self._activity.begin("first step", is_step=True)
        self._activity.done, self._activity.total = done, total

    def step(self, row: StepMetrics, total_steps: int) -> None:
        """Add the row of a finished step; steps count from 1."""
        self._activity.begin("")
        rows = self._activity.rows
        is_first = row.staleness_max and not any(one.staleness_max for one in rows)
        rows.append(row)
        self._activity.total_steps = total_steps
        left = _seconds_left(rows, total_steps)
        if is_first:
            self.note(OVERLAP_NOTE)
        if self._is_live:
            if self._table is None:
                self._table = StepTable(self._console.width)
                self._write(Text(), *self._table.header(), wrap=False)
            line = self._table.row(row, total_steps=total_steps, seconds_left=left)
            self._write(line, wrap=False)
        else:
            self._say(step_sentence(row, total_steps=total_steps, seconds_left=left))
        if row.step < total_steps:
            self._activity.begin(f"step {row.step + 1} of {total_steps}", is_step=True)

    def evaluation(self, name: str, success: Success) -> None:
        """Show the result of an evaluation."""
        self._end_activity()
        interval = (
            f"95% interval {percent(success.low, digits=1)} to {percent(success.high, digits=1)}, "
            f"{success.n:,} attempts"
        )
        solved = percent(success.success, digits=1)
        if self._is_live:
            parts = (("● ", "cyan"), f"{name}: ", (solved, "bold"), f" solved ({interval})")
            self._write(Text.assemble(*parts))
        else:
            self._say(f"{name}: {solved} solved ({interval})")

    def note(self, text: str) -> None:
        """Show a message that is neither a phase nor a result."""
        if self._is_live:
            self._write(Text.assemble(("! ", "yellow"), text))
        else:
            self._say(text)

    def recovery(self, what: str, seconds: float) -> None:
        """Show that something was lost and has recovered."""
        self.note(f"recovered after {duration(seconds)}: {what}")

    def finish(self, run_dir: PathOrUri, summary: Mapping[str, Any]) -> None:
        """Show the result of the run and where its files are.

        Args:
            run_dir: the run directory, or its URI.
            summary: as in ``summary.json``.
        """
        self._end_activity()
        lines = [
            _result(summary),
            f"{summary['game']} {summary['tier']}, {summary['algorithm']}, "
            f"{summary['steps']} steps, seed {summary['seed']}, {duration(summary['seconds'])}",
            f"report  {run_dir / 'report.html'}",
            f"model   {run_dir / 'model'}",
            f"check   cast-ray replay {shlex.quote(str(run_dir))}",
        ]
        if not self._is_live:
            for line in lines:
                self._say(line)
            return
        body = Text("\n").join([Text(lines[0], style="bold"), *(Text(line) for line in lines[1:])])
        self._write(Text(), Panel(body, expand=False, border_style="green", padding=(0, 2)))

    def _end_activity(self, *, failed: bool = False) -> None:
        """Turn the current activity into a permanent line with its time; steps have their own."""
        activity = self._activity
        if activity.text and (activity.total if activity.is_step else self._is_live or failed):
            if self._is_live:
                mark = ("✗ ", "red") if failed else ("✓ ", "green")
                self._write(Text.assemble(mark, activity.text, (f"  {activity.elapsed}", "dim")))
            elif failed:
                self._say(f"stopped in: {activity.text}")
        activity.begin("")

    def _write(self, *lines: RenderableType, wrap: bool = True) -> None:
        for line in lines:
            self._console.print(line, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")

    def _say(self, text: str) -> None:
        """Write one line without control codes: the time since the start, then the text."""
        seconds = round(self._clock() - self._started)
        # As Text: in plain strings rich looks for [styles] and :symbols:, which names may hold.
        line = Text(f"[{seconds // 60:02d}:{seconds % 60:02d}] {text}")
        self._console.print(line, soft_wrap=True)


class _Activity:
    """The current activity (empty text = none), and the steps before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rows: list[StepMetrics] = []
        self.total_steps = 0
        self.begin("")

    def begin(self, text: str, *, is_step: bool = False) -> None:
        self.text, self.is_step = text, is_step
        self.done, self.total = 0, 0
        self._since = self._clock()

    @property
    def elapsed(self) -> str:
        return duration(self._clock() - self._since)


def _seconds_left(rows: Sequence[StepMetrics], total: int) -> float:
    """Return the mean time of a step times the number of remaining steps."""
    return sum(map(wall_seconds, rows)) / len(rows) * (total - rows[-1].step)


class _View:
    """The live lines, redrawn by the live display's thread."""

    def __init__(self, activity: _Activity) -> None:
        self._activity = activity
        self._spinner = Spinner("dots", style="cyan")

    def __rich__(self) -> RenderableType:
        lines = Table.grid(padding=(0, 1))
        for _ in range(4):
            lines.add_column(no_wrap=True)
        self._add_activity(lines)
        self._add_steps(lines)
        return Group(Text(), lines)

    def _add_activity(self, lines: Table) -> None:
        activity = self._activity
        if not activity.text:
            return
        text, bar = activity.text, Text(activity.elapsed, style="dim")
        if not activity.total:
            lines.add_row(self._spinner, Text(text), bar)
            return
        if activity.is_step and activity.done == activity.total:
            text += ", learning"
        lines.add_row(
            self._spinner,
            Text(text),
            ProgressBar(activity.total, activity.done, width=24),
            Text(f"{activity.done}/{activity.total}  {activity.elapsed}", style="dim"),
        )

    def _add_steps(self, lines: Table) -> None:
        rows, total = self._activity.rows, self._activity.total_steps
        if not rows:
            return
        bars = "".join(_SPARKS[min(int(row.success * 8), 7)] for row in rows[-30:])
        lines.add_row(
            "",
            "all steps",
            ProgressBar(total, rows[-1].step, width=24),
            Text.assemble(
                (f"{rows[-1].step}/{total}  ", "dim"),
                (bars, "green"),
                (f"  {duration(_seconds_left(rows, total))} left", "dim"),
            ),
        )


def _result(summary: Mapping[str, Any]) -> str:
    before, after = summary["before"], summary["after"]
    if before is None:
        return f"held-out boards solved: {percent(after['success'], digits=1)} after training"
    gain = points(after["success"] - before["success"])
    return (
        f"held-out boards solved: {percent(before['success'], digits=1)} before, "
        f"{percent(after['success'], digits=1)} after training ({gain})"
    )


def _redirect_logs(old: TextIO, new: TextIO) -> list[logging.StreamHandler[Any]]:
    """Redirect the root logger's handlers from ``old`` to ``new`` and return them.

    The live view would overwrite a line that is written directly to the terminal.
    """
    moved = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is old
    ]
    for handler in moved:
        handler.setStream(new)
    return moved
