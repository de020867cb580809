"""A real nginx with the configuration of ``docs/nginx.conf``, in front of an address."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.certificate import write_certificate
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CONFIG = Path(__file__).parents[2] / "docs" / "nginx.conf"
_MAIN = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/cast_ray.conf;
}}
"""
"""Where Debian's own nginx.conf has system folders. One process: it is told to end by its id."""


@contextmanager
def proxied(folder: Path, upstream: str, **changes: str) -> Iterator[str]:
    """Start nginx in front of ``host:port`` and give its address.

    ``changes`` are directives of the configuration with other values: ``name="value"``.
    """
    port = free_port()
    certificate, key = write_certificate(folder)
    values = {
        "server": f"{upstream}",
        "listen": f"127.0.0.1:{port} ssl",
        "server_name": "127.0.0.1",
        "ssl_certificate": str(certificate),
        "ssl_certificate_key": str(key),
    }
    text = CONFIG.read_text()
    for name, value in (values | changes).items():
        text, count = re.subn(rf"^( *{name}) [^{{]*?;", rf"\1 {value};", text, flags=re.M)
        assert count == 1, (name, count)
    (folder / "cast_ray.conf").write_text(text)
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder))
    command = [str(NGINX), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: _is_listening(port), timeout_s=20, what="nginx listens")
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
