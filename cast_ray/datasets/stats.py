"""Statistics of puzzle files: counts, costs, measures, and overlap of training and test puzzles.

``plot_costs`` draws the distribution of costs.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cast_ray.datasets.build import ROLE, SPLIT, UNFINISHED
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.files import written_aside
from cast_ray.games import find_tier, get_game
from cast_ray.games.costs import INFINITE, UNKNOWN
from cast_ray.games.game import Game
from cast_ray.games.puzzles import Puzzle, read_puzzle_metadata, read_puzzles


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleFile:
    """One file."""

    path: Path
    is_training: bool
    """By its metadata, otherwise by ``train`` in its name; other files are test files."""
    split: str
    """How ``data build`` divided the puzzles; empty for other files."""
    puzzles: list[Puzzle]
    canonical: list[str]
    """Each puzzle's canonical text, computed from its board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The result of comparing a training file with a test file."""

    train_file: Path
    test_file: Path
    overlaps: list[tuple[int, int]]
    """Rows of the shared puzzles in the training and the test file."""


def read_puzzle_files(paths: Sequence[Path]) -> list[PuzzleFile]:
    """Return the puzzle files at these paths and in these directories.

    Raises:
        PuzzleError: a file is damaged, or there is none.
    """
    files = sorted({file for path in paths for file in _files_of(path)})
    if not files:
        named = ", ".join(str(path) for path in paths)
        raise PuzzleError(
            f"there is no Parquet file in {named}: build one with cast-ray data build"
        )
    return [_read(file) for file in files]


def certify(files: Sequence[PuzzleFile]) -> list[Certificate]:
    """Return which puzzles each pair of a training and a test file of one game shares.

    Puzzles are compared up to symmetry, by their boards and not by the column of ids.
    """
    certificates: list[Certificate] = []
    for train in files:
        if not train.is_training:
            continue
        rows = {key: row for row, key in reversed(list(enumerate(_keys(train))))}
        games = {puzzle.game for puzzle in train.puzzles}
        for test in files:
            if test.is_training or games.isdisjoint(puzzle.game for puzzle in test.puzzles):
                continue
            overlaps = [(rows[key], row) for row, key in enumerate(_keys(test)) if key in rows]
            certificates.append(
                Certificate(train_file=train.path, test_file=test.path, overlaps=overlaps)
            )
    return certificates


def stats_view(files: Sequence[PuzzleFile], certificates: Sequence[Certificate]) -> Group:
    """Return the terminal's view: the table, how sets were divided, the certificates."""
    parent = Path(os.path.commonpath([file.path.absolute().parent for file in files]))
    splits = {file.path.parent: file.split for file in files if file.split}
    lines = [Text(f"{directory}: {split}") for directory, split in splits.items()]
    for test in dict.fromkeys(each.test_file for each in certificates):
        lines += _verdict(test, [each for each in certificates if each.test_file == test])
    if not certificates:
        lines.append(Text("no pair of a training and a test file of one game to compare"))
    return Group(_table(files, parent), *lines)


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in path.rglob("*.parquet") if UNFINISHED not in file.parts]


def _read(path: Path) -> PuzzleFile:
    puzzles = read_puzzles(path)
    metadata = read_puzzle_metadata(path)
    is_training = metadata[ROLE] == "train" if ROLE in metadata else "train" in path.stem
    games: dict[str, Game[Any]] = {p.game: get_game(p.game) for p in puzzles}
    return PuzzleFile(
        path=path,
        is_training=is_training,
        split=metadata.get(SPLIT, ""),
        puzzles=puzzles,
        canonical=[games[p.game].canonical(games[p.game].decode(p.board)) for p in puzzles],
    )


def _keys(file: PuzzleFile) -> list[tuple[str, str]]:
    """Return keys that identify the puzzles of a file."""
    return [(p.game, text) for p, text in zip(file.puzzles, file.canonical, strict=True)]


