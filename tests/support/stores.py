"""Stores to test against: an S3 server on this machine, and one that never answers."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from moto.server import ThreadedMotoServer

from cast_ray.runs.uris import Uri

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",  # there is no instance to ask
}


class S3Server:
    """An S3 of this process, on a port that stays the same over ``stop`` and ``start``."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serve; what was stored before is still there."""
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        """Serve no more."""
        self._server.stop()

    def uri(self, path: str, *, options: str = "allow_bucket_creation=true") -> Uri:
        """Return the URI of a path that begins with its bucket."""
        at = f"endpoint_override=127.0.0.1:{self.port}&scheme=http"
        return Uri(f"s3://{path}?{'&'.join(filter(None, [at, options]))}")

    def forget_all(self) -> None:
        """Delete all buckets."""
        self._post("reset")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Look at credentials meanwhile, and know nobody."""
        self._post("reset-auth", "0")
        try:
            yield
        finally:
            self._post("reset-auth", "inf")

    def _post(self, what: str, content: str = "") -> None:
        address = f"http://127.0.0.1:{self.port}/moto-api/{what}"
        requests.post(address, data=content, timeout=10).raise_for_status()


@contextmanager
def silent_server() -> Iterator[str]:
    """Yield the address of a server that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            with contextlib.suppress(KeyError):
                del os.environ[name]
            if value is not None:
                os.environ[name] = value
