"""The file system behind a URI: PyArrow's own where it knows the scheme, fsspec's where not.

Credentials are the surroundings', never part of a URI. S3 gets time-outs and few attempts, which
PyArrow's own reading of a URI has no way to say.
"""

from __future__ import annotations

import functools
import os
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import fsspec
from pyarrow import fs

from cast_ray.errors import StorageError
from cast_ray.uris import is_uri, with_options

_CONNECT_S, _REQUEST_S, _ATTEMPTS = 5, 20, 3
"""Of one request, so that a dead end is known within a minute; who must not give up tries again."""
_SECRET_WORDS = ("key", "secret", "token", "password")
_S3_OPTIONS = frozenset(
    {
        "endpoint_override",
        "scheme",
        "region",
        "tls_ca_file_path",
        "request_timeout_s",
        "max_attempts",
    }
)
_S3_SWITCHES = frozenset(
    {"allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing"}
)


def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI and the path in it."""
    if not is_uri(uri):
        raise StorageError(f"{uri!r} is no URI: give one as s3://bucket/path")
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    if parts.password or any(word in key for key in options for word in _SECRET_WORDS):
        raise StorageError(
            f"a URI at {parts.hostname} has credentials in it, and it would be written down with "
            "the run: give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    filesystem, root = _file_system(parts.scheme, parts.netloc, parts.query)
    return filesystem, (root.rstrip("/") + parts.path).rstrip("/")


@functools.lru_cache(maxsize=64)
def _file_system(scheme: str, netloc: str, query: str) -> tuple[fs.FileSystem, str]:
    """Return a file system and the path in it that all paths of these URIs begin with."""
    if scheme == "s3":
        return _s3(netloc, dict(parse_qsl(query))), netloc
    uri = urlunsplit((scheme, netloc, "/", query, ""))
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in query:
        uri = with_options(uri, f"retry_limit_seconds={_REQUEST_S}")
    if scheme in ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file"):
        return fs.FileSystem.from_uri(uri)
    found, root = fsspec.core.url_to_fs(f"{scheme}://{netloc}")
    return fs.PyFileSystem(fs.FSSpecHandler(found)), root


def _s3(bucket: str, options: dict[str, str]) -> fs.S3FileSystem:
    """Return S3 with time-outs, which a URI has no options for."""
    unknown = options.keys() - _S3_OPTIONS - _S3_SWITCHES
    if unknown:
        raise StorageError(
            f"s3://{bucket}: there is no option {', '.join(sorted(unknown))}: give "
            f"{', '.join(sorted(_S3_OPTIONS | _S3_SWITCHES))}"
        )
    region = options.pop("region", None) or os.environ.get("AWS_REGION")
    region = region or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        has_endpoint = "endpoint_override" in options or "AWS_ENDPOINT_URL" in os.environ
        region = "us-east-1" if has_endpoint else fs.resolve_s3_region(bucket)
    switches = {key: options.pop(key) == "true" for key in _S3_SWITCHES & options.keys()}
    return fs.S3FileSystem(
        region=region,
        connect_timeout=_CONNECT_S,
        request_timeout=float(options.pop("request_timeout_s", _REQUEST_S)),
        retry_strategy=fs.AwsStandardS3RetryStrategy(
            max_attempts=int(options.pop("max_attempts", _ATTEMPTS))
        ),
        **options,
        **switches,
    )
