"""One caller attacks a real service while another plays: what the other one notices.

``python -m tests.attacks`` starts ``cast-ray serve`` with a tiny model, and nginx with
``docs/nginx.conf`` in front of it, and prints a table: each attack for a minute, without nginx and
with it. Attacks come from 127.0.0.1 in a process of their own, the honest caller from 127.0.0.2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from tests.support.nginx import NGINX, proxied
from tests.support.ports import free_port
from tests.support.scripted import build_test_policy
from tests.support.site import SMALL_SERVICE, SOKOBAN

HONEST, THEIRS = "h" * 24, "t" * 24
PAUSE_S = 0.08
"""Between the honest caller's requests: below the limit of 20 per second."""


def trusting() -> ssl.SSLContext:
    """Return a context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The address under attack."""

    url: str
    key: str = THEIRS

    async def opened(
        self, first: str, *lines: str, key: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and send the beginning of a request."""
        parts = urlsplit(self.url)
        context = trusting() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port, ssl=context, limit=1024
        )
        keyed = [f"Authorization: Bearer {key}"] if key else []
        head = [f"{first} HTTP/1.1", f"Host: {parts.netloc}", *keyed, *lines]
        writer.write(("\r\n".join(head) + "\r\n").encode())
        return reader, writer

    def client(self, key: str = "", *, timeout_s: float = 60.0) -> httpx.AsyncClient:
        """Return a client with that key."""
        limits = httpx.Limits(max_connections=1000)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, verify=trusting(), limits=limits, timeout=timeout_s
        )


async def often(count: int, one: Callable[[int], Awaitable[None]], *, pause_s: float) -> None:
    """Repeat something in ``count`` tasks until this process ends."""

    async def again(number: int) -> None:
        while True:
            with suppress(OSError, ssl.SSLError, httpx.HTTPError, asyncio.IncompleteReadError):
                await one(number)
            await asyncio.sleep(pause_s)

    await asyncio.gather(*(again(number) for number in range(count)))


async def unfinished_pages(target: Target) -> None:
    """Send 520 bodies that never come to a page."""
    await _unfinished(target, "/", "")


async def unfinished_with_a_key(target: Target) -> None:
    """Send 520 bodies that never come, with a key."""
    await _unfinished(target, "/api/solve", target.key)


async def _unfinished(target: Target, path: str, key: str) -> None:
    async def one(_: int) -> None:
        kind = "Content-Type: application/json"
        lines = kind, "Content-Length: 9999", ""
        reader, writer = await target.opened(f"POST {path}", *lines, key=key)
        await reader.read()  # until the other side closes
        writer.close()

    await often(520, one, pause_s=1.0)


async def slow_headers(target: Target) -> None:
    """Send 500 headers, a line every 5 s."""

    async def one(number: int) -> None:
        reader, writer = await target.opened("GET /")
        while not reader.at_eof():
            writer.write(f"X-{number}: a\r\n".encode())
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1024), 5)
        writer.close()

    await often(500, one, pause_s=0.5)


async def endless_headers(target: Target) -> None:
    """Send four headers of 64 MiB."""

    async def one(_: int) -> None:
        _, writer = await target.opened("GET /")
        writer.write(b"X: ")
        for _ in range(1024):
            writer.write(bytes([97]) * (1 << 16))
            await writer.drain()
        await asyncio.sleep(5)
        writer.close()

    await often(4, one, pause_s=1.0)


async def streams(target: Target) -> None:
    """Follow a game 512 times."""
    async with target.client(target.key) as client:
        begun = await client.post("/api/episodes", json=SOKOBAN | {"player": "human"})
        place = begun.headers["location"]

        async def one(_: int) -> None:
            async with client.stream("GET", f"/{place}/events") as stream:
                async for _ in stream.aiter_bytes():
                    pass

        await often(512, one, pause_s=5.0)


async def games(target: Target) -> None:
    """Begin 200 games with large boards and play them."""
    async with target.client(target.key) as client:

        async def one(number: int) -> None:
            board = large_board(2, number)
            body = {"game": "sokoban", "board": board, "player": "human", "turn_budget": 500}
            begun = await client.post("/api/episodes", json=body)
            while begun.status_code == 201:
                action = {"action": random.choice(["Up", "Down", "Left", "Right"])}
                await client.post(f"/{begun.headers['location']}/actions", json=action)
                await asyncio.sleep(1)

        await often(200, one, pause_s=5.0)


async def large_boards(target: Target) -> None:
    """Ask for eight analyses of 100 x 100 boards and leave after two seconds."""
    async with target.client(target.key, timeout_s=2.0) as client:

        async def one(number: int) -> None:
            board = large_board(20, random.randrange(10_000) * 8 + number)
            await client.post("/api/solve", json={"game": "sokoban", "board": board})

        await often(8, one, pause_s=0.1)


async def no_readers(target: Target) -> None:
    """Ask 40 times for the largest file and read nothing."""

    async def one(_: int) -> None:
        _, writer = await target.opened("GET /docs/files/swagger-ui-bundle.js", "")
        await writer.drain()
        await asyncio.sleep(45)
        writer.close()

    await often(40, one, pause_s=0.1)


async def flood_with_a_key(target: Target) -> None:
    """Ask as fast as possible over 64 connections, with a key."""
    await _flood(target, target.key)


async def flood_without_a_key(target: Target) -> None:
    """Ask as fast as possible over 64 connections, without a key."""
    await _flood(target, "")


async def _flood(target: Target, key: str) -> None:
    async def one(_: int) -> None:
        reader, writer = await target.opened("GET /api/about", "", key=key)
        while True:
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            keyed = f"Authorization: Bearer {key}\r\n" if key else ""
            writer.write(f"GET /api/about HTTP/1.1\r\nHost: x\r\n{keyed}\r\n".encode())

    await often(64, one, pause_s=0.1)


ATTACKS: dict[str, Callable[[Target], Awaitable[None]]] = {
    attack.__name__.replace("_", " "): attack
    for attack in (
        unfinished_pages,
        unfinished_with_a_key,
        slow_headers,
        endless_headers,
        streams,
        games,
        large_boards,
        no_readers,
        flood_with_a_key,
        flood_without_a_key,
    )
}


def large_board(num_boxes: int, seed: int) -> list[str]:
    """Return a room of 100 x 100 cells, open but for boxes and targets."""
    rng = random.Random(seed)
    rows = [["#"] * 100, *([["#", *"_" * 98, "#"] for _ in range(98)]), ["#"] * 100]
    cells = rng.sample([(row, col) for row in range(3, 97) for col in range(3, 97)], 2 * num_boxes)
    for number, (row, col) in enumerate(cells):
        rows[row][col] = "X" if number < num_boxes else "O"
    rows[1][1] = "P"
    return ["".join(row) for row in rows]


def attack(name: str, url: str) -> None:
    """Attack until this process is ended."""
    asyncio.run(ATTACKS[name](Target(url=url)))


@dataclass(slots=True)
class Seen:
    """What the honest caller saw."""

    seconds: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    def quantile(self, share: float) -> float:
        """Return the time that a share of the requests did not exceed."""
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))] if self.seconds else 0.0


def play_honestly(url: str, seconds: float) -> Seen:
    """Open small boards, ask for analyses and play, for a while."""
    seen, end = Seen(), time.monotonic() + seconds
    headers = {"authorization": f"Bearer {HONEST}"}
    transport = httpx.HTTPTransport(verify=trusting(), local_address="127.0.0.2")
    with httpx.Client(base_url=url, headers=headers, transport=transport, timeout=30) as client:

        def ask(method: str, path: str, **body: object) -> httpx.Response | None:
            started = time.monotonic()
            try:
                answer = client.request(method, path, json=body or None)
                if answer.is_error:
                    seen.errors.append(f"{answer.status_code} {answer.text[:100]}")
                return None if answer.is_error else answer
            except httpx.HTTPError as error:
                seen.errors.append(repr(error))
            finally:
                seen.seconds.append(time.monotonic() - started)
                time.sleep(PAUSE_S)
            return None

        while time.monotonic() < end:
            puzzle = {"game": "sokoban", "tier": "mini", "seed": random.randrange(1 << 30)}
            ask("POST", "/api/boards", **puzzle)
            solved = ask("POST", "/api/solve", **puzzle)
            begun = ask("POST", "/api/episodes", player="human", **puzzle)
            if solved is None or begun is None:
                continue
            place = f"/{begun.headers['location']}"
            for action in solved.json()["line"]:
                ask("POST", f"{place}/actions", action=action)
            ask("GET", f"{place}/events")
            ask("DELETE", place)
    return seen


class Memory:
    """The resident memory of the service's processes, read every second."""

    def __init__(self, pid: int) -> None:
        self._service = psutil.Process(pid)
        self.peak: dict[str, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self.before = self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(1):
            for part, size in self._read().items():
                self.peak[part] = max(size, self.peak.get(part, 0))

    def _read(self) -> dict[str, int]:
        found = dict.fromkeys(("proxy", "site", "analysts"), 0)
        for process in self._service.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                name = " ".join(process.cmdline())
                for part, mark in (("proxy", "Proxy"), ("site", ":Site"), ("analysts", "Analyst")):
                    if name.startswith("ray::") and mark in name:
                        found[part] += process.memory_info().rss >> 20
        return found


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int]]:
    """Start ``cast-ray serve`` with a tiny model; give its address and process."""
    build_test_policy(folder / "tiny", head_dim=32)
    port = free_port()
    command = [sys.executable, "-m", "cast_ray.cli", "serve", str(folder / "tiny"), *SMALL_SERVICE]
    environ = os.environ | {"CAST_RAY_API_KEYS": f"{HONEST},{THEIRS}"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--port={port}"], stderr=log, env=environ)
    try:
        while "Ctrl-C ends it" not in (folder / "log").read_text():
            if process.poll() is not None:
                raise SystemExit((folder / "log").read_text()[-4000:])
            time.sleep(1)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


def run_one(name: str, url: str, pid: int, seconds: float) -> dict[str, object]:
    """Return a row of the table."""
    attacker = None
    with Memory(pid) as memory:
        if name:
            attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(name, url))
            attacker.start()
            time.sleep(4)  # until it is at work
        seen = play_honestly(url, seconds)
        has_attacked = attacker is None or attacker.is_alive()
        if attacker is not None:
            attacker.kill()
            attacker.join()
    return {
        "attack": name or "none",
        "ran": has_attacked,
        "requests": len(seen.seconds),
        "errors": len(seen.errors),
        "p50": round(statistics.median(seen.seconds), 3),
        "p95": round(seen.quantile(0.95), 3),
        "max": round(max(seen.seconds), 3),
        "before": memory.before,
        "peak": memory.peak,
        "first errors": seen.errors[:3],
    }


def main() -> None:
    """Run the attacks and print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=["", *ATTACKS])
    parser.add_argument("--front", choices=["none", "nginx"], nargs="*", default=["none", "nginx"])
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # then the service ends as well
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as (direct, pid):
        play_honestly(direct, 5)  # what is loaded once
        for front in given.front:
            if front == "nginx" and NGINX is None:
                raise SystemExit("nginx is not installed: apt-get install nginx")
            upstream = urlsplit(direct).netloc
            with nullcontext(direct) if front == "none" else proxied(Path(folder), upstream) as url:
                for name in given.only:
                    row = run_one(name, url, pid, given.seconds)
                    print(json.dumps({"front": front, **row}), flush=True)
                    time.sleep(5)  # what the attack left behind ends


if __name__ == "__main__":
    main()
