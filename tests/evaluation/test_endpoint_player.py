"""Evaluations behind an endpoint with limits, faults and moods: real HTTP, a scripted server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import openai
import pytest
from fastapi import Response

from cast_ray.envs.text_env import TextEnv
from cast_ray.errors import (
    CastRayError,
    ConfigError,
    EngineError,
    EnvironmentSetupError,
    RunDirectoryError,
)
from cast_ray.evaluation.endpoint.config import Endpoint, Patience
from cast_ray.evaluation.endpoint.player import EndpointPlayer
from cast_ray.evaluation.endpoint.responses import connection_error
from cast_ray.games.sokoban import Sokoban, SokobanState
from cast_ray.rollout.chat_episode import ChatEpisode, Message
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.seeds import derive_seed
from solver_actors.sokoban.table import solve_sokoban
from tests.support import refusals
from tests.support.certificate import write_certificate
from tests.support.endpoint_play import (
    NUM_ATTEMPTS,
    QUICK,
    SAMPLING,
    TURN_BUDGET,
    played,
    rooms,
    specs,
)
from tests.support.ports import free_port
from tests.support.scripted_endpoint import (
    KEY,
    MODEL,
    ODD,
    REPORTS,
    UNREADABLE,
    Asked,
    Fault,
    Rule,
    Script,
    ScriptedEndpoint,
    best_action,
    dripping,
    fine,
    garbled,
    num_tokens,
    rate_limited,
    refused,
    reported,
    serving,
    slow,
)
from tests.support.waiting import wait_until

NUM_ROOMS = 12


@contextmanager
def endpoint(
    rule: Rule = best_action, script: Script = fine, *, counts_tokens: bool = True
) -> Iterator[tuple[ScriptedEndpoint, dict[str, str]]]:
    server = ScriptedEndpoint(rule, script, counts_tokens=counts_tokens)
    with serving(server) as environ:
        yield server, environ


def costs() -> list[float]:
    """Return N of every room, by the solver."""
    states = [Sokoban().decode(puzzle.board) for puzzle in rooms()[:NUM_ROOMS]]
    return [float(solve_sokoban(state).cost_to_go([state])[0]) for state in states]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "socks://127.0.0.1:9/"])
def test_a_proxy_of_a_kind_that_cannot_be_used_is_refused(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    endpoint = Endpoint(model=MODEL, base_url="http://10.0.0.1/v1", api_key=KEY)
    with refusals.refused(EnvironmentSetupError, "all_proxy", "socks5://", "socksio"):
        EndpointPlayer(endpoint, temperature=1, top_p=1, patience=QUICK)


def untimed(records: list[ChatEpisode]) -> list[ChatEpisode]:
    """Return records without what may differ between two starts."""
    return [replace(each, seconds=0.0, num_retries=0, num_from_journal=0) for each in records]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[ChatEpisode]:
    """Records of the evaluation behind an endpoint without faults."""
    with endpoint() as (_, environ):
        return played(tmp_path_factory.mktemp("plain") / "a", environ, num_rooms=NUM_ROOMS)


def test_optimal_player_solves_exactly_the_rooms_within_the_turn_budget(
    undisturbed: list[ChatEpisode],
) -> None:
    solvable = [cost <= TURN_BUDGET for cost in costs()]
    assert 0 < sum(solvable) < NUM_ROOMS  # else nothing was tried
    expected = [float(one) for one in solvable for _ in range(NUM_ATTEMPTS)]
    assert [episode.reward for episode in undisturbed] == expected
    lengths = [len(episode.actions) for episode in undisturbed if episode.reward]
    assert lengths == [cost for cost in costs() if cost <= TURN_BUDGET for _ in range(2)]


def test_tokens_are_those_that_the_endpoint_counts(undisturbed: list[ChatEpisode]) -> None:
    for episode in undisturbed:
        assert episode.answer_tokens == tuple(num_tokens(text) for text in episode.answers)
        assert episode.prompt_tokens == tuple(sorted(episode.prompt_tokens))  # it only grows


FAULTS: dict[str, Fault] = {
    "rate limit": rate_limited(),
    "rate limit without a time": refused(429, "slow down"),
    "rate limit until a date": rate_limited("Thu, 01 Jan 1970 00:00:00 GMT"),
    "internal error": refused(500, "oops"),
    "overloaded": refused(529, "overloaded"),
    "away": refused(503, "later", headers={"retry-after-ms": "30"}),
    **{f"{name}, 429": reported(429, name) for name in REPORTS},
    "overloaded, in a body": reported(529),
    **{name: garbled(body) for name, body in UNREADABLE.items()},
}


def every_second_answer(fault: Fault) -> Script:
    """Return a script in which every second answer fails at first."""
    return lambda asked: fault if asked.place % 2 and asked.repetition == 0 else None


@pytest.mark.parametrize(
    "name", ["rate limit", "internal error", "page", "no choices", "error, 429"]
)
def test_faults_in_every_second_call_change_no_number(
    tmp_path: Path, undisturbed: list[ChatEpisode], name: str
) -> None:
    with endpoint(script=every_second_answer(FAULTS[name])) as (server, environ):
        records = played(tmp_path / "a", environ, num_rooms=4)
    assert untimed(records) == untimed(undisturbed[: 4 * NUM_ATTEMPTS])
    turns = sum(len(record.actions) for record in records)
    assert sum(record.num_retries for record in records) == turns // 2
    assert (server.num_delivered, max(server.delivered.values())) == (turns, 1)


def test_late_answers_are_asked_for_again(tmp_path: Path, undisturbed: list[ChatEpisode]) -> None:
    def script(asked: Asked) -> Fault | None:
        return slow(20.0) if asked.place == 3 and not asked.repetition else None

    began = time.monotonic()
    with endpoint(script=script) as (_, environ):
        records = played(
            tmp_path / "a", environ, num_rooms=4, patience=replace(QUICK, timeout_s=0.5)
        )
        assert time.monotonic() - began < 10
    assert untimed(records) == untimed(undisturbed[: 4 * NUM_ATTEMPTS])
    assert sum(record.num_retries for record in records) == 1


def test_all_faults_one_after_the_other_change_no_number(
    tmp_path: Path, undisturbed: list[ChatEpisode]
) -> None:
    faults = list(FAULTS.values())

    def script(asked: Asked) -> Fault | None:
        return (
            faults[(asked.place + asked.repetition) % len(faults)] if asked.repetition < 3 else None
        )

    patience = replace(QUICK, max_unusable=4)
    with endpoint(script=script) as (_, environ):
        records = played(tmp_path / "a", environ, num_rooms=4, patience=patience)
    assert untimed(records) == untimed(undisturbed[: 4 * NUM_ATTEMPTS])
    assert [record.num_retries for record in records] == [
        3 * len(record.actions) for record in records
    ]


def start(journals: Path, environ: dict[str, str], num_rooms: int) -> subprocess.Popen[bytes]:
    """Start the evaluation in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.endpoint_play", str(journals), str(num_rooms)],
        env={**os.environ, **environ},
    )


