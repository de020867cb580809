"""Parquet files of ours: one flipped bit is noticed, and what a file says of itself is bounded."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray import parquet
from cast_ray.errors import DamagedFileError
from cast_ray.rollout.trajectory import BATCH_SCHEMA
from solver_actors.oracle import Oracle
from tests.support.browsed_run import write_run

FLIPS = 3000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    run = write_run(tmp_path_factory.mktemp("run") / "run", Oracle(max_bytes=2**24))
    return run.read_trajectories(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.parquet"


def test_a_table_comes_back_with_its_metadata(path: Path, table: pa.Table) -> None:
    wanted = table.replace_schema_metadata({"seed": "3"})
    parquet.write_table(path, wanted)
    for found in (parquet.read_table(path), parquet.read_table(path, ["group", "states"])):
        assert found.equals(wanted.select(found.column_names))
        assert found.schema.metadata == {b"seed": b"3"}
    assert pq.read_table(path).equals(wanted)  # other programs read it, too
    assert pl.read_parquet(path).height == len(wanted)


def test_equal_tables_give_equal_bytes(tmp_path: Path, table: pa.Table) -> None:
    for name in ("a", "b"):
        parquet.write_table(tmp_path / name, table)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_flipped_bit_goes_unnoticed(path: Path, table: pa.Table) -> None:
    """Half of them in the footer, which holds names, types and places of all columns."""
    parquet.write_table(path, table)
    data, draw = path.read_bytes(), random.Random(0)
    footer = 8 * (len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    noticed = 0
    for number in range(FLIPS):
        bit = draw.randrange(footer if number % 2 else 0, 8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = parquet.read_table(path)
        except DamagedFileError:
            noticed += 1
            continue
        # In the length or the key of the digest: the table is whole.
        assert found.equals(table) and found.schema.equals(BATCH_SCHEMA)
    assert noticed > 0.99 * FLIPS


def test_what_another_program_made_of_a_file_is_read(path: Path, table: pa.Table) -> None:
    parquet.write_table(path, table)
    copied = pq.ParquetFile(path).read().slice(1)
    assert b"cast_ray.blake3" in copied.schema.metadata
    pq.write_table(copied, path)
    assert parquet.read_table(path).equals(table.slice(1))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet", b"PAR1" + b"\xff" * 64 + b"PAR1"])
def test_what_is_no_table_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"table\.parquet"):
        parquet.read_table(path)


def test_a_column_that_is_not_there_is_named(path: Path, table: pa.Table) -> None:
    parquet.write_table(path, table)
    with pytest.raises(DamagedFileError, match="no column risk"):
        parquet.read_table(path, ["group", "risk"])


def test_a_small_file_that_says_to_be_large_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal values take no space, so that a few kilobytes may say to be gigabytes."""
    bomb = pa.table({"text": pa.array(["x" * 10_000] * 20_000).dictionary_encode()})
    parquet.write_table(path, bomb)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(parquet, "MAX_BYTES", 2**20)
    plain = pa.schema([pa.field("text", pa.string())])
    pq.write_table(bomb.cast(plain), path)
    with pytest.raises(DamagedFileError, match="more than 1048576 bytes"):
        parquet.read_table(path)
    monkeypatch.setattr(parquet, "MAX_ROWS", 10)
    with pytest.raises(DamagedFileError, match="20000 rows"):
        parquet.read_table(path, [])
