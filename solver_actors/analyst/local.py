"""An analyst in this process, with one worker thread: for serving boards without a cluster.

The solvers' kernels keep the interpreter's lock. A look-up takes microseconds, but while a board
above a table's cap is searched, a second or two, nothing else in this process runs: a service for
many players uses ``remote``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Unpack

from cast_ray.games.analysis import Analysis, AnalysisOptions
from solver_actors.analyst.analyst import analyse, analyse_visible, new_board
from solver_actors.oracle import Oracle


class LocalAnalyst:
    """Answers questions one by one, outside of the event loop; is an ``Analyst``."""

    def __init__(self, *, max_bytes: int) -> None:
        """Start without any solver.

        Args:
            max_bytes: most bytes of solvers that are kept.
        """
        self._oracle = Oracle(max_bytes=max_bytes)  # used by the worker alone
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="analyst")

    async def analyse(
        self, game: str, boards: Sequence[str], **options: Unpack[AnalysisOptions]
    ) -> Sequence[Analysis]:
        """Return one analysis per board; see ``Analyst``."""
        question = functools.partial(analyse, self._oracle, game, boards, **options)
        return await asyncio.get_running_loop().run_in_executor(self._worker, question)

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        """Return what can be said from what a player sees; see ``Analyst``."""
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, analyse_visible, game, rows, num_hidden
        )

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier; see ``Analyst``."""
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, new_board, self._oracle, game, tier, seed
        )

    def close(self) -> None:
        """Let the worker end after it has answered what was asked."""
        self._worker.shutdown(wait=False)