def num_lines(journals: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in journals.glob("*.jsonl"))


@pytest.mark.parametrize("killed_after", [0, 1, 7, 30])
def test_killed_evaluation_goes_on_without_repeating_an_answered_call(
    tmp_path: Path, undisturbed: list[ChatEpisode], killed_after: int
) -> None:
    journals = tmp_path / "journals"
    with endpoint() as (server, environ):
        server.hold_from = killed_after
        child = start(journals, environ, NUM_ROOMS)
        try:
            wait_until(
                lambda: server.is_at_rest and num_lines(journals) == server.num_delivered,
                timeout_s=60,
                what="every delivered answer in the journal",
            )
            assert server.num_delivered == killed_after
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(30)
        wait_until(lambda: server.num_under_way == 0, timeout_s=60, what="no call under way")
        server.hold_from = 1 << 60
        records = played(journals, environ, num_rooms=NUM_ROOMS)
        assert untimed(records) == untimed(undisturbed)
        assert sum(record.num_from_journal for record in records) == killed_after
        turns = sum(len(record.actions) for record in records)
        assert (server.num_delivered, max(server.delivered.values())) == (turns, 1)
        asked_before = server.num_asked
        assert untimed(played(journals, environ, num_rooms=NUM_ROOMS)) == untimed(undisturbed)
        assert server.num_asked == asked_before  # a third start has nothing to ask


