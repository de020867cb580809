"""Parquet files that detect any changed bit, read within limits.

With one bit flipped, Arrow reads a third of ordinary files as different data. Parquet's page
checksums, which no writer sets by default, do not cover page headers or the footer. Each file
therefore stores its own digest in its metadata, and the digest is checked before anything else is
read. A file without a digest is read unchecked. So is a file whose length differs from the recorded
one: other programs copy the metadata when they rewrite a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from cast_ray.errors import DamagedFileError
from cast_ray.files import written_aside

if TYPE_CHECKING:  # imported where it is used: it would slow every command's start
    import polars as pl

MAX_ROWS = 20_000_000
MAX_BYTES = 4 * 2**30
"""What is read of a file, at most: a hostile one of a few kilobytes can say to have more."""
_ROWS_AT_ONCE = 1024
_KEY = b"cast_ray.blake3"
_BETWEEN = 2
"""Bytes between key and value: type and length of the text, by which Thrift says it comes."""
_LENGTH, _DIGITS = 16, 64
"""Of the value: the file's number of bytes, and its digest with zeros in the digest's place."""


def write_table(path: Path, table: pa.Table) -> None:
    """Write a file that is complete or absent, and synced before it gets its name.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEY: b"0" * (_LENGTH + _DIGITS)})
    data = bytearray(sink.getvalue())
    length, digest = _places(data)
    data[length] = f"{len(data):0{_LENGTH}}".encode()
    data[digest] = blake3(data).hexdigest().encode()
    with written_aside(path) as aside:
        aside.write_bytes(data)


def write_frame(path: Path, frame: pl.DataFrame) -> None:
    """Write a data frame as ``write_table`` does."""
    import polars as pl

    write_table(path, frame.to_arrow(compat_level=pl.CompatLevel.oldest()))


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Yield a file that has not changed since it was written; ``read_rows`` reads from it.

    Raises:
        DamagedFileError: it is missing, no Parquet or too large, or it has changed; so are the
            block's ValueError and Arrow's exceptions.
    """
    try:
        # Not mapped: a file that shrinks meanwhile would end the process.
        data = path.read_bytes()
        length, digest = _places(data)
        if data[length] == f"{len(data):0{_LENGTH}}".encode():
            found = blake3(data[: digest.start]).update(b"0" * _DIGITS).update(data[digest.stop :])
            if found.hexdigest().encode() != data[digest]:
                raise ValueError("it has changed since it was written")
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            yield file
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:300]
        raise DamagedFileError(f"{path} cannot be read ({reason}): restore it") from None


def read_rows(
    file: pq.ParquetFile, columns: Sequence[str] | None = None, *, part: int | None = None
) -> pa.Table:
    """Return the rows of an open file, or of one row group; ``columns`` = None: all columns."""
    if file.metadata.num_rows > MAX_ROWS:
        raise ValueError(f"it has {file.metadata.num_rows} rows, more than {MAX_ROWS}")
    schema = file.schema_arrow
    names = schema.names if columns is None else list(columns)
    if lacks := sorted({*names} - {*schema.names}):
        raise ValueError(f"it has no column {', '.join(lacks)}")
    batches, num_bytes = [], 0
    parts = None if part is None else [part]
    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=parts, columns=names):
        batches.append(batch)
        num_bytes += batch.nbytes
        if num_bytes > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key != _KEY}
    wanted = pa.schema([schema.field(name) for name in names], metadata)
    return pa.Table.from_batches(batches, wanted).combine_chunks()


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a file's columns, all without ``columns``.

    Raises:
        DamagedFileError: as for ``opened``, or it lacks a column.
    """
    with opened(path) as file:
        return read_rows(file, columns)


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return a file as a data frame, as ``read_table`` does.

    Polars' own reader asks for 2 EiB of memory at some flipped bits and aborts the process.
    """
    import polars as pl

    frame = pl.from_arrow(read_table(path, columns))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _places(data: bytes | bytearray) -> tuple[slice, slice]:
    """Return where a file has its length and digest; anywhere if it has none."""
    begin = data.rfind(_KEY) + len(_KEY) + _BETWEEN
    return slice(begin, begin + _LENGTH), slice(begin + _LENGTH, begin + _LENGTH + _DIGITS)
