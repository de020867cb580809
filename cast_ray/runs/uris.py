"""URIs as text: what lies below one, and above; options stay at the end.

A ``Path`` would fold the slashes of a URI, so that it travels as text everywhere.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


def with_options(uri: str, options: str) -> str:
    """Return a URI with more options, as ``key=value&…``."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(query="&".join(filter(None, [parts.query, options]))))


def is_uri(text: str | Path) -> bool:
    """Return whether this is a URI and no local path."""
    scheme, separator, _ = str(text).partition("://")
    return bool(separator) and scheme.replace("+", "").isalnum()


def child_uri(uri: str, *names: str) -> str:
    """Return the URI of what lies below another one; its options stay at the end."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path="/".join([parts.path.rstrip("/"), *names])))


def parent_uri(uri: str) -> str:
    """Return the URI of the folder that something lies in."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").rpartition("/")[0]))


def name_of(uri: str) -> str:
    """Return the last part of a URI's path, or the bucket's name."""
    parts = urlsplit(uri)
    return parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