def test_kill_at_any_moment_repeats_no_more_than_was_on_its_way(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    with endpoint(script=lambda asked: slow(0.01)) as (server, environ):
        child = start(journals, environ, NUM_ROOMS)
        try:
            wait_until(lambda: server.num_delivered >= 20, timeout_s=60, what="20 answers")
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(30)
        played(journals, environ, num_rooms=NUM_ROOMS)
    repeated = [count for count in server.delivered.values() if count > 1]
    assert sum(repeated) - len(repeated) <= QUICK.concurrency


def test_journals_of_another_sampling_are_refused(tmp_path: Path) -> None:
    with endpoint() as (server, environ):
        played(tmp_path / "a", environ, num_rooms=1)
        asked_before = server.num_asked
        with pytest.raises(RunDirectoryError, match="another conversation"):
            played(
                tmp_path / "a", environ, num_rooms=1, sampling=replace(SAMPLING, temperature=0.6)
            )
        assert server.num_asked == asked_before


def failure(tmp_path: Path, fault: Fault, **settings: object) -> tuple[CastRayError, int]:
    """Return what a play ends with if everything fails, and how many calls it made."""
    with endpoint(script=lambda asked: fault) as (server, environ):
        with pytest.raises(CastRayError) as raised:
            played(tmp_path / "a", environ, num_rooms=4, patience=replace(QUICK, **settings))
        return raised.value, server.num_asked


@pytest.mark.parametrize("fault", [refused(401, f"wrong {KEY}"), reported(401)])
def test_refused_key_ends_all_at_once(tmp_path: Path, fault: Fault) -> None:
    error, num_asked = failure(tmp_path, fault)
    assert isinstance(error, ConfigError)
    assert "rejects the key: set OPENAI_API_KEY" in str(error)
    assert num_asked <= QUICK.concurrency


def test_key_without_access_is_told_apart_from_a_wrong_one(tmp_path: Path) -> None:
    error, num_asked = failure(tmp_path, refused(403, f"project of {KEY} has no access"))
    assert isinstance(error, ConfigError)
    assert "status 403: project of *** has no access" in str(error) and repr(MODEL) in str(error)
    assert num_asked <= QUICK.concurrency


def test_unknown_model_is_named(tmp_path: Path) -> None:
    error, num_asked = failure(tmp_path, refused(404, "no such model"))
    assert isinstance(error, ConfigError) and repr(MODEL) in str(error)
    assert num_asked <= QUICK.concurrency


@pytest.mark.parametrize(
    ("status", "code"), [(400, "bad"), (402, None), (413, None), (429, "insufficient_quota")]
)
def test_refused_request_ends_all_with_the_endpoints_own_sentence(
    tmp_path: Path, status: int, code: str | None
) -> None:
    error, num_asked = failure(tmp_path, refused(status, f"no more\nof {KEY} this", code=code))
    assert isinstance(error, EngineError)
    assert str(status) in str(error) and str(error).endswith(": no more of *** this")
    assert num_asked <= QUICK.concurrency


def test_endless_faults_end_after_the_given_number(tmp_path: Path) -> None:
    error, num_asked = failure(tmp_path, refused(500, "oops"), concurrency=1, max_faults=3)
    assert isinstance(error, EngineError)
    assert "3 attempts" in str(error) and "status 500" in str(error)
    assert num_asked == 3


def test_endless_rate_limits_end_after_the_given_time(tmp_path: Path) -> None:
    error, num_asked = failure(
        tmp_path, rate_limited("0.1"), concurrency=1, longest_trouble_s=0.5, max_faults=2
    )
    assert isinstance(error, EngineError)
    assert "0.5 s" in str(error) and "status 429" in str(error)
    assert 3 <= num_asked <= 6


def test_rate_limits_in_a_body_are_no_faults_and_pause_all(tmp_path: Path) -> None:
    def script(asked: Asked) -> Fault | None:
        fault = reported(429, headers={"retry-after": "0.05"})
        return fault if asked.repetition < 2 * QUICK.max_faults else None

    with endpoint(script=script) as (server, environ):
        (record,) = played(tmp_path / "a", environ, num_rooms=1, attempts=1)
    assert record.num_retries == 2 * QUICK.max_faults * len(record.answers)
    assert server.asked_at[1] - server.asked_at[0] >= 0.05


@pytest.mark.parametrize(
    "fault", [rate_limited("3600"), reported(429, headers={"retry-after": "3600"})]
)
def test_pause_beyond_all_patience_ends_at_once_and_is_told(tmp_path: Path, fault: Fault) -> None:
    began = time.monotonic()
    error, num_asked = failure(tmp_path, fault)
    assert isinstance(error, EngineError) and time.monotonic() - began < 5
    assert "wait 3,600 s" in str(error) and "5 s (" in str(error) and "429" in str(error)
    assert num_asked <= QUICK.concurrency


@pytest.mark.parametrize("fault", [slow(30.0), dripping(0.02)], ids=["silent", "dripping"])
def test_endless_waits_for_an_answer_are_bounded(tmp_path: Path, fault: Fault) -> None:
    began = time.monotonic()
    error, _ = failure(tmp_path, fault, timeout_s=0.3, max_faults=2)
    assert isinstance(error, EngineError) and "no answer in time" in str(error)
    assert time.monotonic() - began < 5


def unreached(tmp_path: Path, address: str) -> str:
    """Return what a play ends with that cannot reach its endpoint, which it tries but once."""
    environ = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": KEY}
    patience = replace(QUICK, first_wait_s=60.0, longest_wait_s=60.0, longest_trouble_s=600.0)
    began = time.monotonic()
    with pytest.raises(EngineError) as raised:
        played(tmp_path / "a", environ, num_rooms=1, patience=patience)
    assert time.monotonic() - began < 30
    assert address in str(raised.value)
    return str(raised.value)


def test_nobody_at_the_address_is_said_at_once(tmp_path: Path) -> None:
    said = unreached(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert "refuses connections" in said and "OPENAI_BASE_URL" in said


def test_unknown_host_is_said_at_once(tmp_path: Path) -> None:
    # No name server knows a name below .invalid; without any the same is said.
    assert "unknown host name" in unreached(tmp_path, "http://nowhere.invalid")


def test_certificate_that_is_not_trusted_is_said_at_once_and_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificate(tmp_path)
    server = ScriptedEndpoint()
    with serving(server, ssl_certfile=files[0], ssl_keyfile=files[1]) as environ:
        said = unreached(tmp_path, environ["OPENAI_BASE_URL"].removesuffix("/v1"))
        assert "certificate" in said and "SSL_CERT_FILE" in said and "self-signed" in said
        assert server.num_asked == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        played(tmp_path / "a", environ, num_rooms=1, attempts=1)
        assert server.num_asked > 0


def test_plain_server_behind_https_is_said_at_once(tmp_path: Path) -> None:
    with endpoint() as (_, environ):
        address = environ["OPENAI_BASE_URL"].removesuffix("/v1").replace("http:", "https:")
        assert "does not speak TLS" in unreached(tmp_path, address)


def test_server_that_was_there_is_waited_for() -> None:
    async def run() -> None:
        with endpoint(lambda messages: "well") as (_, environ):
            player = EndpointPlayer(
                Endpoint.from_environment(MODEL, environ),
                temperature=1.0,
                top_p=1.0,
                patience=QUICK,
            )
            await player.answer([Message(role="user", content="a")], max_tokens=9, seed=0)
        with pytest.raises(EngineError, match=r"in 4 attempts .*refuses connections"):
            await player.answer([Message(role="user", content="b")], max_tokens=9, seed=0)

    asyncio.run(run())


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), TimeoutError(110, "")])
def test_host_with_several_addresses_fails_as_one(error: OSError) -> None:
    failed = openai.APIConnectionError(request=None)  # pyright: ignore[reportArgumentType]
    failed.__cause__ = OSError("All connection attempts failed")
    failed.__cause__.__cause__ = ExceptionGroup("all", [OSError("another"), error])
    where = Endpoint(model=MODEL, base_url="http://localhost:9/v1", api_key=KEY)
    raised = connection_error(failed, where, is_reached=False)
    assert isinstance(raised, EngineError) and "http://localhost:9" in str(raised)


