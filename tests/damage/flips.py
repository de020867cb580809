"""Flips single bits of a file and counts what its reader makes of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.damage.kinds import Kind
from tests.damage.reading import Outcome, Reading

ENDS = ("silent", "refused", "no effect", "raised", "aborted")


def flipped(
    kind: Kind, path: Path, reading: Reading, *, flips: int, seed: int
) -> Iterator[Outcome]:
    """Yield the outcome of each flip; the file is as before when this ends.

    Half of the flips are in the part of the file that describes the rest, if it has one.
    """
    data, draw = path.read_bytes(), random.Random(seed)
    sound = reading.read(kind.name, path)
    assert sound.end == "read", f"{kind.name}: {sound.said}"
    first, last = _description(kind, data)
    for number in range(flips):
        bit = draw.randrange(8 * first, 8 * last) if number % 2 else draw.randrange(8 * len(data))
        _write(path, data, at=bit // 8, value=data[bit // 8] ^ 1 << bit % 8)
        found = reading.read(kind.name, path)
        _write(path, data, at=bit // 8, value=data[bit // 8])
        if found.end == "read":
            found = Outcome("no effect" if found == sound else "silent", f"bit {bit}")
        yield found


def counts(kind: Kind, path: Path, reading: Reading, *, flips: int) -> Counter[str]:
    return Counter(found.end for found in flipped(kind, path, reading, flips=flips, seed=0))


def _description(kind: Kind, data: bytes) -> tuple[int, int]:
    """Return where a file describes itself, in bytes: Parquet's footer, the header of tensors."""
    if kind.form == "parquet":
        return len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)
    if kind.form == "safetensors":
        return 0, 8 + int.from_bytes(data[:8], "little")
    return 0, len(data)


def _write(path: Path, data: bytes, *, at: int, value: int) -> None:
    """Change one byte where it is; a reader may have cut the file."""
    if path.stat().st_size != len(data):
        path.write_bytes(data)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([value]))
