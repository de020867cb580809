"""What the terminal shows while puzzles are built: one bar, and lines that stay."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class BuildProgress:
    """The progress of a build; a context manager. On no terminal only the lines appear."""

    def __init__(self, console: Console | None = None) -> None:
        """Show nothing yet; None = standard output."""
        self._console = console or Console(
            force_terminal=sys.stdout.isatty(), soft_wrap=True, highlight=False, emoji=False
        )
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,} puzzles"),
            TextColumn("{task.fields[attempts]:,} attempts, {task.fields[rate]:,.0f}/s"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> BuildProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, name: str, num_wanted: int) -> None:
        """Show a new set in place of the last one."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=num_wanted, attempts=0, rate=0.0)

    def advance(self, num_attempts: int, num_kept: int) -> None:
        """Show how far the set is."""
        if self._task is None:
            return
        seconds = next(t.elapsed for t in self._bar.tasks if t.id == self._task) or 0.0
        rate = num_attempts / seconds if seconds else 0.0
        self._bar.update(self._task, completed=num_kept, attempts=num_attempts, rate=rate)

    def say(self, text: str) -> None:
        """Add a line that stays."""
        self._bar.console.print(text, markup=False, emoji=False)