HOPELESS: dict[str, tuple[Fault, int, str]] = {
    "page": (garbled(UNREADABLE["page"]), 3, "not JSON: <html>"),
    "no choices": (garbled(UNREADABLE["no choices"]), 3, '"choices": []'),
    "error without a status": (
        garbled(UNREADABLE["error without a status"]),
        3,
        "try another day",
    ),
    "filter": (
        refused(400, f"no {KEY}\nhere", code="content_filter"),
        1,
        "status 400: no *** here",
    ),
    "filter in a body": (
        garbled(
            b'{"error": {"code": 400, "message": "triggering \\ud800 content management policy"}}'
        ),
        1,
        "status 400: triggering ? content",
    ),
    "flagged": (refused(403, "your input was flagged"), 1, "status 403: your input was flagged"),
    "too long": (refused(400, "the maximum context length is 9"), 1, "maximum context length"),
}
"""What one conversation meets: the fault, the requests that it costs, a part of the reason."""


def turn_seed(spec: EpisodeSpec, turn: int) -> int:
    """Return the seed of the request for a turn's answer."""
    return derive_seed(spec.seed, "turn", turn) & 0x7FFFFFFF


@pytest.mark.parametrize("num_before", [0, 2])
@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_answer_is_one_failed_attempt_with_its_reason(
    tmp_path: Path, undisturbed: list[ChatEpisode], name: str, num_before: int
) -> None:
    fault, num_requests, reason = HOPELESS[name]
    lost = 2 * NUM_ATTEMPTS  # the first attempt at the third room, which needs more turns
    before = undisturbed[lost]
    assert len(before.answers) > num_before
    [spec] = [one for one in specs(4) if (one.group, one.episode) == (2, 0)]

    def script(asked: Asked) -> Fault | None:
        return fault if asked.body["seed"] == turn_seed(spec, num_before) else None

    with endpoint(script=script) as (server, environ):
        records = played(tmp_path / "a", environ, num_rooms=4)
        assert max(server.repetitions.values()) == num_requests
        server.script = fine
        resumed = played(tmp_path / "a", environ, num_rooms=4)
    record = records.pop(lost)
    assert record.end_reason == "no_answer" and reason in record.no_answer_reason
    assert KEY not in record.no_answer_reason
    assert (record.reward, record.num_retries) == (0.0, num_requests - 1)
    assert record.answers == before.answers[:num_before]
    assert record.effects == before.effects[:num_before]
    assert record.states == before.states[: num_before + 1]
    others = [*undisturbed[:lost], *undisturbed[lost + 1 : 4 * NUM_ATTEMPTS]]
    assert untimed(records) == untimed(others)
    assert untimed(resumed) == untimed(undisturbed[: 4 * NUM_ATTEMPTS])
    assert max(server.delivered.values()) == 1  # what was answered is not paid for again