def _table(files: Sequence[PuzzleFile], parent: Path) -> Table:
    table = Table(title=f"puzzles in {parent}", title_justify="left")
    table.add_column("file", overflow="fold")
    for name in ("puzzles", "distinct", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("mean of", no_wrap=True)
    for file in files:
        table.add_row(
            str(file.path.absolute().relative_to(parent)),
            f"{len(file.puzzles):,}",
            f"{len(set(_keys(file))):,}",
            _costs(file.puzzles),
            _measures(file.puzzles),
            end_section=True,
        )
    return table


def _costs(puzzles: Sequence[Puzzle]) -> str:
    """Return range, median and mean of exact costs, and how many are not exact."""
    costs = [p.cost_to_go for p in puzzles if p.cost_to_go is not None]
    statuses = [p.cost_status for p in puzzles]
    lines = ["none exact"]
    if costs:
        median, mean = statistics.median(costs), statistics.fmean(costs)
        lines = [f"{min(costs)} to {max(costs)}", f"median {median:g}", f"mean {mean:.1f}"]
    lines += [f"{statuses.count(status):,} {status}" for status in (INFINITE, UNKNOWN)]
    return "\n".join(lines)


def _measures(puzzles: Sequence[Puzzle]) -> str:
    values: dict[str, list[float]] = {}
    for puzzle in puzzles:
        for name, value in puzzle.measures.items():
            values.setdefault(name, []).append(value)
    return "\n".join(f"{name} {statistics.fmean(each):.3g}" for name, each in values.items())


def _verdict(test_file: Path, certificates: Sequence[Certificate]) -> list[Text]:
    """Return the lines about one test file and all training files of its game."""
    lines: list[Text] = []
    clean = [str(each.train_file) for each in certificates if not each.overlaps]
    if clean:
        verdict = f"up to symmetry: {test_file} and {', '.join(clean)}"
        lines.append(Text.assemble(("disjoint ", "green"), verdict))
    for each in certificates:
        if each.overlaps:
            verdict = f"{test_file} and {each.train_file} share {len(each.overlaps):,}"
            lines.append(Text.assemble(("NOT DISJOINT ", "bold red"), f"up to symmetry: {verdict}"))
        rows = (f"test row {test} = training row {train}" for train, test in each.overlaps)
        lines += [Text(f"  {row}") for row in rows]  # all: each must be taken out
    return lines


_COLUMNS = 2
_PANEL_INCHES = (6.0, 2.8)
_COLORS = {True: "#3b6ea8", False: "#d9822b"}
_FORMATS = ("png", "svg", "pdf")


def plot_costs(files: Sequence[PuzzleFile], path: Path) -> None:
    """Draw one panel per game and tier: the share of puzzles at each cost, for each file.

    Raises:
        ConfigError: the picture's format is not supported.
    """
    if path.suffix[1:].lower() not in _FORMATS:
        raise ConfigError(f"--plot must end in {', '.join(_FORMATS)}, got {path}")
    panels: dict[tuple[str, str], list[PuzzleFile]] = {}
    for file in files:
        for key in dict.fromkeys((p.game, p.tier) for p in file.puzzles):
            panels.setdefault(key, []).append(file)
    columns = min(_COLUMNS, max(len(panels), 1))
    rows = max(math.ceil(len(panels) / columns), 1)
    figure = Figure(
        figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows), layout="constrained"
    )
    in_order = sorted(panels, key=lambda key: (key[0], find_tier(*key).max_cost))
    for number, key in enumerate(in_order, start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), key, panels[key])
    with written_aside(path) as aside:
        figure.savefig(aside, format=path.suffix[1:].lower(), dpi=120)


def _draw_panel(axes: Axes, key: tuple[str, str], files: Sequence[PuzzleFile]) -> None:
    """Draw one game and tier; infinite and unknown costs are drawn right of the largest one."""
    puzzles = {file.path: [p for p in file.puzzles if (p.game, p.tier) == key] for file in files}
    exact = [p.cost_to_go for each in puzzles.values() for p in each if p.cost_to_go is not None]
    apart = sorted(
        {p.cost_status for each in puzzles.values() for p in each if p.cost_to_go is None}
    )
    last = max(exact, default=0)
    gap = max(2, math.ceil(last / 8))
    position_of = {status: last + gap * (1 + i) for i, status in enumerate(apart)}
    width = 0.8 / len(files)
    has_namesakes = len({file.path.stem for file in files}) < len(files)
    for number, file in enumerate(files):
        mine = puzzles[file.path]
        counts = Counter(
            p.cost_to_go if p.cost_to_go is not None else position_of[p.cost_status] for p in mine
        )
        shift = (number - (len(files) - 1) / 2) * width
        axes.bar(
            [cost + shift for cost in counts],
            [count / len(mine) for count in counts.values()],
            width=width,
            color=_COLORS[file.is_training] if len(files) <= 2 else None,
            label=f"{file.path if has_namesakes else file.path.stem} ({len(mine):,})",
        )
    ticks = list(range(min(exact, default=0), last + 1, max(1, math.ceil((last + 1) / 12))))
    axes.set_xticks([*ticks, *position_of.values()], [*map(str, ticks), *position_of])
    axes.set_title(f"{key[0]} {key[1]}", loc="left", fontsize="medium")
    axes.set_xlabel("cost-to-go of the start state, in moves")
    axes.set_ylabel("share of puzzles")
    axes.spines[["top", "right"]].set_visible(False)
    if len(files) <= 2:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    else:
        axes.margins(y=0.1 * len(files))  # room for the legend
        axes.legend(frameon=False, loc="upper right")
