"""What is said about an address: servers' doubles that answer as Ray's dashboard, or otherwise."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cast_ray.cluster.code_version import ray_version
from cast_ray.cluster.jobs_api import probe
from cast_ray.errors import EnvironmentSetupError
from tests.support.ports import free_port
from tests.support.refusals import refused

TOKEN = "5" * 32
Answer = tuple[int, str]


@contextmanager
def dashboard(answer: Callable[[str, str | None], Answer]) -> Iterator[str]:
    """Serve ``answer(path, authorization)`` and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answer(self.path, self.headers["Authorization"])
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ray_dashboard(path: str, authorization: str | None, *, version: str = ray_version()) -> Answer:
    """Answer as Ray's does, to whoever has ``TOKEN``."""
    if path == "/api/authentication_mode":
        return 200, json.dumps({"authentication_mode": "token"})
    if authorization is None:
        return 401, "Unauthorized: Missing authentication token"
    if authorization != f"Bearer {TOKEN}":
        return 403, "Forbidden: Invalid authentication token"
    return 200, json.dumps({"version": "4", "ray_version": version})


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give this machine the token, and no other."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_dashboard_of_this_version_lets_the_token_in() -> None:
    with dashboard(ray_dashboard) as url:
        probe(url, timeout_s=5)


def test_token_is_read_from_the_file_that_ray_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(f"{TOKEN}\n")
    with dashboard(ray_dashboard) as url:
        probe(url, timeout_s=5)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "nowhere"))
        with pytest.raises(EnvironmentSetupError, match=r"token.*nowhere.*~/.ray/auth_token"):
            probe(url, timeout_s=5)


def test_missing_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    with (
        dashboard(ray_dashboard) as url,
        pytest.raises(EnvironmentSetupError, match=r"token.*auth_token.*~/.ray/auth_token"),
    ):
        probe(url, timeout_s=5)


def test_a_head_that_a_proxy_cannot_reach_may_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://10.0.0.1:{free_port()}"
    for proxy in (f"http://127.0.0.1:{free_port()}", "socks5://127.0.0.1:9"):
        monkeypatch.setenv("http_proxy", proxy)
        with refused(EnvironmentSetupError, url, "no_proxy"):
            probe(url, timeout_s=5)


def test_wrong_token_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "6" * 32)
    with (
        dashboard(ray_dashboard) as url,
        pytest.raises(EnvironmentSetupError, match=r"refused.*token.*RAY_AUTH_TOKEN_PATH"),
    ):
        probe(url, timeout_s=5)


def test_machine_with_authentication_off_is_told_to_turn_it_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with (
        dashboard(ray_dashboard) as url,
        pytest.raises(EnvironmentSetupError, match=r"RAY_AUTH_MODE=token.*'disabled'"),
    ):
        probe(url, timeout_s=5)


def test_cluster_without_tokens_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")

    def answer(path: str, authorization: str | None) -> Answer:
        assert authorization is None
        return 200, json.dumps({"authentication_mode": "disabled", "ray_version": ray_version()})

    with dashboard(answer) as url:
        probe(url, timeout_s=5)


def test_other_ray_is_named_with_both_versions() -> None:
    def answer(path: str, authorization: str | None) -> Answer:
        return ray_dashboard(path, authorization, version="2.9.3")

    with (
        dashboard(answer) as url,
        pytest.raises(EnvironmentSetupError, match=rf"2\.9\.3.*{ray_version()}"),
    ):
        probe(url, timeout_s=5)


@pytest.mark.parametrize("answer", [(404, "no"), (200, "<html>hello"), (200, "[1]"), (500, "")])
def test_server_of_something_else_is_no_dashboard(answer: Answer) -> None:
    with (
        dashboard(lambda path, authorization: answer) as url,
        pytest.raises(EnvironmentSetupError, match=r"dashboard: .*--address"),
    ):
        probe(url, timeout_s=5)


def test_address_where_nobody_listens_is_said_to_be_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(EnvironmentSetupError, match=rf"{url}.*Connection refused.*--address"):
            probe(url, timeout_s=5)


def test_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EnvironmentSetupError, match=rf"{url}.*--address"):
            probe(url, timeout_s=0.2)