@pytest.mark.parametrize("name", HOPELESS)
def test_endpoint_that_answers_nobody_ends_all(tmp_path: Path, name: str) -> None:
    fault, num_requests, reason = HOPELESS[name]
    error, num_asked = failure(tmp_path, fault, concurrency=1, max_unanswered=5)
    assert isinstance(error, EngineError)
    assert "to 5 attempts in a row" in str(error) and reason in str(error)
    assert num_asked == 5 * num_requests


def test_answers_in_between_keep_the_evaluation_alive(tmp_path: Path) -> None:
    openings = {turn_seed(spec, 0) for spec in specs(NUM_ROOMS) if spec.episode == 0}

    def script(asked: Asked) -> Fault | None:
        return HOPELESS["filter"][0] if asked.body["seed"] in openings else None

    with endpoint(script=script) as (_, environ):
        records = played(
            tmp_path / "a",
            environ,
            num_rooms=NUM_ROOMS,
            patience=replace(QUICK, concurrency=1, max_unanswered=3),
        )
    assert [record.end_reason == "no_answer" for record in records] == [True, False] * NUM_ROOMS


def test_extra_body_is_in_every_request_and_its_answers_are_for_no_other(tmp_path: Path) -> None:
    extra = {"top_k": 20, "provider": {"order": ["a"]}}
    with endpoint() as (server, environ):
        first = played(tmp_path / "a", environ, num_rooms=1, extra_body=extra)
        assert all(body["provider"] == {"order": ["a"]} for body in server.bodies)
        assert {body["top_k"] for body in server.bodies} == {20}
        asked_before = server.num_asked
        reordered = {"provider": {"order": ["a"]}, "top_k": 20}
        again = played(tmp_path / "a", environ, num_rooms=1, extra_body=reordered)
        assert untimed(again) == untimed(first)
        for other in ({}, {**extra, "top_k": 21}):
            with pytest.raises(RunDirectoryError, match="another conversation"):
                played(tmp_path / "a", environ, num_rooms=1, extra_body=other)
        assert server.num_asked == asked_before


