"""Reads the files that trackers write, without their own pages."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event

_BLOCK = 32 * 1024
_BLOCK_HEADER = 7
_FILE_HEADER = 7
_WHOLE_RECORD, _LAST_PIECE = 1, 4


def events(file: Path) -> list[Event]:
    """Return TensorBoard's events: length, 4 bytes of checksum, event, 4 bytes of checksum."""
    data, found = file.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found


def wandb_records(file: Path) -> Iterator[Any]:
    """Yield the records (Any: its own messages) of an offline run, a log in LevelDB's format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, pieces = file.read_bytes(), _FILE_HEADER, b""
    while place < len(data):
        left = _BLOCK - place % _BLOCK
        if left < _BLOCK_HEADER:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + _BLOCK_HEADER])
        place += _BLOCK_HEADER
        pieces += data[place : place + length]
        place += length
        if kind in (_WHOLE_RECORD, _LAST_PIECE):
            yield Record.FromString(pieces)
            pieces = b""
