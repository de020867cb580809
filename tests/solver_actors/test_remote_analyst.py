"""What is answered here and what is sent away, by an analyst that stands for the actors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cast_ray.games.analysis import Analysis
from solver_actors.analyst.analyst import analyse
from solver_actors.analyst.remote import QUICK_S, NearAnalyst
from solver_actors.oracle import Oracle

ROOM = "######\n#P___#\n#_X__#\n#__O_#\n######"
WALKED = "######\n#_P__#\n#_X__#\n#__O_#\n######"
OTHER = "######\n#P___#\n#_X__#\n#_O__#\n######"
MINES = "001+.\n112..\n.+...\n.....\n....+"


class FarAnalyst:
    """Solves in this process, and takes a stated time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked: list[tuple[str, ...]] = []
        self._oracle = Oracle(max_bytes=2**24)

    async def analyse(self, game: str, boards: Sequence[str], **how: Any) -> Sequence[Analysis]:
        self.asked.append(tuple(boards))
        found = analyse(self._oracle, game, boards, **how)
        await asyncio.sleep(self.seconds)
        return found

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        raise NotImplementedError

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        raise NotImplementedError


def ask(near: NearAnalyst, game: str, *boards: str, **how: Any) -> Sequence[Analysis]:
    return asyncio.run(near.analyse(game, boards, **how))


def near_with(far: FarAnalyst) -> NearAnalyst:
    asyncio.run(far.analyse("sokoban", [ROOM, OTHER][:1]))  # loads kernels
    far.asked.clear()
    return NearAnalyst(far, max_bytes=2**24)


def test_a_layout_is_sent_away_once_and_answered_alike_from_then_on() -> None:
    far = FarAnalyst()
    near = near_with(far)
    for board in (ROOM, WALKED, ROOM, WALKED):
        for temperature in (None, 0.5):
            assert ask(near, "sokoban", board, temperature=temperature) == analyse(
                Oracle(max_bytes=2**24), "sokoban", [board], temperature=temperature
            )
    assert far.asked == [(ROOM,)]
    ask(near, "sokoban", OTHER)
    assert far.asked == [(ROOM,), (OTHER,)]


def test_a_layout_that_took_long_is_never_solved_here() -> None:
    far = FarAnalyst(seconds=2 * QUICK_S)
    near = near_with(far)
    for board in (ROOM, WALKED, ROOM):
        ask(near, "sokoban", board)
    assert far.asked == [(ROOM,), (WALKED,), (ROOM,)]


def test_minesweeper_lines_and_many_boards_are_always_sent_away() -> None:
    far = FarAnalyst()
    near = near_with(far)
    ask(near, "sokoban", ROOM)
    far.asked.clear()
    ask(near, "sokoban", ROOM, with_line=True)
    ask(near, "sokoban", *[ROOM, WALKED] * 3)
    for _ in range(2):
        ask(near, "minesweeper", MINES, privileged=False)
    assert len(far.asked) == 4