def test_answer_that_was_given_before_the_end_is_not_asked_for_again(
    tmp_path: Path, undisturbed: list[ChatEpisode]
) -> None:
    server = ScriptedEndpoint()
    refuse = refused(402, "pay")

    async def refuse_all(asked: Asked) -> Response | None:
        # Not before all are here: an answer on its way would be lost with the others.
        async with asyncio.timeout(20):
            while server.num_under_way < QUICK.concurrency and not await asked.has_left():
                await asyncio.sleep(0.01)
        return await refuse(asked)

    server.script = lambda asked: refuse_all if asked.place >= 9 else None
    with serving(server) as environ:
        with pytest.raises(EngineError, match="pay"):
            played(tmp_path / "a", environ, num_rooms=NUM_ROOMS)
        server.script = fine
        records = played(tmp_path / "a", environ, num_rooms=NUM_ROOMS)
    assert untimed(records) == untimed(undisturbed)
    assert sum(record.num_from_journal for record in records) == 9
    assert max(server.delivered.values()) == 1


class Counted(TextEnv[SokobanState]):
    """Knows how many of its kind are open."""

    num_open = 0
    num_made = 0

    def __init__(self, spec: EpisodeSpec) -> None:
        game = Sokoban()
        super().__init__(game, game.decode(spec.puzzle.board), turn_budget=TURN_BUDGET)
        Counted.num_open += 1
        Counted.num_made += 1

    def close(self) -> None:
        Counted.num_open -= 1


def test_environments_are_closed_whatever_ends_the_evaluation(tmp_path: Path) -> None:
    def script(asked: Asked) -> Fault | None:
        return refused(401, "no") if asked.place == 12 else slow(0.02)

    with endpoint(script=script) as (server, environ):
        with pytest.raises(ConfigError):
            played(tmp_path / "a", environ, num_rooms=NUM_ROOMS, make_environment=Counted)
        assert 0 < Counted.num_made < NUM_ROOMS * NUM_ATTEMPTS
        assert Counted.num_open == 0
        server.script = fine
        played(tmp_path / "a", environ, num_rooms=NUM_ROOMS, make_environment=Counted)
        assert Counted.num_open == 0


def test_no_more_requests_than_allowed_are_on_their_way(tmp_path: Path) -> None:
    with endpoint(script=lambda asked: slow(0.1)) as (server, environ):
        played(tmp_path / "a", environ, num_rooms=3, patience=replace(QUICK, concurrency=3))
    assert server.most_under_way == 3


def talk(environ: dict[str, str], count: int, patience: Patience) -> None:
    """Ask for many answers at the same time."""

    async def run() -> None:
        board = specs(1)[0].puzzle.board
        async with EndpointPlayer(
            Endpoint.from_environment(MODEL, environ), temperature=1.0, top_p=1.0, patience=patience
        ) as player:
            messages = [Message(role="user", content=f"Board:\n{board}\nSteps left: 8")]
            await asyncio.gather(
                *(player.answer(messages, max_tokens=100, seed=seed) for seed in range(count))
            )

    asyncio.run(run())


def test_player_holds_its_bound_whoever_asks() -> None:
    with endpoint(lambda messages: "well", lambda asked: slow(0.3)) as (server, environ):
        talk(environ, 15, replace(QUICK, concurrency=5))
    assert server.most_under_way == 5


def test_rate_limit_of_one_pauses_all() -> None:
    def script(asked: Asked) -> Fault:
        return rate_limited("0.6") if asked.place == 4 and not asked.repetition else slow(0.01)

    with endpoint(lambda messages: "well", script) as (server, environ):
        talk(environ, 24, replace(QUICK, concurrency=2))
    assert server.num_asked == 25
    # With two at a time, one may have been on its way when the other, the fifth, was refused.
    assert server.asked_at[6] - server.asked_at[4] >= 0.6


