"""Read boards from files of other programs, as text for ``Game.decode``.

A board's fault is returned as a value, so that all faults of a file can be shown together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cast_ray.errors import DamagedFileError, PuzzleError
from cast_ray.games.costs import cost_as_float
from cast_ray.games.game import Game, Tier
from cast_ray.games.text import BoardText
from cast_ray.parquet import read_table

_OTHER_NAMES = {
    "board_config": "board",
    "mine_positions": "mines",
    "optimal_moves": "cost_to_go",
    "min_moves_optimal": "cost_to_go",
}
"""Column names of other projects, and ours."""
_SIZE_COLUMNS = ("rows", "cols")
_RECORDS = ("extra_info", "reward_model")


def read_board_files(path: Path, game: Game[Any], tier: Tier | None = None) -> Iterator[BoardText]:
    """Yield the boards of a file, or of all files below a directory, in order.

    Args:
        path: a Parquet file with a column of boards, or with columns of ``Game.json_keys``; boards
            as text (``Game.read_boards``); or a directory of such files, whose names are sorted.
        game: the rules. Any: each game has a state type of its own.
        tier: gives the size of boards for which a table has no columns rows and cols, and says
            whether a missing cost is infinite.

    Raises:
        PuzzleError: a file cannot be read, has no column of boards, or there is no board.
    """
    has_any = False
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if path.is_dir() and (not file.is_file() or file.name.startswith(".")):
            continue
        for board in _boards_of(file, game, tier):
            has_any = True
            where = f"{file.relative_to(path)}, " if path.is_dir() else ""
            yield replace(board, place=where + board.place)
    if not has_any:
        raise PuzzleError(f"{path} has no board of {game.title}: give a file with at least one")


def _boards_of(path: Path, game: Game[Any], tier: Tier | None) -> list[BoardText]:
    try:
        content = path.read_bytes()
        if content.startswith(b"PAR1"):
            return _parquet_boards(path, read_table(path), game, tier)
    except (OSError, DamagedFileError) as error:
        raise PuzzleError(
            f"{path} cannot be read ({error}): give a Parquet file or a text file of boards"
        ) from error
    if b"\0" in content:
        raise PuzzleError(f"{path} is neither text nor Parquet: give a file of boards")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # collections from before UTF-8 have names in Latin-1
        text = content.decode("latin-1")
    return list(game.read_boards(text))


def _parquet_boards(
    path: Path, table: pa.Table, game: Game[Any], tier: Tier | None
) -> list[BoardText]:
    rows = [_flat(row) for row in table.to_pylist()]
    columns: list[str] = list(rows[0]) if rows else table.column_names
    names = [_OTHER_NAMES.get(name, name) for name in columns]
    own_columns = [key for key in game.json_keys if key not in _SIZE_COLUMNS]
    if not {"board", *own_columns}.intersection(names):
        if any("seed" in name for name in names):
            raise PuzzleError(
                f"{path} holds seeds of another generator and no boards: build boards with "
                "cast-ray data build, or export the boards themselves"
            )
        own = f", or use {' and '.join(game.json_keys)}" if own_columns else ""
        raise PuzzleError(
            f"{path} has the columns {', '.join(columns)}, and none of them holds "
            f"boards: name that column board{own}"
        )
    boards: list[BoardText] = []
    for number, values in enumerate(rows):
        # Of several columns with one meaning, ours counts, else the first.
        found = reversed(values.items())
        row = {_OTHER_NAMES.get(name, name): value for name, value in found} | values
        place, cost = f"row {number}", _given_cost(row, tier)
        try:
            text, title = _board_text(row, game, tier), str(row.get("title") or "")
            boards.append(BoardText(place=place, text=text, cost=cost, title=title))
        except PuzzleError as error:
            boards.append(BoardText(place=place, fault=str(error), cost=cost))
    return boards


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the fields of its records, which tables for verl have, as columns."""
    for name in _RECORDS:
        if isinstance(row.get(name), dict):
            row = row.pop(name) | row
    return row


def _given_cost(row: Mapping[str, Any], tier: Tier | None) -> float | None:
    """Return the cost of a row; None if the file gives none."""
    if "cost_to_go" not in row:
        return None
    cost = row["cost_to_go"]
    if "cost_status" in row and isinstance(cost, int | None):  # a file of ours
        return cost_as_float(cost, row["cost_status"])
    if isinstance(cost, int | float) and not math.isnan(cost):
        return float(cost)
    # The reference writes null for boards that its solver loses.
    return math.inf if tier and tier.cost_may_be_infinite else None


def _board_text(row: Mapping[str, Any], game: Game[Any], tier: Tier | None) -> str:
    if "board" not in row:
        described = {key: _as_json(row[key]) for key in game.json_keys if key in row}
        size = {"rows": tier.rows, "cols": tier.cols} if tier else {}
        return game.encode(game.from_json(size | described))
    if not isinstance(row["board"], str):
        raise PuzzleError(f"board is {row['board']!r} and not text: give the board's rows")
    return row["board"]


def _as_json(value: Any) -> Any:
    """Return a value as JSON has it: text that holds a list as that list, a record as its values.

    Any: what a file holds; ``Game.from_json`` checks it.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):  # no JSON, thousands of digits, thousands of brackets
            return value
    if isinstance(value, dict):
        value = list(value.values())
    return [_as_json(entry) for entry in value] if isinstance(value, list) else value
