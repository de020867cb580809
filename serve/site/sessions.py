"""The games that are being played through this process, and those that ended recently."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from cast_ray.games.analysis import CALLER, Analyst
from serve.site.agent import Agent
from serve.site.problems import ApiProblem
from serve.site.session import Session, SessionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """How many games are kept, and for how long."""

    max_playing: int = 512
    max_playing_per_caller: int = 128
    """Of one key, or of one address without keys."""
    max_kept: int = 1024
    """Beyond this, ended games are forgotten, the longest unused first."""
    idle_s: float = 1800.0
    """Seconds after its last use when a game is forgotten."""


class Sessions:
    """The games of one event loop."""

    def __init__(self, limits: SessionLimits, analyst: Analyst, agent: Agent | None) -> None:
        self._limits, self._analyst, self._agent = limits, analyst, agent
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    async def begin(self, options: SessionOptions) -> Session:
        """Start a game and keep it.

        Raises:
            ApiProblem: the limit of games is reached.
            CastRayError: the board is decided already, or cannot be analysed.
        """
        self._forget_old()
        caller = CALLER.get()
        playing = [session for session in self._sessions.values() if not session.is_over]
        own = sum(session.caller == caller for session in playing)
        limits = self._limits
        if len(playing) >= limits.max_playing or own >= limits.max_playing_per_caller:
            raise ApiProblem(
                429,
                "too_many_episodes",
                f"{len(playing)} games are being played, {own} of them by you; end one, or try "
                "again in a few seconds",
                retry_after_s=5,
            )
        session = Session(options, self._analyst, caller=caller)
        session.start(self._agent)
        self._sessions[session.id] = session
        return session

    async def move(self, options: SessionOptions) -> Session:
        """Play a game to its end and return it, without keeping it.

        Raises:
            CastRayError: the game failed.
        """
        session = Session(options, self._analyst)
        session.start(self._agent)
        try:
            await session.wait()
        finally:
            await session.cancel()
        return session

    def get(self, session_id: str) -> Session:
        """Return a kept game.

        Raises:
            ApiProblem: there is none of this id.
        """
        self._forget_old()
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiProblem(
                404,
                "episode_unknown",
                f"there is no such episode: it was ended, or not used for {self._limits.idle_s:g} "
                "s; begin another",
            )
        session.used_at = time.monotonic()
        self._sessions.move_to_end(session_id)
        return session

    async def remove(self, session_id: str) -> None:
        """End a game and forget it.

        Raises:
            ApiProblem: there is none of this id.
        """
        session = self.get(session_id)
        del self._sessions[session_id]
        await session.cancel()

    async def close(self) -> None:
        """End all games."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*(session.cancel() for session in sessions), *self._ending)

    def _forget_old(self) -> None:
        now = time.monotonic()
        idle = [
            session_id
            for session_id, session in self._sessions.items()
            if now - session.used_at > self._limits.idle_s
        ]
        over = (session_id for session_id, session in self._sessions.items() if session.is_over)
        while len(self._sessions) - len(idle) >= self._limits.max_kept:
            oldest = next((session_id for session_id in over if session_id not in idle), None)
            if oldest is None:
                break
            idle.append(oldest)
        for session_id in idle:
            task = asyncio.create_task(self._sessions.pop(session_id).cancel())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
