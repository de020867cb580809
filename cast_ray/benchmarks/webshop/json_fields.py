"""What a decoded JSON object holds under a key, or one sentence that says what is there instead."""

from __future__ import annotations

from typing import cast

from cast_ray.errors import PuzzleError

JsonObject = dict[str, object]


def json_object(value: object, where: str) -> JsonObject:
    """Return a value that must be a JSON object.

    Raises:
        PuzzleError: it is something else.
    """
    if not isinstance(value, dict):
        raise PuzzleError(f"{where}: an object is expected, got {_shown(value)}")
    return cast(JsonObject, value)


def member(record: JsonObject, key: str, where: str) -> object:
    """Return what stands under a key that must be there.

    Raises:
        PuzzleError: the key is missing.
    """
    if key not in record:
        raise PuzzleError(f"{where}: the key {key!r} is missing")
    return record[key]


def text(record: JsonObject, key: str, where: str) -> str:
    """Return the text under a key.

    Raises:
        PuzzleError: the key is missing or holds no text.
    """
    value = member(record, key, where)
    if not isinstance(value, str):
        raise PuzzleError(f"{where}: {key!r} must be a text, got {_shown(value)}")
    return value


def texts(record: JsonObject, key: str, where: str) -> tuple[str, ...]:
    """Return the list of texts under a key.

    Raises:
        PuzzleError: the key is missing or holds no list of texts.
    """
    values = items(record, key, where)
    if not all(isinstance(value, str) for value in values):
        raise PuzzleError(f"{where}: {key!r} must hold texts alone, got {_shown(values)}")
    return tuple(cast(list[str], values))


def items(record: JsonObject, key: str, where: str) -> list[object]:
    """Return the list under a key.

    Raises:
        PuzzleError: the key is missing or holds no list.
    """
    value = member(record, key, where)
    if not isinstance(value, list):
        raise PuzzleError(f"{where}: {key!r} must be a list, got {_shown(value)}")
    return cast(list[object], value)


def _shown(value: object) -> str:
    """Return a value as it stands in a message: not longer than a line."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
