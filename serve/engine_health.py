"""Whether an engine is alive, judged by the tokens it brings and not by an answer to a ping.

A stopped process answers no ping, but neither does a healthy event loop that takes up a thousand
requests; a stalled core leaves the replica's event loop answering for ever. Tokens tell them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cast_ray.errors import EngineError
from serve.engine_figures import EngineFigures

LOOP_LAG_S = 2.0
"""By so much the replica's event loop may be behind: tokens that arrived and were not yet seen."""


async def check_progress(
    figures: EngineFigures,
    probe: Callable[[], Awaitable[object]],
    *,
    is_suspended: Callable[[], bool],
    stall_timeout_s: float,
    probe_timeout_s: float,
) -> None:
    """Return when the engine brings tokens, within ``probe_timeout_s``.

    Args:
        figures: of the engine.
        probe: asks it for one token.
        is_suspended: whether a weight update holds generation; it has a limit of its own.
        stall_timeout_s: longest healthy silence.
        probe_timeout_s: limit for the probe of an idle engine.

    Raises:
        EngineError: no token came in time.
    """
    if is_suspended() or figures.seconds_silent < stall_timeout_s:
        return
    is_idle = not figures.has_work
    wait_s = probe_timeout_s if is_idle else min(LOOP_LAG_S, probe_timeout_s)
    try:
        async with asyncio.timeout(wait_s):
            await (probe() if is_idle else figures.progress())
    except TimeoutError as error:
        # An update that came in between held the probe, and began the silence anew at its end.
        if is_suspended() or figures.seconds_silent < wait_s:
            return
        what = "no probe token" if is_idle else "no token of the requests that it has"
        raise EngineError(
            f"the engine is stalled: {what} for {figures.seconds_silent:.0f} s; it is ended and "
            f"started again"
        ) from error
