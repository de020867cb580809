"""What is in puzzle files: numbers, costs, measures, and whether test puzzles stay untrained on."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cast_ray.costs import INFINITE, UNKNOWN
from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.base import Game
from cast_ray.jobs.build_puzzles import ROLE, SPLIT, UNFINISHED
from cast_ray.puzzles import Puzzle, read_puzzle_metadata, read_puzzles

_NUM_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleFile:
    """One file, read and checked."""

    path: Path
    is_training: bool
    """By its metadata, else by ``train`` in its name; all other files are for tests."""
    split: str
    """How ``data build`` divided the puzzles; empty for other files."""
    puzzles: list[Puzzle]
    canonical: list[str]
    """Each puzzle's canonical text, worked out from its board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A puzzle that is trained on and tested on."""

    train_file: Path
    train_row: int
    test_file: Path
    test_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a comparison of a training and a test file gave."""

    train_file: Path
    test_file: Path
    overlaps: list[Overlap]


def read_puzzle_files(paths: Sequence[Path]) -> list[PuzzleFile]:
    """Return the puzzle files that are named, or lie in a directory that is named.

    Raises:
        PuzzleError: a file is broken, or there is none.
    """
    files = sorted({file for path in paths for file in _files_of(path)})
    if not files:
        named = ", ".join(str(path) for path in paths)
        raise PuzzleError(
            f"there is no Parquet file in {named}: build one with cast-ray data build"
        )
    return [_read(file) for file in files]


def certify(files: Sequence[PuzzleFile]) -> list[Certificate]:
    """Return, for each training and test file of the same game, which puzzles they share.

    Equal up to symmetry counts as shared. Judged by the boards alone, not by the column of ids.
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
            overlaps = [
                Overlap(
                    train_file=train.path, train_row=rows[key], test_file=test.path, test_row=row
                )
                for row, key in enumerate(_keys(test))
                if key in rows
            ]
            certificates.append(
                Certificate(train_file=train.path, test_file=test.path, overlaps=overlaps)
            )
    return certificates


def stats_view(files: Sequence[PuzzleFile], certificates: Sequence[Certificate]) -> Group:
    """Return what the terminal shows: the table, how sets were divided, the certificates."""
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
    """Return what tells the puzzles of a file apart."""
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
    """Return least to largest exact cost, median and mean, and how many are not exact."""
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
    """Return what is to be said about one test file and all training files of its game."""
    lines: list[Text] = []
    clean = [str(each.train_file) for each in certificates if not each.overlaps]
    if clean:
        verdict = f"up to symmetry: {test_file} and {', '.join(clean)}"
        lines.append(Text.assemble(("disjoint ", "green"), verdict))
    for each in certificates:
        if each.overlaps:
            verdict = f"{test_file} and {each.train_file} share {len(each.overlaps):,}"
            lines.append(Text.assemble(("NOT DISJOINT ", "bold red"), f"up to symmetry: {verdict}"))
        lines += [
            Text(f"  test row {overlap.test_row} = training row {overlap.train_row}")
            for overlap in each.overlaps[:_NUM_LISTED]
        ]
        if len(each.overlaps) > _NUM_LISTED:
            lines.append(Text(f"  … and {len(each.overlaps) - _NUM_LISTED:,} more"))
    return lines
