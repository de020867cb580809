"""What is kept of validations: attempts and wins of every board, once a step."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.runs.metrics import VALIDATION_SCHEMA, keep_validation, read_validation
from tests.support.odd_names import ODD_NAME

WINS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1)


def table(wins: dict[str, list[float]]) -> pa.Table:
    rows = [
        # A share of the reward is no win.
        {"puzzle_id": name, "end_reason": "solved" if won else "lost", "reward": won or 0.9}
        for name, all_ in wins.items()
        for won in all_
    ]
    return pa.Table.from_pylist(rows)


def test_each_board_s_wins_are_counted_and_a_step_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "validation.parquet"
    assert read_validation(path).is_empty()
    keep_validation(path, 2, table({"b": [1, 0, 1], "a": [0, 0, 0]}))
    keep_validation(path, 0, table({"b": [0, 0, 0], "a": [0, 1, 0]}))
    keep_validation(path, 2, table({"b": [1, 1, 1], "a": [0, 0, 0]}))
    found = read_validation(path)
    assert found.schema == VALIDATION_SCHEMA
    assert found.rows() == [(0, "a", 3, 1), (0, "b", 3, 0), (2, "a", 3, 0), (2, "b", 3, 3)]
    assert [one.name for one in tmp_path.iterdir()] == ["validation.parquet"]


@settings(max_examples=20)
@given(st.dictionaries(st.text("abc", min_size=1), WINS, min_size=1))
def test_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, wins: dict[str, list[float]]
) -> None:
    path = tmp_path_factory.mktemp(ODD_NAME) / "validation.parquet"
    keep_validation(path, 1, table(wins))
    sums = read_validation(path).select(pl.col("attempts", "solved").sum()).row(0)
    every = [won for all_ in wins.values() for won in all_]
    assert sums == (len(every), sum(every))
