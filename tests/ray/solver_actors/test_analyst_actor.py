"""Real analyst actors: the same answers as in this process, together, through restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from cast_ray.errors import ActorLostError, PuzzleError, RemoteTimeout
from cast_ray.games.analysis import Analysis
from solver_actors.analyst.analyst import analyse, analyse_visible
from solver_actors.analyst.remote import RemoteAnalyst, start_analysts
from solver_actors.oracle import Oracle

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"
MINES = "001+.\n112..\n.+...\n.+...\n+...."
VIEW = ["001..", "112..", ".....", ".....", "....."]
CORRIDORS = [f"P_X{'_' * length}O" for length in range(1, 17)]
GAMES = ("sokoban", "minesweeper")
TIMEOUT_S = 60.0


@pytest.fixture
def handles() -> Iterator[list[Any]]:
    started = start_analysts(2, num_cpus=0.5, max_bytes=2**24, games=GAMES)
    ray.get([handle.counters.remote() for handle in started], timeout=120)
    yield started
    for handle in started:
        ray.kill(handle)


def counters(handles: list[Any]) -> list[dict[str, float]]:
    return ray.get([handle.counters.remote() for handle in handles], timeout=60)


def local(game: str, board: str, **asked: Any) -> Analysis:
    return analyse(Oracle(max_bytes=2**24), game, [board], **asked)[0]


def test_actors_say_what_this_process_says(handles: list[Any]) -> None:
    async def ask() -> list[Any]:
        remote = RemoteAnalyst(handles, TIMEOUT_S)
        return [
            *await remote.analyse("sokoban", [ROOM, ROOM], temperature=0.5, with_line=True),
            *await remote.analyse("minesweeper", [MINES], privileged=False),
            await remote.analyse_visible("minesweeper", VIEW, 4),
        ]

    room = local("sokoban", ROOM, temperature=0.5, with_line=True)
    mines = local("minesweeper", MINES, privileged=False)
    assert asyncio.run(ask()) == [room, room, mines, analyse_visible("minesweeper", VIEW, 4)]
    assert [count["num_compilations"] for count in counters(handles)] == [0, 0]


def test_questions_that_are_ready_together_travel_together(handles: list[Any]) -> None:
    async def ask() -> list[Any]:
        remote = RemoteAnalyst(handles, TIMEOUT_S)
        return await asyncio.gather(*(remote.analyse("sokoban", [b]) for b in CORRIDORS))

    found = [answer[0].cost for answer in asyncio.run(ask())]
    assert found == [local("sokoban", board).cost for board in CORRIDORS]
    counted = counters(handles)
    assert [count["num_calls"] for count in counted] == [1, 0]
    assert sum(count["num_questions"] for count in counted) == len(CORRIDORS)


def test_one_caller_finds_its_solvers_again(handles: list[Any]) -> None:
    async def ask() -> None:
        for _ in range(3):  # clients of their own, as several replicas have them
            remote = RemoteAnalyst(handles, TIMEOUT_S)
            for board in CORRIDORS:
                await remote.analyse("sokoban", [board])

    asyncio.run(ask())
    counted = counters(handles)
    assert sum(count["num_misses"] for count in counted) == len(CORRIDORS)
    assert sum(count["num_hits"] for count in counted) == 2 * len(CORRIDORS)


def test_a_broken_question_spoils_no_other(handles: list[Any]) -> None:
    async def ask() -> list[Any]:
        remote = RemoteAnalyst(handles[:1], TIMEOUT_S)
        return await asyncio.gather(
            remote.analyse("sokoban", [ROOM]),
            remote.analyse("sokoban", [ROOM, "P_X_O"]),
            remote.analyse_visible("minesweeper", ["4."], 1),
            remote.analyse("sokoban", ["?"]),
            remote.analyse("sokoban", ["P_X_O"]),
            return_exceptions=True,
        )

    room, mixed, view, symbol, corridor = asyncio.run(ask())
    assert room[0].cost == 5
    assert corridor[0].cost == 3
    assert all(isinstance(error, PuzzleError) for error in (mixed, view, symbol))
    assert "board 1" in str(mixed)


def test_an_actor_that_is_killed_comes_back_and_answers(handles: list[Any]) -> None:
    before = [int(count["pid"]) for count in counters(handles)]

    async def ask() -> list[Any]:
        remote = RemoteAnalyst(handles, TIMEOUT_S)
        asked = [asyncio.ensure_future(remote.analyse("sokoban", [board])) for board in CORRIDORS]
        await asyncio.sleep(0.003)  # until the calls are out
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        return [*await asyncio.gather(*asked), await remote.analyse("sokoban", [ROOM])]

    found = asyncio.run(ask())
    assert [answer[0].cost for answer in found] == [
        local("sokoban", board).cost for board in [*CORRIDORS, ROOM]
    ]
    after = [int(count["pid"]) for count in counters(handles)]
    assert not set(before) & set(after)


def test_an_actor_that_is_silent_has_a_limit(handles: list[Any]) -> None:
    [pid] = {int(count["pid"]) for count in counters(handles[:1])}

    async def ask(timeout_s: float) -> float | None:
        remote = RemoteAnalyst(handles[:1], timeout_s)
        return (await remote.analyse("sokoban", [ROOM]))[0].cost

    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(RemoteTimeout, match=r"analyst .* 0\.5 s"):
            asyncio.run(ask(0.5))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - started < 20
    assert asyncio.run(ask(TIMEOUT_S)) == 5


def test_an_actor_that_is_gone_for_good_is_said(handles: list[Any]) -> None:
    gone = start_analysts(1, num_cpus=0.5, max_bytes=2**24, games=GAMES)
    counters(gone)
    ray.kill(gone[0])

    async def ask() -> None:
        await RemoteAnalyst(gone, TIMEOUT_S).analyse("sokoban", [ROOM])

    with pytest.raises(ActorLostError, match="analyst 0"):
        asyncio.run(ask())


def test_whoever_gives_up_leaves_the_others_their_answers(handles: list[Any]) -> None:
    async def ask() -> float | None:
        remote = RemoteAnalyst(handles[:1], TIMEOUT_S)
        first = asyncio.ensure_future(remote.analyse("sokoban", [ROOM]))
        second = asyncio.ensure_future(remote.analyse("sokoban", ["P_X_O"]))
        await asyncio.sleep(0)
        first.cancel()
        return (await second)[0].cost

    assert asyncio.run(ask()) == 3
    assert counters(handles[:1])[0]["num_questions"] == 1
