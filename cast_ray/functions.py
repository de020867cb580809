"""Functions of the user's that a configuration names: pinned to their source, then called.

A name is ``package.module:name`` or ``path/file.py:name``. Reading a configuration only reads the
source and adds its digest to the name; ``find_function`` imports it, only if the digest matches.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from cast_ray.errors import CallbackError, ConfigError

_DIGITS = 16
_NAME = re.compile(r"[^:]+:[A-Za-z_]\w*(@[0-9a-f]{16})?")
_sent: dict[str, bytes] = {}
"""Sources that another host sent, by pinned name."""


def pinned_name(key: str, name: str) -> str:
    """Return ``NAME@DIGEST`` of the present source, with an absolute path; a pinned name as it is.

    Args:
        key: of the configuration, for messages.
        name: of the function.

    Raises:
        ConfigError: it is no such name, or there is no such file or module.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{key} must be path/file.py:name or package.module:name, got {name!r}")
    place, function, digest = _split(name)
    if digest:
        return name
    if place.endswith(".py"):
        place = str(Path(place).absolute())
    return f"{place}:{function}@{_digest_of(_source(key, name))}"


def short_name(name: str) -> str:
    """Return a function's or class's own name, for people; a name without a place as it is."""
    return _split(name)[1]


def file_of(name: str) -> Path | None:
    """Return the file that a name gives by its path; None for a module's."""
    place, _, _ = _split(name)
    return Path(place) if place.endswith(".py") else None


def sent_name(name: str) -> str:
    """Return a pinned name as it is where a job's uploaded files are; a module's stays."""
    _, function, digest = _split(name)
    file = file_of(name)
    return f"functions/{digest}/{file.name}:{function}@{digest}" if file else name


def sources_of(names: Mapping[str, str]) -> dict[str, bytes]:
    """Return the sources of pinned names, by key, that are files of this host, by name."""
    return {name: _source(key, name) for key, name in names.items() if file_of(name)}


def keep_sources(sources: Mapping[str, bytes]) -> None:
    """Let ``find_function`` use sources that another host sent, in place of files."""
    _sent.update(sources)


@cache
def find_function(key: str, name: str, num_arguments: int) -> Callable[..., Any]:
    """Return a function that a configuration names; a failure of its own says where.

    Args:
        key: of the configuration, for messages.
        name: pinned, or not.
        num_arguments: that it is called with. Any: what it returns is checked by who calls it.

    Raises:
        ConfigError: it cannot be imported, is no longer what was pinned, or takes other arguments.
    """
    place, attribute, digest = _split(name)
    source = _source(key, name)
    if digest and _digest_of(source) != digest:
        raise ConfigError(
            f"{key}: {place} is not what this run began with (its digest is {_digest_of(source)}, "
            f"not {digest}): restore it, or begin a new run with {key}={place}:{attribute}"
        )
    try:
        function = getattr(_module(place, source), attribute)
    except Exception as error:  # a module that is not ours may raise anything
        raise ConfigError(f"{key}={place}:{attribute} cannot be imported: {told(error)}") from error
    try:
        inspect.signature(function).bind(*range(num_arguments))
    except (TypeError, ValueError) as error:
        code = getattr(function, "__code__", None)
        line = f" (line {code.co_firstlineno})" if code else ""
        raise ConfigError(
            f"{key}={place}:{attribute}{line} must be a function that can be called with "
            f"{num_arguments} positional argument{'s' * (num_arguments != 1)}: {error}"
        ) from None

    def call(*arguments: object) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise CallbackError(f"{key}={place}:{attribute} failed: {told(error)}") from error

    return call


def told(error: Exception) -> str:
    """Return an error raised by third-party code in one line, with its file and line."""
    text = " ".join([f"{type(error).__name__}:", *str(error).split()])
    frames = extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith("<") and "importlib" not in f.filename]
    if not own or own[-1].filename == __file__:
        return text
    return f"{text} ({own[-1].filename}, line {own[-1].lineno})"


def _split(name: str) -> tuple[str, str, str]:
    """Return file or module, name and digest of a function's name; without a digest it is empty."""
    place, _, rest = name.rpartition(":")
    function, _, digest = rest.partition("@")
    return place, function, digest


def _digest_of(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:_DIGITS]


def _source(key: str, name: str) -> bytes:
    if name in _sent:
        return _sent[name]
    path = file_of(name) or _module_file(_split(name)[0])
    if path is None or not path.is_file():
        missing = path or f"the module {_split(name)[0]}"
        raise ConfigError(
            f"{key}={name}: {missing} does not exist; give path/file.py:name, or "
            "package.module:name of an installed package"
        )
    return path.read_bytes()


def _module_file(module: str) -> Path | None:
    """Return a module's file without running it, nor the packages that it is in."""
    places: Any = None  # Any: of the import system
    found = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        specs = (find(name, places) for find in finders if find)
        found = next((spec for spec in specs if spec), None)
        if found is None:
            return None
        places = found.submodule_search_locations
    return Path(found.origin) if found and found.origin else None


@cache
def _module(place: str, source: bytes) -> ModuleType:
    """Return the module of a source that was checked; the bytes that were checked are run."""
    if not place.endswith(".py"):
        __import__(place)
        return sys.modules[place]
    module = ModuleType(f"cast_ray_{Path(place).stem}_{_digest_of(source)}")
    module.__file__ = place
    sys.modules[module.__name__] = module  # dataclasses look themselves up
    exec(compile(source, place, "exec"), module.__dict__)
    return module
