"""A proxy that leads nowhere and remembers what it was asked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def listening_proxy() -> Iterator[tuple[str, list[str]]]:
    """Yield a proxy's URL, and the first line of every request that it got so far."""
    asked: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:  # closed below
                return
            with client:
                asked.append(client.recv(4096).decode().partition("\r\n")[0])
                client.sendall(b"HTTP/1.1 503 no\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
