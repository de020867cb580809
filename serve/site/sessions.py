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
    max_bytes: int = 1 << 30
    """Of all games (``Session.num_bytes``)."""
    max_bytes_per_caller: int = 1 << 28
    """Beyond each limit of kept games, ended ones are forgotten."""
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
        self._forget_idle()
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
        if not self._make_room(caller, options.bytes_of(options.turn_budget)):
            raise ApiProblem(
                429,
                "too_many_episodes",
                "the games being played take all the memory there is for them; end one, or begin "
                "this one with a smaller board or turn_budget",
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
        self._forget_idle()
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

    def _forget_idle(self) -> None:
        now = time.monotonic()
        for session in list(self._sessions.values()):
            if now - session.used_at > self._limits.idle_s:
                self._forget(session)

    def _make_room(self, caller: str, num_bytes: int) -> bool:
        """Forget ended games until a new one fits, and return whether it does.

        The caller's own games are forgotten first, the longest unused of them before the others.
        """
        limits, kept = self._limits, list(self._sessions.values())
        in_all = num_bytes + sum(session.num_bytes for session in kept)
        own = num_bytes + sum(session.num_bytes for session in kept if session.caller == caller)
        over = [session for session in kept if session.is_over]
        for session in sorted(over, key=lambda session: session.caller != caller):
            is_full = len(self._sessions) >= limits.max_kept or in_all > limits.max_bytes
            is_own = session.caller == caller
            if is_full or (is_own and own > limits.max_bytes_per_caller):
                self._forget(session)
                in_all -= session.num_bytes
                own -= session.num_bytes * is_own
        return in_all <= limits.max_bytes and own <= limits.max_bytes_per_caller

    def _forget(self, session: Session) -> None:
        del self._sessions[session.id]
        task = asyncio.create_task(session.cancel())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
