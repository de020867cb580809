"""Checks before every route: keys, hosts, body sizes, rates and time limits.

An ASGI middleware whose rates and counts are those of one replica. It reads no more of a body than
it allows, and reports errors in the service's own form.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cast_ray.games.analysis import CALLER
from serve.site.problems import ApiProblem

_OPEN = ("/web/", "/docs", "/openapi.json")
"""The pages and their files need no key; the page asks for it."""
_WITH_BODY = ("POST", "PUT", "PATCH")
_MAX_CALLERS = 10_000
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; "
    "script-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Added to every answer that does not set them itself."""


def digest_of_key(key: str) -> str:
    """Return the SHA-256 of an API key, so that no configuration shows the key."""
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """Limits of one replica."""

    key_digests: tuple[str, ...] = ()
    """``digest_of_key`` of each API key; empty = no key is needed."""
    allowed_hosts: tuple[str, ...] = ()
    """Values of the Host header, without port, that are answered; empty = all. Without
    keys, this keeps pages of other sites from reaching a service on localhost under a name of
    their own."""
    max_body_bytes: int = 1 << 20
    requests_per_minute: int = 1200
    """Per key, or per address without keys."""
    burst: int = 120
    """Requests that may come at once."""
    max_requests: int = 1024
    """Most requests that are answered at the same time, streams included."""
    max_per_caller: int = 256
    """Of one key, or of one address without keys; also those whose body is still coming."""
    body_timeout_s: float = 20.0
    """Until a body is complete."""
    request_timeout_s: float = 120.0
    """Until an answer begins; a stream may then continue."""
    reader_timeout_s: float = 30.0
    """How long a caller may take nothing of an answer."""


