"""``cast-ray view`` refuses what Serve's HTTP proxy would take."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

from tests.support.ports import free_port
from tests.support.waiting import wait_until


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_endless_headers_are_refused() -> None:
    port = free_port()
    command = [sys.executable, "-m", "cast_ray.cli", "view", "--demo", f"--port={port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening(port), timeout_s=300, what="the page")
        with socket.create_connection(("127.0.0.1", port), timeout=30) as opened:
            opened.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000)
            assert b" 400 " in opened.recv(4096).split(b"\r\n")[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
