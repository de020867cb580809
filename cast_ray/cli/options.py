"""What several commands of the command line share: options, names by time, tables, Ctrl-C."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

_PLAIN_WIDTH = 132
"""Columns of a table that goes to a file or a pipe."""

Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Configuration values as key=value, e.g. seed=1; see `cast-ray config`."),
]
Host = Annotated[
    str,
    typer.Option(help="Address to listen on. Any but this machine's own needs CAST_RAY_API_KEYS."),
]
Port = Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)]


def newest_run() -> str:
    """Return words about the newest run in ``runs/``; empty if there is none."""
    found = [path.parent for path in Path("runs").glob("*/config.yaml")]
    if not found:
        return ""
    newest = max(found, key=lambda run: run.stat().st_mtime)
    return f"; the newest here: {resume_command('train', newest)}"


def resume_command(command: str, run_dir: object) -> str:
    """Return what resumes a run of ``train`` or ``value-net train``."""
    return f"cast-ray {command} --resume {shlex.quote(f'run_dir={run_dir}')}"


def this_command(*more: str) -> str:
    """Return the command that was typed, with more arguments."""
    return shlex.join(["cast-ray", *sys.argv[1:], *more])


def table_console() -> Console:
    """Return a console whose tables are as wide as the terminal, or 132 columns without one."""
    from rich.console import Console

    # A path may look like rich's [styles] and :symbols:.
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """On Ctrl-C say the command that resumes what the block does, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"cast-ray: stopped; resume with {command}", err=True)
        raise typer.Exit(130) from None
