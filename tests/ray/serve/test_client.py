"""The client of several engines, with simulated ones: where requests go and what failures cost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from ray.serve.handle import DeploymentHandle

from cast_ray.errors import EngineError, RemoteTimeout
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.weights.manifest import WeightManifest
from serve.client.client import PolicyClient
from serve.client.engines import PolicyEngines
from tests.support.simulated_engine import SlotClock, deploy_simulated_engines

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

NUM_SLOTS = 4
TURN_S = 0.02
REFUSED_SEED = 77
ANSWERS = [(answer, answer + 1, 0) for answer in range(10, 60)]
WAIT_S = 60.0
"""Longest wait of a test for anything."""


@pytest.fixture(scope="module")
def engines(local_ray: None) -> Iterator[PolicyEngines]:
    engines = deploy_simulated_engines(
        "client",
        num_engines=2,
        num_slots=NUM_SLOTS,
        seconds_per_turn=TURN_S,
        answers=ANSWERS,
        refused_seeds=[REFUSED_SEED],
        seconds_to_start=1.0,
    )
    yield engines
    engines.remove()


def a_request(seed: object = 0, **changes: object) -> GenerateRequest:
    request = GenerateRequest(
        token_ids=(1, 2, 3), max_tokens=8, temperature=1.0, top_p=1.0, seed=0, stop_token_ids=(0,)
    )
    return replace(request, seed=seed, **changes)


def answer_of(seed: int) -> tuple[int, ...]:
    return ANSWERS[seed % len(ANSWERS)]


def run(
    engines: PolicyEngines,
    work: Callable[[PolicyClient], Awaitable[object]],
    *,
    timeout_s: float = WAIT_S,
    recovery_timeout_s: float = WAIT_S,
    slots: int = NUM_SLOTS,
) -> None:
    async def bounded() -> None:
        client = PolicyClient(
            engines.handles,
            slots_per_engine=slots,
            timeout_s=timeout_s,
            recovery_timeout_s=recovery_timeout_s,
        )
        async with asyncio.timeout(WAIT_S):
            await work(client)

    asyncio.run(bounded())


async def clock(handle: DeploymentHandle) -> SlotClock:
    return await handle.clock.remote()


async def turns(engines: PolicyEngines) -> list[int]:
    return [(await clock(handle)).num_turns for handle in engines.handles]


async def reset(engines: PolicyEngines) -> None:
    for handle in engines.handles:
        await handle.reset_clock.remote()


def test_episodes_of_a_group_stay_with_one_engine(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        await reset(engines)
        lanes = [Lane(group=5) for _ in range(3)]
        for turn in range(4):
            await asyncio.gather(*(client(a_request(turn), lane) for lane in lanes))
        assert {lane.engine for lane in lanes} == {1}
        assert await turns(engines) == [0, 12]
        assert client.counters()["num_overflows"] == 0

    run(engines, work)


def test_requests_that_are_ready_together_travel_in_one_call(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        await asyncio.gather(*(client(a_request(seed), Lane(group=0)) for seed in range(5)))
        assert client.counters()["num_calls"] == 1

    run(engines, work)


def test_an_overrun_engine_lets_episodes_go_and_they_stay_away(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        lanes = [Lane(group=0) for _ in range(20)]
        await asyncio.gather(*(client(a_request(seed), lane) for seed, lane in enumerate(lanes)))
        moved = [lane for lane in lanes if lane.engine == 1]
        # Five are not yet too many; from the sixth on one moves wherever the other has under half.
        assert len(moved) == client.counters()["num_overflows"]
        assert 5 <= len(moved) <= 10
        await reset(engines)
        await client(a_request(), moved[0])
        assert await turns(engines) == [0, 1]

    run(engines, work)


def test_a_little_more_than_its_slots_moves_no_episode(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        lanes = [Lane(group=0) for _ in range(NUM_SLOTS + 1)]
        await asyncio.gather(*(client(a_request(), lane) for lane in lanes))
        assert {lane.engine for lane in lanes} == {0}

    run(engines, work)


def test_a_refusal_hits_its_own_caller_alone_and_at_once(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        seeds = [1, REFUSED_SEED, 2]
        outcomes = await asyncio.gather(
            *(client(a_request(seed), Lane(group=0)) for seed in seeds), return_exceptions=True
        )
        first, refused, second = outcomes
        assert isinstance(refused, EngineError) and "refuses the seed" in str(refused)
        assert isinstance(first, Completion) and first.token_ids == answer_of(1)
        assert isinstance(second, Completion) and second.token_ids == answer_of(2)
        assert client.counters()["num_retries"] == 0

    run(engines, work)


def test_a_fault_in_the_engines_code_is_said_and_not_asked_again(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        with pytest.raises(EngineError, match=r"client-policy-0.*unhashable"):
            await client(a_request(seed=[]), Lane(group=0))
        assert client.counters()["num_retries"] == 0
        assert (await client(a_request(1), Lane(group=0))).token_ids == answer_of(1)

    run(engines, work)


async def play(client: PolicyClient, lane: Lane, num_turns: int) -> list[Completion]:
    return [await client(a_request(lane.group * 100 + turn), lane) for turn in range(num_turns)]


async def kill(handle: DeploymentHandle) -> None:
    os.kill(await handle.pid.remote(), signal.SIGKILL)


async def check_that_nothing_is_lost(
    client: PolicyClient, disturb: Callable[[], Awaitable[None]]
) -> None:
    """Play 24 episodes of 30 turns, disturb them half-way, and look at every answer."""
    lanes = [Lane(group=group) for group in range(24)]
    games = [asyncio.create_task(play(client, lane, 30)) for lane in lanes]
    while client.counters()["num_requests"] < 24 * 15:
        await asyncio.sleep(TURN_S)
    await disturb()
    for lane, answers in zip(lanes, await asyncio.gather(*games), strict=True):
        expected = [answer_of(lane.group * 100 + turn) for turn in range(30)]
        assert [answer.token_ids for answer in answers] == expected
    counters = client.counters()
    assert counters["num_requests"] == 24 * 30
    assert counters["num_retries"] > 0
    assert counters["num_engine_failures"] >= 1


def test_a_killed_replicas_requests_are_answered_by_the_other(engines: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        await check_that_nothing_is_lost(client, lambda: kill(engines.handles[0]))

    run(engines, work)


def test_with_every_replica_killed_requests_wait_for_their_return(engines: PolicyEngines) -> None:
    async def kill_all() -> None:
        await asyncio.gather(*map(kill, engines.handles))

    async def work(client: PolicyClient) -> None:
        # A stall is counted anew after a return: the second that it takes is longer than this.
        await check_that_nothing_is_lost(client, kill_all)

    run(engines, work, timeout_s=0.8)


def test_a_failed_call_is_asked_again_of_a_replica_that_lives(engines: PolicyEngines) -> None:
    async def fail_all() -> None:
        await asyncio.gather(*(handle.fail.remote("its core died") for handle in engines.handles))

    async def work(client: PolicyClient) -> None:
        await check_that_nothing_is_lost(client, fail_all)

    run(engines, work)


@pytest.fixture(scope="module")
def slow(local_ray: None) -> Iterator[PolicyEngines]:
    engines = deploy_simulated_engines(
        "slow", num_engines=1, num_slots=1, seconds_per_turn=0.5, answers=ANSWERS
    )
    yield engines
    engines.remove()


def test_one_failure_of_many_calls_is_one_line_and_counts_once(
    slow: PolicyEngines, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: PolicyClient) -> None:
        waiting = []
        for seed in range(4):
            waiting.append(asyncio.create_task(client(a_request(seed), Lane(group=0))))
            await asyncio.sleep(0)  # the request is made,
            await asyncio.sleep(0)  # and goes on its way alone
        assert client.counters()["num_calls"] == 4
        while (await slow.handles[0].stats.remote()).num_waiting < 3:
            await asyncio.sleep(0.01)
        await slow.handles[0].fail.remote("its core died")
        await asyncio.gather(*waiting)
        assert client.counters()["num_engine_failures"] == 1

    run(slow, work)
    [line] = [r.getMessage() for r in caplog.records if r.name == "serve.client.link"]
    assert "slow-policy-0" in line
    assert "its core died" in line


def test_a_queue_longer_than_the_time_out_is_no_stall(slow: PolicyEngines) -> None:
    """Another client's requests are first; this one sees nothing for three time-outs."""

    async def work(client: PolicyClient) -> None:
        others = PolicyClient(
            slow.handles, slots_per_engine=1, timeout_s=WAIT_S, recovery_timeout_s=WAIT_S
        )
        first = asyncio.gather(*(others(a_request(seed), Lane(group=0)) for seed in range(7)))
        while not others.counters()["num_calls"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        answer = await client(a_request(30), Lane(group=0))
        assert answer.token_ids == answer_of(30)
        await first

    run(slow, work, timeout_s=1.0)


def test_an_engine_that_writes_nothing_is_given_up_with_its_name(local_ray: None) -> None:
    engines = deploy_simulated_engines(
        "stuck", num_engines=1, num_slots=1, seconds_per_turn=WAIT_S, answers=ANSWERS
    )

    async def work(client: PolicyClient) -> None:
        with pytest.raises(RemoteTimeout, match=r"stuck-policy-0.* 0\.4 s"):
            await client(a_request(), Lane(group=0))

    run(engines, work, timeout_s=0.4)
    engines.remove()


def test_a_request_for_newer_weights_waits_longer_than_the_time_out(slow: PolicyEngines) -> None:
    async def work(client: PolicyClient) -> None:
        asked = asyncio.create_task(client(a_request(min_weight_version=1), Lane(group=0)))
        await asyncio.sleep(2.0)
        assert not asked.done()
        asked.cancel()

    run(slow, work, timeout_s=0.4)


def test_new_weights_reach_requests_that_wait_for_them_and_tokens_in_flight(
    slow: PolicyEngines,
) -> None:
    async def work(client: PolicyClient) -> None:
        running = asyncio.create_task(client(a_request(1), Lane(group=0)))
        waiting = asyncio.create_task(client(a_request(2, min_weight_version=2), Lane(group=0)))
        await asyncio.sleep(0.3)
        manifest = WeightManifest(
            version=2, path="", num_bytes=0, checksum="", piece_bytes=1, tensors=()
        )
        await slow.handles[0].update_weights.remote(manifest)
        assert (await running).weight_versions == (0, 2, 2)
        assert (await waiting).weight_versions == (2, 2, 2)

    run(slow, work)


def test_an_engine_that_stays_away_is_given_up_with_its_failure(local_ray: None) -> None:
    engines = deploy_simulated_engines(
        "gone",
        num_engines=1,
        num_slots=1,
        seconds_per_turn=0.2,
        answers=ANSWERS,
        seconds_to_start=8.0,
    )

    async def work(client: PolicyClient) -> None:
        await client(a_request(), Lane(group=0))
        asked = asyncio.create_task(client(a_request(), Lane(group=0)))
        await asyncio.sleep(0.05)
        await kill(engines.handles[0])
        started = time.monotonic()
        with pytest.raises(RemoteTimeout, match=r"\b2 s\b.*gone-policy"):
            await asked
        assert 1.5 < time.monotonic() - started < 20

    run(engines, work, timeout_s=1.0, recovery_timeout_s=2.0)
    engines.remove()
