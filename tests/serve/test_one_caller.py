"""One caller, with a key or without, does not stop the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
from starlette.types import Message, Receive, Scope, Send

from serve.site.guard import Guard, digest_of_key
from serve.site.sessions import SessionLimits
from tests.support.site import FREE, SOKOBAN, guarded, served, site_app
from tests.support.waiting import wait_until

MINE, THEIRS = "m" * 24, "t" * 24
KEYS = tuple(map(digest_of_key, (MINE, THEIRS)))


@contextmanager
def sent(address: str, *lines: str, body: bytes = b"") -> Iterator[socket.socket]:
    """Send the beginning of a request and leave the connection open."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as opened:
        opened.sendall("\r\n".join([*lines, f"Host: {parts.netloc}", "", ""]).encode() + body)
        yield opened


def ask(address: str, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{address}/api/solve", json=SOKOBAN, headers=headers, timeout=30)


def unfinished(path: str, key: str = "") -> list[str]:
    lines = [f"POST {path} HTTP/1.1", "Content-Type: application/json", "Content-Length: 999999"]
    return [*lines, f"Authorization: Bearer {key}"] if key else lines


def test_pages_are_only_read_so_that_no_body_waits_there() -> None:
    app = site_app(guarded(max_requests=4, max_per_caller=4))
    with served(app) as address, ExitStack() as opened:
        for path in ("/", "/docs", "/web/main.js", "/openapi.json"):
            for _ in range(5):
                one = opened.enter_context(sent(address, *unfinished(path)))
                assert b" 405 " in one.recv(65_536).split(b"\r\n")[0]
        assert httpx.get(address).status_code == 200


def test_unfinished_bodies_of_one_key_fill_only_its_own_places() -> None:
    settings = guarded(key_digests=KEYS, max_requests=8, max_per_caller=8, body_timeout_s=30)
    with served(site_app(settings)) as address, ExitStack() as opened:
        for _ in range(12):
            opened.enter_context(sent(address, *unfinished("/api/solve", THEIRS)))
        wait_until(lambda: ask(address, THEIRS).status_code == 429, timeout_s=10, what="they wait")
        assert ask(address, MINE).status_code == 200


def test_a_body_that_does_not_come_is_given_up() -> None:
    settings = guarded(key_digests=KEYS, body_timeout_s=0.3)
    with (
        served(site_app(settings)) as address,
        sent(address, *unfinished("/api/solve", THEIRS)) as one,
    ):
        assert b" 408 " in one.recv(65_536).split(b"\r\n")[0]


def test_games_of_one_key_leave_places_for_others() -> None:
    limits = SessionLimits(max_playing=8, max_playing_per_caller=2)
    app = site_app(replace(guarded(key_digests=KEYS), sessions=limits))
    with served(app) as address:
        for key, wanted in ((THEIRS, [201, 201, 429, 429]), (MINE, [201, 201])):
            headers = {"authorization": f"Bearer {key}"}
            body = SOKOBAN | {"player": "human"}
            found = [
                httpx.post(f"{address}/api/episodes", json=body, headers=headers).status_code
                for _ in wanted
            ]
            assert found == wanted


def test_streams_of_one_key_leave_places_for_others() -> None:
    settings = guarded(key_digests=KEYS, max_requests=8, max_per_caller=3)
    with served(site_app(settings)) as address, ExitStack() as opened:
        headers = {"authorization": f"Bearer {THEIRS}"}
        body = SOKOBAN | {"player": "human"}
        begun = httpx.post(f"{address}/api/episodes", json=body, headers=headers).json()["id"]
        for _ in range(3):
            lines = [
                f"GET /api/episodes/{begun}/events HTTP/1.1",
                f"Authorization: Bearer {THEIRS}",
            ]
            opened.enter_context(sent(address, *lines)).recv(1)
        assert ask(address, THEIRS).status_code == 429
        assert ask(address, MINE).status_code == 200
        opened.close()  # who leaves gives the places back
        wait_until(lambda: ask(address, THEIRS).status_code == 200, timeout_s=10, what="a place")


def test_a_reader_who_does_not_read_is_left() -> None:
    """A socket that takes nothing: what waits for it would stay in memory."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})

    async def run() -> int:
        taken: list[Message] = []

        async def send(message: Message) -> None:
            taken.append(message)
            if len(taken) == 3:
                await asyncio.sleep(600)

        async def receive() -> Message:
            await asyncio.sleep(600)
            raise AssertionError

        scope = {"type": "http", "method": "GET", "path": "/web/x", "headers": []}
        guard = Guard(app, replace(FREE.guard, reader_timeout_s=0.2))
        await asyncio.wait_for(guard(scope, receive, send), timeout=10)
        return len(taken)

    assert asyncio.run(run()) == 3


def test_the_work_of_who_has_left_ends() -> None:
    async def run() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            has_begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                has_ended.set()

        async def receive() -> Message:
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            raise AssertionError(message)

        scope = {"type": "http", "method": "GET", "path": "/api/about", "headers": []}
        await asyncio.wait_for(Guard(app, FREE.guard)(scope, receive, send), timeout=10)
        await asyncio.wait_for(has_ended.wait(), timeout=10)

    asyncio.run(run())
