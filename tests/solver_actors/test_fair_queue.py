"""Who asks an analyst much does not keep the others waiting, nor does who has left."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cast_ray.errors import RemoteTimeout
from cast_ray.games.analysis import CALLER
from solver_actors.analyst.analyst import BUDGET_S, analyse
from solver_actors.analyst.remote import BATCH_S, Question, RemoteAnalyst
from solver_actors.oracle import Oracle

LONG_S = 1.5 * BATCH_S
ROOM = "######\n#P___#\n#_X__#\n#__O_#\n######"


class StandInActor:
    """Test double of an actor's handle: answers in a thread, as ``AnalystActor.answer`` does."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = SimpleNamespace(remote=self._answer)
        self._lock = asyncio.Lock()

    async def _answer(self, questions: list[Question]) -> list[Any]:
        async with self._lock:
            return await asyncio.to_thread(self._in_time, questions)

    def _in_time(self, questions: list[Question]) -> list[Any]:
        end, answers = time.perf_counter() + BATCH_S, []
        for question in questions:
            answers.append(question(self))  # pyright: ignore[reportArgumentType]
            if time.perf_counter() > end:
                break
        return answers


def slow(actor: Any, *, name: str, seconds: float) -> Any:
    actor.asked.append(name)
    time.sleep(seconds)
    return [name]


async def asked_by(analyst: RemoteAnalyst, caller: str, name: str, seconds: float) -> Any:
    CALLER.set(caller)
    return await analyst._ask(partial(slow, name=name, seconds=seconds))


async def many_large(analyst: RemoteAnalyst) -> list[asyncio.Task[Any]]:
    """Return eight large questions of one caller, of which the first is being answered."""
    large = [
        asyncio.create_task(asked_by(analyst, "greedy", f"large {i}", LONG_S)) for i in range(8)
    ]
    await asyncio.sleep(LONG_S / 2)
    return large


def test_a_small_question_passes_many_large_ones_of_another_caller() -> None:
    async def run() -> list[str]:
        actor = StandInActor()
        analyst = RemoteAnalyst([actor], timeout_s=60)
        large = await many_large(analyst)
        assert await asked_by(analyst, "honest", "small", 0) == ["small"]
        assert [await one for one in large] == [[f"large {i}"] for i in range(8)]
        return actor.asked

    asked = asyncio.run(run())
    assert asked.index("small") <= 2
    assert [name for name in asked if name != "small"] == [f"large {i}" for i in range(8)]


def test_a_large_question_leaves_the_other_actor_to_the_other_callers() -> None:
    async def run() -> bool:
        analyst = RemoteAnalyst([StandInActor(), StandInActor()], timeout_s=60)
        large = [asyncio.create_task(asked_by(analyst, "greedy", "large", 1.0)) for _ in range(3)]
        await asyncio.sleep(LONG_S / 2)  # a batch is out; the other questions may follow it
        large.append(asyncio.create_task(asked_by(analyst, "greedy", "large", 1.0)))
        await asyncio.sleep(LONG_S / 2)
        assert await asked_by(analyst, "honest", "small", 0) == ["small"]
        return any(one.done() for one in large)

    assert not asyncio.run(run())


def test_what_nobody_waits_for_any_more_is_not_asked() -> None:
    async def run() -> list[str]:
        actor = StandInActor()
        analyst = RemoteAnalyst([actor], timeout_s=60)
        large = await many_large(analyst)
        for one in large:
            one.cancel()
        await asked_by(analyst, "honest", "small", 0)
        return actor.asked

    assert asyncio.run(run()) == ["large 0", "small"]


def test_many_small_questions_of_a_caller_are_one_call() -> None:
    async def run() -> int:
        actor = StandInActor()
        calls = 0

        async def counted(questions: list[Question]) -> list[Any]:
            nonlocal calls
            calls += 1
            return await actor._answer(questions)

        actor.answer = SimpleNamespace(remote=counted)
        analyst = RemoteAnalyst([actor], timeout_s=60)
        await asyncio.gather(*(asked_by(analyst, "one", "small", 0) for _ in range(50)))
        return calls

    assert asyncio.run(run()) == 1


def test_a_wait_has_an_end() -> None:
    async def run() -> None:
        analyst = RemoteAnalyst([StandInActor()], timeout_s=0.1)
        with pytest.raises(RemoteTimeout):
            await asked_by(analyst, "honest", "large", 0.3)

    asyncio.run(run())


def test_what_a_question_has_no_time_for_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver_actors.analyst.analyst.BUDGET_S", -1.0)
    [late] = analyse(Oracle(max_bytes=2**24), "sokoban", [ROOM])
    assert late.cost is not None and late.cost != late.cost
    assert (late.action_costs, late.best) == (None, None)
    monkeypatch.setattr("solver_actors.analyst.analyst.BUDGET_S", BUDGET_S)
    [found] = analyse(Oracle(max_bytes=2**24), "sokoban", [ROOM])
    assert found.cost == 5


def test_a_search_that_gives_up_is_the_only_one_of_its_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("solver_actors.analyst.analyst.BUDGET_S", 600.0)
    oracle = Oracle(max_bytes=2**24)
    floor = ["_"] * 18
    boxes, targets = ["_", "X"] * 8 + ["_"] * 2, ["_", "_"] + ["O", "_"] * 8
    rows = [["P", *floor[1:]], *[floor] * 5, boxes, *[floor] * 4, targets, *[floor] * 6]
    board = "\n".join(["#" * 20, *("#" + "".join(row) + "#" for row in rows), "#" * 20])
    [found] = analyse(oracle, "sokoban", [board], temperature=1.0, with_line=True)
    assert found.cost is not None and found.cost != found.cost
    assert (found.action_costs, found.best, found.line, found.teacher) == (None,) * 4
