"""A game goes on whoever leaves it and whatever the solver fails to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from cast_ray.errors import RemoteTimeout
from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis
from cast_ray.games.puzzles import Puzzle, make_puzzle
from serve.site.session import Session, SessionOptions
from solver_actors.analyst.local import LocalAnalyst

ROOM = "#######\n#_____#\n#_PX_O#\n#_____#\n#######"


class HesitantAnalyst:
    """Test double: a real analyst that waits for ``answers`` and first fails some times."""

    def __init__(self) -> None:
        self._analyst = LocalAnalyst(max_bytes=2**24)
        self.answers = asyncio.Event()
        self.answers.set()
        self.failures = 0

    async def analyse(self, game: str, boards: Sequence[str], **options: Any) -> Sequence[Analysis]:
        await self.answers.wait()
        if self.failures:
            self.failures -= 1
            raise RemoteTimeout("this double was told to fail: ask again")
        return await self._analyst.analyse(game, boards, **options)

    def close(self) -> None:
        self._analyst.close()


@asynccontextmanager
async def game(*, player: str = "human") -> AsyncIterator[tuple[Session, HesitantAnalyst]]:
    analyst = HesitantAnalyst()
    options = SessionOptions(
        puzzle=puzzle(), player=player, model=None, turn_budget=6, ends_when_dead=True
    )  # pyright: ignore[reportArgumentType]
    session = Session(options, analyst)  # pyright: ignore[reportArgumentType]
    session.start(None)
    yield session, analyst
    analyst.answers.set()
    await session.cancel()
    analyst.close()


def puzzle() -> Puzzle:
    sokoban = get_game("sokoban")
    return make_puzzle(sokoban, sokoban.decode(ROOM), tier="mini", cost=2.0, seed=0, measures={})


async def left_at_once(work: Any) -> None:
    """Begin to wait for something and leave before it is there."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_who_leaves_before_the_first_analysis_takes_it_from_nobody() -> None:
    async def run() -> None:
        async with game() as (session, analyst):
            analyst.answers.clear()
            await left_at_once(session.episode())
            analyst.answers.set()
            assert (await session.episode()).analysis.cost == 2  # pyright: ignore

    asyncio.run(run())


def test_an_action_whose_caller_leaves_is_played_and_shown() -> None:
    async def run() -> None:
        async with game() as (session, analyst):
            analyst.answers.clear()
            await left_at_once(session.act("Right"))
            assert session.turns == []
            analyst.answers.set()
            turn = await session.act("Right")
            assert (turn.turn, turn.cost_before, turn.cost_after) == (1, 1, 0)
            assert session.end_reason == "solved"

    asyncio.run(run())


def test_an_action_that_cannot_be_analysed_has_not_happened() -> None:
    async def run() -> None:
        async with game() as (session, analyst):
            analyst.failures = 100
            with pytest.raises(RemoteTimeout):
                await session.act("Right")
            analyst.failures = 0
            assert session.turns == []
            assert "\n".join((await session.episode()).board_now.rows) == ROOM
            for number, cost in enumerate((1, 0)):
                turn = await session.act("Right")
                assert (turn.turn, turn.cost_after) == (number, cost)

    asyncio.run(run())


def test_one_time_out_does_not_end_a_game_that_plays_itself() -> None:
    async def run() -> None:
        async with game(player="solver") as (session, analyst):
            analyst.failures = 1
            await session.wait()
            assert (session.end_reason, len(session.turns)) == ("solved", 2)

    asyncio.run(run())


def test_a_failed_analysis_is_asked_for_again() -> None:
    async def run() -> None:
        async with game() as (session, analyst):
            analyst.failures = 2
            with pytest.raises(RemoteTimeout):
                await session.episode()
            assert (await session.episode()).analysis.cost == 2  # pyright: ignore

    asyncio.run(run())
