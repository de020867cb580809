"""Where something lies: a path of this machine or a URI, told apart once, where the text enters.

Below that point the type says which of the two it is, and both are used by the same words: ``/``,
``name``, ``parent``, ``absolute()``. A hub's model at a commit is a URI: ``owner/name@commit``
becomes ``hf://owner/name@commit``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit

from cast_ray.errors import ConfigError

_HUB = re.compile(r"(?:hf://)?([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")
COMMIT = re.compile("[0-9a-f]{40}")


def hub_name(text: str) -> tuple[str, str]:
    """Return name and revision (empty = none given) of a hub's model; empty if it cannot be one."""
    found = _HUB.fullmatch(text)
    return (found[1], found[2] or "") if found else ("", "")


class Uri(str):
    """A URI. Its options (``?key=value``) stay at the end of what lies below or above it.

    Text, because a ``Path`` would fold its slashes.
    """

    __slots__ = ()

    def __truediv__(self, name: str | Path) -> Uri:
        """Return the URI of what lies below."""
        parts = urlsplit(self)
        return Uri(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    @property
    def name(self) -> str:
        """The last part of the path, or the bucket's name."""
        parts = urlsplit(self)
        name = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
        return name.partition("@")[0] if self.hub_model else name

    @property
    def hub_model(self) -> tuple[str, str] | None:
        """Name and commit of a hub's model (``cast_ray.runs.hub``); None for other URIs."""
        name, revision = hub_name(self)
        return (name, revision) if COMMIT.fullmatch(revision) else None

    @property
    def parent(self) -> Uri:
        """The URI of the folder that this lies in."""
        parts = urlsplit(self)
        return Uri(urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0])))

    def absolute(self) -> Uri:
        """Return this URI: it does not depend on the working directory."""
        return self

    def is_absolute(self) -> bool:
        """Return True."""
        return True

    def with_options(self, options: str) -> Uri:
        """Return this URI with more options, given as ``key=value&…``."""
        parts = urlsplit(self)
        query = "&".join(filter(None, [parts.query, options]))
        return Uri(urlunsplit(parts._replace(query=query)))


PathOrUri: TypeAlias = Path | Uri


def path_or_uri(text: str | Path) -> PathOrUri:
    """Return what a configuration value or an argument names; a hub's model by its commit.

    Raises:
        ConfigError: a URI with ``#``, which would be taken for the end of its path.
    """
    if Uri(text).hub_model and not Path(text).is_dir():
        return Uri(f"hf://{str(text).removeprefix('hf://')}")
    scheme, separator, rest = str(text).partition("://")
    is_uri = separator and scheme.replace("+", "").isalnum()
    if is_uri and "#" in rest:
        raise ConfigError(f"{text}: the path of a URI ends at #, give a name without it")
    return Uri(text) if is_uri else Path(text)
