"""Games are kept within a limit of bytes, of each caller and in all."""

from __future__ import annotations

import asyncio
import math
import tracemalloc
from dataclasses import replace

import httpx
import pytest

from cast_ray.games import get_game
from cast_ray.games.json_state import parse_state
from cast_ray.games.puzzles import make_puzzle
from serve.site.guard import digest_of_key
from serve.site.session import Session, SessionOptions
from serve.site.sessions import SessionLimits
from solver_actors.analyst.local import LocalAnalyst
from tests.support.site import (
    LARGE_SOKOBAN,
    MINEFIELD,
    RUSH_HOUR,
    SOKOBAN,
    guarded,
    served,
    site_app,
)

MINE, THEIRS = "m" * 24, "t" * 24
KEYS = tuple(map(digest_of_key, (MINE, THEIRS)))
FULL_MINEFIELD = MINEFIELD | {"rows": 8, "cols": 8}


def begin(address: str, key: str, board: dict[str, object]) -> int:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{address}/api/episodes", json=board, headers=headers).status_code


def test_memory_of_games_of_one_key_leaves_room_for_others() -> None:
    limits = SessionLimits(max_bytes=15 << 20, max_bytes_per_caller=8 << 20)
    with served(site_app(replace(guarded(key_digests=KEYS), sessions=limits))) as address:
        small = SOKOBAN | {"player": "human", "turn_budget": 20}
        huge = LARGE_SOKOBAN | {"player": "human", "turn_budget": 50}
        found = [begin(address, THEIRS, board) for board in (huge, huge, small, small)]
        assert found == [201, 429, 201, 201]
        assert [begin(address, MINE, board) for board in (huge, huge)] == [201, 429]


def test_ended_games_make_room_for_a_new_one_the_callers_own_first() -> None:
    limits = SessionLimits(max_bytes=7_000_000)
    with served(site_app(replace(guarded(key_digests=KEYS), sessions=limits))) as address:
        ids = dict[str, str]()
        for key in (MINE, THEIRS):
            headers = {"authorization": f"Bearer {key}"}
            body = SOKOBAN | {"player": "solver", "turn_budget": 20}
            begun = httpx.post(f"{address}/api/episodes", json=body, headers=headers)
            ids[key] = begun.headers["location"]
            httpx.get(f"{address}/{ids[key]}/events", headers=headers, timeout=30)  # to the end
        huge = LARGE_SOKOBAN | {"player": "human", "turn_budget": 60}
        assert begin(address, THEIRS, huge) == 201
        headers = {"authorization": f"Bearer {MINE}"}
        known = [httpx.get(f"{address}/{ids[key]}", headers=headers).status_code for key in ids]
        assert known == [200, 404]


@pytest.mark.parametrize("board", [SOKOBAN, FULL_MINEFIELD, RUSH_HOUR, LARGE_SOKOBAN])
def test_a_game_takes_no_more_memory_than_is_counted(board: dict[str, object]) -> None:
    game = get_game(str(board["game"]))
    puzzle = make_puzzle(
        game, parse_state(board).state, tier="", cost=math.nan, seed=0, measures={}
    )
    options = SessionOptions(
        puzzle=puzzle, player="human", model=None, turn_budget=400, ends_when_dead=False
    )

    async def run() -> tuple[int, int]:
        analyst = LocalAnalyst(max_bytes=1 << 26)
        await Session(options, analyst).episode()  # what all games share
        tracemalloc.start()
        session = Session(options, analyst)
        session.start(None)
        best = (await session.episode()).analysis
        while not session.is_over and len(session.turns) < 40 and best is not None:
            await session.act(best.best or "")
            best = (await session.episode()).analysis
        await session.cancel()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        analyst.close()
        return taken, session.num_bytes

    taken, counted = asyncio.run(run())
    assert taken < counted