class Guard:
    """The middleware. Belongs to one event loop."""

    def __init__(self, app: ASGIApp, settings: GuardSettings) -> None:
        self._app = app
        self._settings = settings
        self._num_running = 0
        self._of_caller: Counter[str] = Counter()
        self._rates = _Rates(settings.requests_per_minute / 60, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or report why it is refused."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, self._settings.reader_timeout_s)
        try:
            caller = self._admit(scope)
            CALLER.set(caller)
            self._of_caller[caller] += 1
            try:
                await self._read_and_answer(scope, receive, answer)
            finally:
                self._of_caller[caller] -= 1
                if not self._of_caller[caller]:
                    del self._of_caller[caller]
        except _CallerLeft:
            return
        except ApiProblem as problem:
            if not answer.has_begun.is_set():
                response = JSONResponse(problem.body, problem.status, problem.headers)
                await response(scope, receive, answer)

    async def _read_and_answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        # The complete body first: the framework would replace our error with its own.
        body = b""
        if scope["method"] in _WITH_BODY:
            limit_s = self._settings.body_timeout_s
            try:
                async with asyncio.timeout(limit_s):
                    body = await _read_body(receive, self._settings.max_body_bytes)
            except TimeoutError:
                raise ApiProblem(
                    408,
                    "time_out",
                    f"the body was not complete within {limit_s:g} s; send it again",
                ) from None
        if self._num_running >= self._settings.max_requests:
            raise ApiProblem(
                429,
                "too_busy",
                f"{self._settings.max_requests} requests are being answered; try again in a second",
                retry_after_s=1,
            )
        self._num_running += 1
        try:
            await self._answer(scope, _Caller(body, receive), answer)
        finally:
            self._num_running -= 1

    async def _answer(self, scope: Scope, caller: _Caller, answer: _Answer) -> None:
        """Have a request answered, as long as its caller is there and takes the answer."""
        limit_s = self._settings.request_timeout_s
        work = asyncio.ensure_future(self._app(scope, caller.receive, answer))
        begun = asyncio.ensure_future(answer.has_begun.wait())
        left = asyncio.ensure_future(caller.wait_until_gone())
        try:
            await asyncio.wait(
                {work, begun, left}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not work.done() and not left.done() and not answer.has_begun.is_set():
                raise ApiProblem(
                    504, "time_out", f"there was no answer within {limit_s:g} s; try again"
                )
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise _CallerLeft
            await work
        finally:
            for task in (begun, left, work):
                task.cancel()

    def _admit(self, scope: Scope) -> str:
        """Return the key or address that asks, unless it may not."""
        headers = Headers(scope=scope)
        settings = self._settings
        host = _without_port(headers.get("host", ""))
        if settings.allowed_hosts and host not in settings.allowed_hosts:
            raise ApiProblem(
                403,
                "host_forbidden",
                f"this service answers as {settings.allowed_hosts[0]} only; start it with an API "
                "key to reach it under another name",
            )
        path: str = scope["path"]
        is_page = path == "/" or path.startswith(_OPEN)
        if is_page and scope["method"] not in ("GET", "HEAD"):
            raise ApiProblem(405, "method_not_allowed", "this page can only be read: use GET")
        caller = _address(scope) if is_page else self._caller(scope, headers)
        wait_s = 0.0 if is_page else self._rates.wait_s(caller)
        if wait_s > 0:
            raise ApiProblem(
                429,
                "too_many_requests",
                f"more than {settings.requests_per_minute} requests per minute came from here; "
                f"wait {math.ceil(wait_s)} s",
                retry_after_s=math.ceil(wait_s),
            )
        if self._of_caller[caller] >= settings.max_per_caller:
            raise ApiProblem(
                429,
                "too_busy",
                f"{settings.max_per_caller} requests from here are open; end one or try again",
                retry_after_s=1,
            )
        _check_body(scope, headers, settings.max_body_bytes)
        return caller

    def _caller(self, scope: Scope, headers: Headers) -> str:
        """Return the key or address whose rate counts."""
        if not self._settings.key_digests:
            return _address(scope)
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiProblem(
                401,
                "key_missing",
                "an API key is needed: send the header Authorization: Bearer KEY",
            )
        digest = digest_of_key(key.strip())
        # All are compared, each in constant time: the time taken reveals nothing.
        matches = [hmac.compare_digest(digest, known) for known in self._settings.key_digests]
        if not any(matches):
            raise ApiProblem(401, "key_wrong", "this API key is not valid here; use another one")
        return digest


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"


def _without_port(host: str) -> str:
    if host.startswith("["):  # IPv6
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _check_body(scope: Scope, headers: Headers, max_bytes: int) -> None:
    if scope["method"] not in _WITH_BODY:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiProblem(
            415, "media_type", "send JSON, with the header Content-Type: application/json"
        )
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > max_bytes):
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> ApiProblem:
    return ApiProblem(
        413, "body_too_large", f"the body is larger than {max_bytes} bytes: send less"
    )


async def _read_body(receive: Receive, max_bytes: int) -> bytes:
    """Return the body; also refuses one that is longer than its header says."""
    parts: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiProblem(400, "json_broken", "the connection ended before the body did")
        parts.append(message.get("body", b""))
        num_bytes += len(parts[-1])
        if num_bytes > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return b"".join(parts)


class _CallerLeft(Exception):
    """The caller has disconnected."""


class _Caller:
    """A ``receive`` that first returns the body, and then that the caller has gone."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive
        self._is_gone = asyncio.Event()

    async def receive(self) -> Message:
        if self._left:
            return self._left.pop()
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone.set()


class _Answer:
    """A ``send`` that adds headers, knows whether the answer has begun, and waits for no reader."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send, self._timeout_s = send, timeout_s
        self.has_begun = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun.set()
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            raise _CallerLeft from None


class _Rates:
    """A token bucket for each caller, refilled at a steady rate."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        now = time.monotonic()
        tokens, seen_at = self._buckets.pop(caller, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - seen_at) * self._per_second)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self._per_second
        self._buckets[caller] = (tokens - (wait_s == 0), now)
        self._forget()
        return wait_s

    def _forget(self) -> None:
        """Keep the most recent callers; a forgotten one starts with a full bucket again."""
        while len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
