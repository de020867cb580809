"""The proxy of ``docs/nginx.conf``: a real nginx in front of the real application."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from serve.service.run import KEEP_ALIVE_S
from serve.site.guard import GuardSettings
from tests.support.nginx import CONFIG, NGINX, proxied
from tests.support.site import FREE, SOKOBAN, guarded, read_events, served, site_app

needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
SERVICE = Path(__file__).parents[2] / "docs" / "service.md"
PLAYED = SOKOBAN | {"player": "solver", "delay_ms": 300}


@contextmanager
def behind_nginx(folder: Path, settings: Any = FREE, **changes: str) -> Iterator[str]:
    with served(site_app(settings)) as address:
        upstream = urlsplit(address).netloc
        with proxied(folder, upstream, **changes) as front:
            yield front


@contextmanager
def calls(front: str, *, source: str = "127.0.0.1") -> Iterator[httpx.Client]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    transport = httpx.HTTPTransport(verify=context, local_address=source)
    with httpx.Client(base_url=front, transport=transport, timeout=60) as client:
        yield client


def opened(front: str, lines: list[str]) -> ssl.SSLSocket:
    """Send the beginning of a request and leave the connection open."""
    parts = urlsplit(front)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)
    wrapped = context.wrap_socket(raw)
    wrapped.sendall("\r\n".join(lines).encode())
    return wrapped


def value_of(directive: str) -> str:
    found = re.findall(rf"^ *{directive} ([^;]*);", CONFIG.read_text(), flags=re.M)
    assert len(found) == 1, found
    return found[0]


@needs_nginx
def test_turns_of_a_game_arrive_one_by_one(tmp_path: Path) -> None:
    with behind_nginx(tmp_path) as front, calls(front) as client:
        begun = client.post("/api/episodes", json=PLAYED)
        assert begun.status_code == 201
        place = begun.headers["location"]
        with client.stream("GET", f"{place}/events") as stream:
            chunks = stream.iter_text()
            first = next(chunks)
            with calls(front) as other:
                assert other.get(f"/{place}").json()["status"] == "playing"
            events = read_events(first + "".join(chunks))
        assert [name for name, *_ in events] == ["turn"] * (len(events) - 1) + ["end"]
        assert len(events) > 2


@needs_nginx
def test_a_human_plays_through_it(tmp_path: Path) -> None:
    with behind_nginx(tmp_path) as front, calls(front) as client:
        place = client.post("/api/episodes", json=SOKOBAN | {"player": "human"}).headers["location"]
        turn = client.post(f"/{place}/actions", json={"action": "Right"}).json()
        assert turn["effect"] in ("changed", "ineffective")
        assert client.get("/").status_code == 200


@needs_nginx
def test_slow_headers_are_cut(tmp_path: Path) -> None:
    with behind_nginx(tmp_path, client_header_timeout="1s") as front:
        slow = opened(front, ["GET / HTTP/1.1", "Host: x"])
        started = time.monotonic()
        with slow:
            while slow.recv(4096):
                pass
        assert time.monotonic() - started < 15


@needs_nginx
@pytest.mark.parametrize(
    "lines", [["A: " + "a" * 9000], [f"A{number}: {'a' * 4000}" for number in range(12)]]
)
def test_large_headers_are_refused(tmp_path: Path, lines: list[str]) -> None:
    head = ["GET / HTTP/1.1", "Host: x", *lines, "", ""]
    with behind_nginx(tmp_path) as front, opened(front, head) as one:
        assert b" 400 " in one.recv(4096).split(b"\r\n")[0]


@needs_nginx
def test_a_large_body_is_refused(tmp_path: Path) -> None:
    with behind_nginx(tmp_path) as front, calls(front) as client:
        body = {"game": "sokoban", "board": "#" * (1 << 20)}
        assert client.post("/api/solve", json=body).status_code == 413


@needs_nginx
def test_each_address_behind_it_counts_and_none_is_believed(tmp_path: Path) -> None:
    settings = guarded(requests_per_minute=1, burst=2)
    with behind_nginx(tmp_path, settings) as front:
        with calls(front) as client:
            found = [
                client.get("/api/about", headers={"X-Forwarded-For": f"10.0.0.{i}"}).status_code
                for i in range(3)
            ]
            assert found == [200, 200, 429]
        with calls(front, source="127.0.0.2") as other:
            assert other.get("/api/about").status_code == 200


@needs_nginx
def test_one_address_does_not_take_all_connections(tmp_path: Path) -> None:
    with behind_nginx(tmp_path, limit_conn="cast_ray_open 2") as front, ExitStack() as stack:
        with calls(front) as client:
            body = SOKOBAN | {"player": "human"}
            place = client.post("/api/episodes", json=body).headers["location"]
            path = f"/{place}/events"
            for _ in range(2):
                one = opened(front, [f"GET {path} HTTP/1.1", "Host: x", "", ""])
                stack.enter_context(one).recv(1)
            assert client.get("/api/about").status_code == 429
        with calls(front, source="127.0.0.2") as other:
            assert other.get("/api/about").status_code == 200


def test_limits_fit_those_of_the_service() -> None:
    guard = GuardSettings()
    assert value_of("client_max_body_size") == f"{guard.max_body_bytes >> 20}m"
    assert float(value_of("proxy_read_timeout")[:-1]) > guard.request_timeout_s
    upstream = re.findall(r"keepalive_timeout (\d+)s", CONFIG.read_text().partition("server {")[0])
    assert [int(seconds) < KEEP_ALIVE_S for seconds in upstream] == [True]
    assert f"burst={guard.burst} " in value_of("limit_req")
    rate = re.findall(r"rate=(\d+)r/s", CONFIG.read_text())
    assert [60 * int(each) for each in rate] == [guard.requests_per_minute]


def test_the_documentation_states_the_limits_of_the_configuration() -> None:
    said = SERVICE.read_text()
    for text in (
        f"{value_of('client_header_timeout')[:-1]} s for a header",
        f"{value_of('limit_conn').split()[1]} open requests",
        f"{value_of('large_client_header_buffers').split()[1][:-1]} KiB per header line",
    ):
        assert text in said, text
