"""Who may ask, how much, how often and how long; and that every error is said in one form."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi.testclient import TestClient
from ray.serve.schema import ServeDeploySchema

from cast_ray.errors import ConfigError
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from serve.service.access import KEYS_VARIABLE, api_keys, guard_settings, is_local
from serve.service.plan import plan_of
from serve.site.guard import digest_of_key
from serve.site.sessions import SessionLimits
from tests.support.scripted import build_test_policy, in_turn
from tests.support.site import FREE, RUSH_HOUR, SOKOBAN, guarded, served, site_app
from tests.support.waiting import wait_until

KEY = "k" * 24


def problem(answer: httpx.Response) -> dict[str, Any]:
    """Return what is wrong; every error has this form."""
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"code", "message", "field", "type", "param"}
    assert error["code"].replace("_", "").isalpha()
    assert error["message"]
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]
    return error


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def site() -> Iterator[TestClient]:
    with TestClient(site_app(), raise_server_exceptions=False) as client:
        yield client


BROKEN: list[tuple[str, Any, int, str, str | None]] = [
    ("/api/solve", b"{", 400, "json_broken", None),
    ("/api/solve", b"", 422, "field_invalid", None),
    ("/api/solve", b"[]", 422, "field_invalid", None),
    ("/api/solve", {"game": "chess", "board": "x"}, 422, "game_unknown", "game"),
    ("/api/solve", {"game": 3, "board": "x"}, 422, "field_invalid", "game"),
    ("/api/solve", {"game": "sokoban"}, 422, "board_invalid", "board"),
    ("/api/solve", {"game": "sokoban", "board": "###"}, 422, "board_invalid", "board"),
    ("/api/solve", {"game": "sokoban", "board": "#" * 20_001}, 422, "field_invalid", "board"),
    ("/api/solve", SOKOBAN | {"colour": 1}, 422, "field_invalid", "colour"),
    ("/api/solve", SOKOBAN | {"tier": "id"}, 422, "field_invalid", "tier"),
    ("/api/solve", SOKOBAN | {"temperature": "1"}, 422, "field_invalid", "temperature"),
    ("/api/solve", SOKOBAN | {"temperature": 0}, 422, "field_invalid", "temperature"),
    ("/api/solve", SOKOBAN | {"num_mines": 3}, 422, "field_invalid", "num_mines"),
    ("/api/solve", {"game": "sokoban", "visible": ["."]}, 422, "field_invalid", "visible"),
    ("/api/solve", {"game": "sokoban", "tier": "huge"}, 422, "field_invalid", "tier"),
    ("/api/boards", {"game": "sokoban", "tier": "id", "seed": -1}, 422, "field_invalid", "seed"),
    ("/api/moves", {"puzzles": []}, 422, "field_invalid", "puzzles"),
    ("/api/moves", {"puzzles": [SOKOBAN] * 257}, 422, "field_invalid", "puzzles"),
    (
        "/api/moves",
        {"puzzles": [SOKOBAN, SOKOBAN | {"game": None}]},
        422,
        "field_invalid",
        "puzzles[1].game",
    ),
    ("/api/episodes", SOKOBAN | {"player": "cat"}, 422, "field_invalid", "player"),
    ("/api/episodes", SOKOBAN | {"turn_budget": 501}, 422, "field_invalid", "turn_budget"),
    ("/api/nothing", {}, 404, "not_found", None),
    ("/api/episodes/abc/actions", {"action": "Up"}, 404, "episode_unknown", None),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "field"), BROKEN)
def test_bad_input_gets_its_status_and_one_sentence(
    site: TestClient, path: str, body: Any, status: int, code: str, field: str | None
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = site.post(path, content=content, headers={"content-type": "application/json"})
    error = problem(answer)
    assert (answer.status_code, error["code"]) == (status, code), error
    if field is not None or code not in ("board_invalid", "field_invalid"):
        assert error["field"] == field, error


def test_wrong_methods_types_and_broken_text(site: TestClient) -> None:
    assert problem(site.get("/api/solve"))["code"] == "method_not_allowed"
    text = site.post("/api/solve", content="x", headers={"content-type": "text/plain"})
    assert (text.status_code, problem(text)["code"]) == (415, "media_type")
    latin = site.post(
        "/api/solve", content=b'{"game": "\xff"}', headers={"content-type": "application/json"}
    )
    assert latin.status_code in (400, 422)
    problem(latin)
    deep = site.post(
        "/api/solve", content=b"[" * 100_000, headers={"content-type": "application/json"}
    )
    assert deep.status_code in (400, 422)
    problem(deep)


def test_large_bodies_are_refused_by_their_header_and_by_their_length(site: TestClient) -> None:
    limit = FREE.guard.max_body_bytes
    body = json.dumps(SOKOBAN | {"board": "#" * limit}).encode()
    told = site.post("/api/solve", content=body, headers={"content-type": "application/json"})
    assert (told.status_code, problem(told)["code"]) == (413, "body_too_large")

    def in_pieces() -> Iterator[bytes]:
        for _ in range(limit // 4096 + 2):
            yield b"x" * 4096

    chunked = site.post(
        "/api/solve", content=in_pieces(), headers={"content-type": "application/json"}
    )
    assert (chunked.status_code, problem(chunked)["code"]) == (413, "body_too_large")


def test_a_huge_body_disturbs_nobody() -> None:
    with served(site_app()) as address, httpx.Client(base_url=address) as client:
        assert client.post("/api/solve", json=SOKOBAN).status_code == 200
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /api/solve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 104857600\r\n\r\n"
            )
            said = connection.recv(4096)
        assert b" 413 " in said.split(b"\r\n")[0]
        assert client.post("/api/solve", json=SOKOBAN).status_code == 200


def test_keys_are_asked_for_everywhere_but_on_the_pages() -> None:
    settings = guarded(key_digests=(digest_of_key("other" * 5), digest_of_key(KEY)))
    with TestClient(site_app(settings)) as site:
        for path in ("/api/about", "/api/games", "/nothing", "/api/episodes/x"):
            missing = site.get(path)
            assert (missing.status_code, problem(missing)["code"]) == (401, "key_missing")
            assert missing.headers["www-authenticate"] == "Bearer"
            wrong = site.get(path, headers={"authorization": f"Bearer {KEY}x"})
            assert (wrong.status_code, problem(wrong)["code"]) == (401, "key_wrong")
            basic = site.get(path, headers={"authorization": f"Basic {KEY}"})
            assert problem(basic)["code"] == "key_missing"
        assert site.get("/api/about", headers={"authorization": f"Bearer {KEY}"}).status_code == 200
        for path in ("/", "/docs", "/web/main.js"):
            assert site.get(path).status_code == 200
        described = site.get("/openapi.json").json()
        assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"


def test_a_public_address_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    assert api_keys() == ()
    for host in ("0.0.0.0", "::", "192.0.2.7", "my-machine"):
        with pytest.raises(ConfigError, match=KEYS_VARIABLE):
            guard_settings(host, api_keys())
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        assert is_local(host)
        assert guard_settings(host, ()).allowed_hosts
    monkeypatch.setenv(KEYS_VARIABLE, f"{KEY}, {KEY}2")
    assert api_keys() == (digest_of_key(KEY), digest_of_key(f"{KEY}2"))
    assert guard_settings("0.0.0.0", api_keys()).allowed_hosts == ()
    assert KEY not in repr(guard_settings("0.0.0.0", api_keys()))
    monkeypatch.setenv(KEYS_VARIABLE, "short")
    with pytest.raises(ConfigError, match="5 characters"):
        api_keys()


def test_the_serve_file_names_three_applications_with_the_same_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    file = yaml.safe_load((Path(__file__).parents[2] / "configs/serve/agent.yaml").read_text())
    schema = ServeDeploySchema.model_validate(file)
    assert [app.route_prefix for app in schema.applications] == [None, "/v1", "/"]
    first, *others = [app.args for app in schema.applications]
    assert all(other == first for other in others)
    assert file["http_options"]["host"] == first["host"]
    build_test_policy(tmp_path / "tiny")
    plan = plan_of(first | {"model": str(tmp_path / "tiny")})
    assert (plan.name, plan.max_replicas) == ("agent", 2)
    for app in schema.applications:
        module, _, function = app.import_path.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    with pytest.raises(ConfigError, match="'modle'"):
        plan_of({"modle": "x", "host": "127.0.0.1"})
    with pytest.raises(ConfigError, match=KEYS_VARIABLE):
        plan_of(first | {"host": "0.0.0.0"})


def test_another_sites_name_for_this_machine_is_refused() -> None:
    with TestClient(site_app(guarded(allowed_hosts=("localhost", "[::1]")))) as site:
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", ""):
            answer = site.get("/api/about", headers={"host": host})
            assert (answer.status_code, problem(answer)["code"]) == (403, "host_forbidden")
        for host in ("localhost", "localhost:8000", "[::1]:8000", "LOCALHOST"):
            assert site.get("/api/about", headers={"host": host}).status_code == 200


def test_one_caller_who_asks_too_often_is_slowed_and_another_is_not() -> None:
    keys = (digest_of_key(KEY), digest_of_key(KEY * 2))
    settings = guarded(key_digests=keys, requests_per_minute=60, burst=5)
    with TestClient(site_app(settings)) as site:
        mine = {"authorization": f"Bearer {KEY}"}
        statuses = [site.get("/api/about", headers=mine).status_code for _ in range(8)]
        assert statuses == [200] * 5 + [429] * 3
        slowed = site.get("/api/about", headers=mine)
        assert problem(slowed)["code"] == "too_many_requests"
        assert 1 <= int(slowed.headers["retry-after"]) <= 2
        other = site.get("/api/about", headers={"authorization": f"Bearer {KEY * 2}"})
        assert other.status_code == 200
        wait_until(
            lambda: site.get("/api/about", headers=mine).status_code == 200,
            timeout_s=10,
            what="the slowed caller is served again",
        )


def test_every_answer_has_its_security_headers_and_no_cors(site: TestClient) -> None:
    for path in ("/", "/docs", "/api/about", "/nothing", "/web/main.js"):
        headers = site.get(path, headers={"origin": "http://evil.example"}).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert not [name for name in headers if name.startswith("access-control")]
    preflight = site.options(
        "/api/move",
        headers={"origin": "http://evil.example", "access-control-request-method": "POST"},
    )
    assert preflight.status_code == 405
    assert site.get("/api/about").headers["cache-control"] == "no-store"


def test_too_slow_and_too_many(tokenizer: ChatTokenizer) -> None:
    async def slow(request: GenerateRequest, lane: Lane) -> Completion:
        await asyncio.sleep(30)
        raise AssertionError("not reached")

    settings = replace(
        guarded(request_timeout_s=0.5), sessions=SessionLimits(max_playing=2, max_kept=3)
    )
    with TestClient(site_app(settings, tokenizer=tokenizer, generate=slow)) as site:
        late = site.post("/api/move", json=SOKOBAN)
        assert (late.status_code, problem(late)["code"]) == (504, "time_out")
        ids = [site.post("/api/episodes", json=SOKOBAN).json()["id"] for _ in range(2)]
        full = site.post("/api/episodes", json=SOKOBAN)
        assert (full.status_code, problem(full)["code"]) == (429, "too_many_episodes")
        assert full.headers["retry-after"]
        assert site.delete(f"/api/episodes/{ids[0]}").status_code == 204
        assert site.post("/api/episodes", json=SOKOBAN).status_code == 201


def test_old_games_are_forgotten_and_running_ones_are_not() -> None:
    settings = replace(FREE, sessions=SessionLimits(max_playing=8, max_kept=3, idle_s=1.0))
    with TestClient(site_app(settings)) as site:
        playing = site.post("/api/episodes", json=RUSH_HOUR | {"player": "human"}).json()["id"]
        over = []
        for _ in range(4):
            over.append(
                site.post("/api/episodes", json=SOKOBAN | {"player": "solver"}).json()["id"]
            )
            site.get(f"/api/episodes/{over[-1]}/events")
        known = [site.get(f"/api/episodes/{each}").status_code for each in (*over, playing)]
        assert known[0] == 404
        assert known[-2:] == [200, 200]
        time.sleep(1.2)  # asking whether it is forgotten would keep it
        idle = site.get(f"/api/episodes/{playing}")
        assert (idle.status_code, problem(idle)["code"]) == (404, "episode_unknown")


def test_a_client_that_leaves_ends_nothing(tokenizer: ChatTokenizer) -> None:
    answers = in_turn("```Down```", "```Up```")
    app = site_app(tokenizer=tokenizer, answer=answers)
    with served(app) as address, httpx.Client(base_url=address) as client:
        body = SOKOBAN | {"turn_budget": 12, "delay_ms": 50}
        episode = client.post("/api/episodes", json=body).json()["id"]
        with client.stream("GET", f"/api/episodes/{episode}/events") as stream:
            next(stream.iter_lines())
        with client.stream("GET", f"/api/episodes/{episode}/events") as stream:
            lines = list(stream.iter_lines())
        assert lines.count("event: turn") == 12
        assert lines.count("event: end") == 1