def test_reasoning_models_limit_is_called_by_its_name(
    tmp_path: Path, undisturbed: list[ChatEpisode], caplog: pytest.LogCaptureFixture
) -> None:
    sentence = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead."
    )

    def script(asked: Asked) -> Fault | None:
        if "max_tokens" in asked.body:
            return refused(400, sentence, param="max_tokens", code="unsupported_parameter")
        for name in ("top_p", "seed"):
            if name in asked.body:
                return refused(400, f"Unsupported parameter: '{name}'", param=name)
        return None

    with endpoint(script=script) as (server, environ):
        records = played(tmp_path / "a", environ, num_rooms=4)
    assert untimed(records) == untimed(undisturbed[: 4 * NUM_ATTEMPTS])
    assert {"max_completion_tokens", "temperature"} <= set(server.bodies[-1])
    assert not {"max_tokens", "top_p", "seed"} & set(server.bodies[-1])
    assert caplog.text.count("refused a parameter") == 3  # once each, not once a request


def test_sampling_that_says_something_is_never_left_out(tmp_path: Path) -> None:
    fault = refused(400, "Unsupported parameter: 'top_p'", param="top_p")
    with endpoint(script=lambda asked: fault) as (server, environ), pytest.raises(EngineError):
        played(tmp_path / "a", environ, num_rooms=1, sampling=replace(SAMPLING, top_p=0.95))
    assert {body.get("top_p") for body in server.bodies} == {0.95}


def test_request_holds_the_papers_sampling(tmp_path: Path) -> None:
    with endpoint() as (server, environ):
        played(tmp_path / "a", environ, num_rooms=1, attempts=1)
    first = server.bodies[0]
    assert (first["model"], first["temperature"], first["top_p"]) == (MODEL, 1.0, 1.0)
    assert first["max_tokens"] == 16384 and 0 <= first["seed"] < 2**31
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert "stream" not in first


def test_missing_counts_are_unknown_and_said_once(
    tmp_path: Path, undisturbed: list[ChatEpisode], caplog: pytest.LogCaptureFixture
) -> None:
    with endpoint(counts_tokens=False) as (_, environ):
        records = played(tmp_path / "a", environ, num_rooms=4)
    assert [r.actions for r in records] == [r.actions for r in undisturbed[: 4 * NUM_ATTEMPTS]]
    assert {r.total_answer_tokens for r in records} == {None}
    assert caplog.text.count("does not count tokens") == 1


@pytest.mark.parametrize("name", ODD)
def test_answer_in_an_odd_form_is_played_and_not_repeated(tmp_path: Path, name: str) -> None:
    odd = ODD[name]
    sampling = replace(SAMPLING, max_answer_tokens=100)
    fault = garbled(odd.body)
    with endpoint(script=lambda asked: None if asked.place else fault) as (_, environ):
        (record,) = played(tmp_path / "a", environ, num_rooms=1, attempts=1, sampling=sampling)
    assert record.answers[0] == odd.text and record.num_retries == 0
    assert record.effects[0] == ("truncated" if odd.finish_reason == "length" else "invalid")


def test_answer_without_text_is_sent_back_as_words(tmp_path: Path) -> None:
    with endpoint(rule=lambda messages: "") as (server, environ):
        played(tmp_path / "a", environ, num_rooms=1, attempts=1)
    assert all(message["content"].strip() for message in server.bodies[-1]["messages"])


def test_progress_is_told_after_each_attempt(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with endpoint() as (_, environ):
        played(
            tmp_path / "a",
            environ,
            num_rooms=3,
            on_attempt=lambda done, total: told.append((done, total)),
        )
    assert told == [(done, 6) for done in range(1, 7)]


def test_key_is_in_no_file_log_or_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    moods = [refused(500, f"bad {KEY}"), rate_limited(), garbled(b"{"), refused(401, f"bad {KEY}")]

    def script(asked: Asked) -> Fault | None:
        if asked.place >= 12:
            return moods[3]
        return moods[asked.place % 3] if not asked.repetition else None

    with endpoint(script=script) as (server, environ):
        with pytest.raises(ConfigError) as raised:
            played(tmp_path / "a", environ, num_rooms=NUM_ROOMS)
        assert server.num_delivered > 0
        assert KEY not in repr(Endpoint.from_environment(MODEL, environ))
    assert KEY not in str(raised.value) and KEY not in repr(raised.value.__cause__)
    assert KEY not in caplog.text and len(caplog.records) > 20
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(KEY.encode() in path.read_bytes() for path in files)
