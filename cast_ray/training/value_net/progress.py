"""What the terminal shows while a value network is trained: a progress bar per stage.

If the output is not a terminal (a file, CI), a stage writes about ten plain lines.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

_LINES_A_STAGE = 10


class ValueNetProgress(Progress):
    """The progress of one training; a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        """Show nothing yet.

        Args:
            console: where to write; None = standard output, with bars on a terminal only.
        """
        console = console or Console(force_terminal=sys.stdout.isatty())
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._stage = ""
        self._lines = 0

    def say(self, text: str) -> None:
        """Write a permanent line."""
        self.console.print(Text(text), soft_wrap=True)

    def show(self, stage: str, done: int, total: int, figures: str) -> None:
        """Show the progress of a stage.

        Args:
            stage: its name; a new name starts a new bar.
            done: steps or epochs done.
            total: of all steps or epochs.
            figures: its latest figures, in a few words.
        """
        if stage != self._stage:
            self._stage, self._lines = stage, 0
            self.add_task(stage, total=total, figures="")
        self.update(self.task_ids[-1], completed=min(done, total), figures=figures)
        if self.disable and done * _LINES_A_STAGE >= total * (self._lines + 1):
            self._lines = done * _LINES_A_STAGE // total
            self.say(f"{stage} {min(done, total):,}/{total:,}: {figures}")
