"""Mutations of valid files: of their bytes, of the values in JSON and YAML, of tables."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from cast_ray.errors import CastRayError
from cast_ray.parquet import write_table

NESTED: Any = []
for _ in range(500):
    NESTED = [NESTED]
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 0.5, 1e308, float("nan"),
    float("inf"), "", "a", "1", "\0", "\ud800", "../../etc/passwd", "${oc.env:HOME}", "ä" * 5000,
    [], {}, [[]], {"": {}}, [None], ["a"] * 3, [1] * 3, NESTED,
)  # fmt: skip
ODD_CELLS = (
    None, "", "a", "\0", 0, -1, 2**31 - 1, 0.5, float("nan"), float("inf"), [], [None], [0], ["a"],
)  # fmt: skip
"""Without those at which Arrow aborts while it makes an array: no writer of ours gets that far."""
ODD_PIECES = (
    b"", b"\0", b"\xff", b"\n", b" ", b'"', b"[" * 3000, b"{", b"}", b"9" * 5000, b"1e999", b"NaN",
    b"null", b"&a [*a]", b"!!python/object:os.system", b"\xed\xa0\x80", b"\r\n", b"- - - ", b"'",
)  # fmt: skip


def mutated(form: str, data: bytes) -> st.SearchStrategy[bytes]:
    """Return mutations of a valid file of a form of ``Kind``."""
    ways: list[Callable[[bytes, Random], bytes]] = [_bytes]
    if form == "parquet":
        ways = [_bytes, _table, _table, _table]
    elif form in _VALUES:
        ways = [_bytes, _VALUES[form], _VALUES[form]]
    # From a seed, for speed; a failure is shrunk to the smallest number of mutations.
    return st.builds(
        lambda way, seed, number: _repeated(ways[way % len(ways)], data, Random(seed), number),
        st.integers(0, 11),
        st.integers(0, 2**32),
        st.integers(1, 3),
    )


def _repeated(
    way: Callable[[bytes, Random], bytes], data: bytes, draw: Random, number: int
) -> bytes:
    for _ in range(number):
        try:
            data = way(data, draw)
        except (
            ValueError, LookupError, TypeError, OverflowError, RecursionError, CastRayError,
            pa.ArrowException, yaml.YAMLError,
        ):  # fmt: skip
            return data  # what an earlier mutation left cannot be parsed
    return data


def _bytes(data: bytes, draw: Random) -> bytes:
    """Flip, cut, duplicate, insert, swap, fill with zeros."""
    first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    piece = data[first:last]
    if draw.random() < 0.5:
        last = min(len(data), first + draw.randrange(1, 9))
        piece = data[first:last]
    way = draw.randrange(7)
    if way == 0 and data:
        flipped = bytearray(data)
        flipped[first - 1] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    if way == 1:
        return data[:first] + data[last:]
    if way == 2:
        return data[:first]
    if way == 3:
        return data[:last] + piece + data[last:]
    if way == 4:
        return data[:first] + draw.choice(ODD_PIECES) + data[first:]
    if way == 5:
        return data[:first] + draw.choice(ODD_PIECES) + data[last:]
    return data[:first] + bytes(len(piece)) + data[last:]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key in a value."""
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _value(value: Any, draw: Random) -> Any:
    """Replace, delete, rename, nest, add or move a value somewhere in a value."""
    places = list(_places(value))
    if not places or draw.random() < 0.05:
        return draw.choice(ODD_VALUES)
    holder, key = draw.choice(places)
    way = draw.randrange(8)
    if way < 3:
        holder[key] = draw.choice(ODD_VALUES)
    elif way == 3:
        del holder[key]
    elif way == 4:
        holder[key] = [holder[key]] if draw.random() < 0.5 else {"a": holder[key]}
    elif way == 5:
        other, place = draw.choice(places)
        if place in other if isinstance(other, dict) else place < len(other):
            holder[key] = json.loads(json.dumps(other[place]))
    elif way == 6 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * draw.choice((-1, 10, 10**9, 0.5)) + draw.choice((0, 1))
    elif isinstance(holder, dict):
        holder[draw.choice(("", "a", "step", "__metadata__", f"{key}s"))] = holder[key]
    return value


def _json(data: bytes, draw: Random) -> bytes:
    return json.dumps(_value(json.loads(data), draw)).encode()


def _lines(data: bytes, draw: Random) -> bytes:
    lines = data.split(b"\n")
    number = draw.randrange(len(lines))
    if draw.random() < 0.2:
        lines.insert(draw.randrange(len(lines)), lines[number])
    else:
        lines[number] = _json(lines[number], draw)
    return b"\n".join(lines)


def _yaml(data: bytes, draw: Random) -> bytes:
    return json.dumps(_value(yaml.safe_load(data), draw)).encode()  # JSON is YAML, too


def _safetensors(data: bytes, draw: Random) -> bytes:
    end = 8 + int.from_bytes(data[:8], "little")
    header = _json(data[8:end], draw)
    return len(header).to_bytes(8, "little") + header + data[end:]


_VALUES = {"json": _json, "lines": _lines, "yaml": _yaml, "safetensors": _safetensors}


def _table(data: bytes, draw: Random) -> bytes:
    """Change columns, rows or one value of a table; it keeps a valid digest."""
    table = pq.read_table(io.BytesIO(data))
    name = draw.choice(table.column_names)
    index = table.column_names.index(name)
    way = draw.randrange(10)
    if way == 0:
        table = table.drop_columns([name])
    elif way == 1:
        table = table.rename_columns([f"{c}s" if c == name else c for c in table.column_names])
    elif way == 2:
        table = table.set_column(index, name, pa.nulls(len(table), table[name].type))
    elif way == 3:
        table = table.set_column(index, name, pa.array([str(v) for v in table[name].to_pylist()]))
    elif way == 4:
        table = table.slice(draw.randrange(len(table) + 1))
    elif way == 5:
        table = pa.concat_tables([table, table])
    else:
        column = table[name].to_pylist()
        row = draw.randrange(len(column))
        column[row] = draw.choice((*ODD_CELLS, column[0], column[-1]))
        if not (pa.types.is_map(table[name].type) and column[row] == [None]):  # Arrow would abort
            table = table.set_column(index, name, pa.array(column, table[name].type))
    with TemporaryDirectory() as folder:
        write_table(Path(folder) / "table", table)
        return (Path(folder) / "table").read_bytes()
