"""Files that are complete or absent, JSON of checked types, locks that end with their process."""

from __future__ import annotations

import errno
import json
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import yaml
from filelock import FileLock, Timeout

from cast_ray.errors import ConfigError, DamagedFileError, EnvironmentSetupError, RunDirectoryError

MAX_JSON_BYTES = 64 * 2**20
T = TypeVar("T")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; it is renamed to ``path`` if the block succeeds.

    A reader sees the old file or the complete new one, also after a power loss; after an error the
    old one is still there. The folder is made.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            fsync(aside)
            os.replace(aside, path)
            fsync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file as ``written_aside`` does.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def is_below(name: str) -> bool:
    """Return whether a relative name with slashes leads nowhere but below the folder it is for."""
    parts = name.split("/")
    return not {"", ".", ".."} & {*parts} and "\0" not in name and "\\" not in name


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; all of it is on disk when this returns, or none of it.

    What a killed process left of a last line is cut off first.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    data = f"{line}\n".encode()
    with refusals_named(path), open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
            end = path.read_bytes().rfind(b"\n") + 1
            file.truncate(end)
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def read_json(path: Path) -> Any:  # Any: what the file says
    """Return the content of a JSON file, of any that the caller does not trust.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, too large, or nested too deeply.
    """
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        raise ValueError(f"it has {size} bytes, more than {MAX_JSON_BYTES}")
    return parse_json(path.read_bytes())


def parse_json(text: str | bytes) -> Any:  # Any: what the text says
    """Return the value of a JSON text; ValueError if it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path) -> Any:  # Any: what the file says
    """Return the content of a YAML file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path} cannot be read as YAML ({reason})") from None


def read_record(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file as ``checked`` does.

    Raises:
        DamagedFileError: it cannot be read, or is not of this type.
    """
    with faults_named(path):
        return checked(kind, read_json(path))


def read_records(path: Path, kind: type[T]) -> list[T]:
    """Return the lines of a JSON Lines file; none if it does not exist.

    A last line that a killed process left incomplete is skipped.

    Raises:
        DamagedFileError: as for ``read_record``.
    """
    if not path.is_file():
        return []
    with faults_named(path):
        return [checked(kind, parse_json(line)) for line in path.read_bytes().split(b"\n")[:-1]]


@contextmanager
def faults_named(path: Path) -> Iterator[None]:
    """Name the file whose content the block cannot read.

    Raises:
        DamagedFileError: the block raised OSError or ValueError.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DamagedFileError(f"{path} cannot be read ({reason}): restore it") from None


def checked(kind: Any, value: Any, *, name: str = "it") -> Any:
    """Return a JSON value as an instance of a type. Any: an annotation; what JSON holds.

    An object becomes a data class, which has no further fields, or a ``TypedDict``, which may
    have; an array becomes a tuple or list, a whole number also a float.

    Raises:
        ValueError: it is none; the message says which part of ``name``.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if type(value) is dict and (is_typeddict(kind) or is_dataclass(kind)):
        hints = get_type_hints(kind)
        found = {key: checked(hints.get(key, Any), part, name=key) for key, part in value.items()}
        is_open = is_typeddict(kind)
        if wrong := (_needed(kind) - {*found}) or ({*found} - {*hints} if not is_open else set()):
            raise ValueError(f"{name} has a missing or unknown field {', '.join(sorted(wrong))}")
        build: Any = dict if is_open else kind
        return build(**found)
    if type(value) is dict and origin is dict:
        return {key: checked(inner[1], part, name=key) for key, part in value.items()}
    if type(value) is list and origin in (tuple, list):
        return origin(checked(inner[0], part, name=f"{name}[{i}]") for i, part in enumerate(value))
    for one in inner if origin in (Union, types.UnionType) else ():
        with suppress(ValueError):
            return checked(one, value, name=name)
    if isinstance(value, str):
        value.encode()  # half a character cannot be written again
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if kind is Any or kind is type(value) or (origin is Literal and value in inner):
        return value
    raise ValueError(f"{name} must be {getattr(kind, '__name__', kind)}, got {repr(value)[:80]}")


def _needed(kind: Any) -> set[str]:
    if is_typeddict(kind):  # __required_keys__ is wrong where annotations are texts
        hints = get_type_hints(kind, include_extras=True).items()
        exception = NotRequired if kind.__total__ else Required
        return {key for key, hint in hints if (get_origin(hint) is exception) != kind.__total__}
    return {f.name for f in fields(kind) if MISSING is f.default is f.default_factory}


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Exclude others, in this process too, during the block; also ends with the process.

    Args:
        path: the lock file; its folder is made.
        refusal: the message if another holds the lock.

    Raises:
        RunDirectoryError: another holds it.
        EnvironmentSetupError: the file system refused something.
    """
    lock = FileLock(path, timeout=0, thread_local=False)
    with refusals_named(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise RunDirectoryError(refusal) from None
    try:
        yield
    finally:
        lock.release()


def fsync(path: Path) -> None:
    """Return when a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_taken(path: Path) -> bool:
    """Return whether a new folder cannot be made there: it is a file, or a folder with content."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


@contextmanager
def refusals_named(path: Path) -> Iterator[Path]:
    """Yield ``path``; turn an ``OSError`` of the block into an error that names it.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    try:
        yield path
    except OSError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be written ({error.strerror or error}): free some space or choose "
            "another location"
        ) from None
