"""One game that is played through the service by agent, solver or human.

The analysis of a board is requested when the board appears and used after the next move: the solver
works while the player thinks.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cast_ray.envs.text_env import DEADLOCK, TURN_BUDGET, TextEnv
from cast_ray.errors import ActorLostError, CastRayError, RemoteTimeout
from cast_ray.games import get_game
from cast_ray.games.analysis import Analysis, Analyst
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.episode import PlayedTurn
from serve.site import schemas
from serve.site.agent import Agent
from serve.site.problems import ApiProblem, problem_of
from serve.site.turn_values import scored_turn, shown_analysis, shown_board

logger = logging.getLogger(__name__)

CANCELLED, FAILED, STOPPED = "cancelled", "failed", "stopped"
_ATTEMPTS = 2
"""At an analysis that an actor does not give."""
_TURN_BYTES = 48_000
"""Of one turn where each of 64 cells has an action and a cost; most take 3,000."""
_BOARD_COPIES = 6
"""A turn keeps its board as it is stored, as the policy reads it, and as rows; measured."""
_TOKEN_BYTES = 8
"""Of text; a token is about four characters, of one byte each in most languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What is played, and who plays it."""

    puzzle: Puzzle
    player: schemas.Player
    model: str | None
    turn_budget: int
    temperature: float = 0.0
    sampling_seed: int = 0
    delay_s: float = 0.0
    max_turns: int | None = None
    """End after this many turns, whatever the budget is; the player does not know of it."""
    ends_when_dead: bool
    """Whether a state of infinite cost ends the game."""
    answer_tokens: int = 0
    """Most tokens of one answer, if an agent plays."""

    def bytes_of(self, num_turns: int) -> int:
        """Return an upper estimate of the memory that this many turns take, with their analyses."""
        board_bytes = _BOARD_COPIES * len(self.puzzle.board)
        turn_bytes = _TURN_BYTES + board_bytes + _TOKEN_BYTES * self.answer_tokens
        return (num_turns + 1) * turn_bytes  # the present board is one more


class Session:
    """One game. Belongs to one event loop; ``start`` it once."""

    def __init__(self, options: SessionOptions, analyst: Analyst, *, caller: str = "") -> None:
        self.id = secrets.token_urlsafe(12)
        self.caller = caller
        """The key or address that began it."""
        self.options = options
        self.turns: list[schemas.Turn] = []
        self.end_reason = ""
        self.problem: ApiProblem | None = None
        self.used_at = time.monotonic()
        self._created = datetime.now(UTC)
        self._analyst = analyst
        self._game = get_game(options.puzzle.game)
        self._is_hidden = self._game.has_hidden_state
        self._played: list[PlayedTurn] = []
        self._board = options.puzzle.board
        start = self._game.decode(self._board)
        self._env = TextEnv(self._game, start, turn_budget=options.turn_budget)
        self._analysis = self._analyse(self._board)
        self._last_reason = ""
        self._has_changed = asyncio.Condition()
        self._turn_lock = asyncio.Lock()
        self._player: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last turn is played and everything is shown."""
        return bool(self.end_reason)

    @property
    def num_bytes(self) -> int:
        """What its turns take; while it is played, what they may come to take."""
        num_turns = len(self.turns) if self.is_over else self.options.turn_budget
        return self.options.bytes_of(num_turns)

    def start(self, agent: Agent | None) -> None:
        """Begin, and let agent or solver play.

        Raises:
            PuzzleError: the board is decided already.
        """
        self._env.start()
        if self.options.player == "agent":
            assert agent is not None  # the routes check it
            self._player = asyncio.create_task(self._played_out(self._play_agent(agent)))
        elif self.options.player == "solver":
            self._player = asyncio.create_task(self._played_out(self._play_solver()))

    async def wait(self) -> None:
        """Return when agent or solver has ended; raise the error if one occurred."""
        if self._player is not None:
            await asyncio.shield(self._player)
        if self.problem is not None:
            raise self.problem

    async def act(self, action: str) -> schemas.Turn:
        """Carry out a human's action and return the turn.

        Raises:
            ApiProblem: the game is over, or is not played by a human.
        """
        if self.options.player != "human":
            raise ApiProblem(
                409,
                "not_your_turn",
                f"this game is played by the {self.options.player}: begin one with player human",
            )
        # A caller who leaves does not take the turn along: it is played and shown, or it is not.
        return await asyncio.shield(asyncio.ensure_future(self._act(action)))

    async def _act(self, action: str) -> schemas.Turn:
        async with self._turn_lock:
            if self.is_over:
                raise ApiProblem(
                    409, "episode_over", f"this game has ended ({self.end_reason}): begin another"
                )
            end_reason = await self._step(action)
            if end_reason:
                await self._end(end_reason)
            return self.turns[-1]

    async def cancel(self) -> None:
        """End the game as it is."""
        if self._player is not None:
            self._player.cancel()
            await asyncio.gather(self._player, return_exceptions=True)
        if not self.is_over:
            await self._end(CANCELLED)

    async def follow(self, after: int, *, ping_s: float) -> AsyncIterator[schemas.Turn | None]:
        """Yield the turns after number ``after`` as they come; None = none for ``ping_s``."""
        next_turn = after + 1
        while True:
            while next_turn < len(self.turns):
                yield self.turns[next_turn]
                next_turn += 1
            if self.is_over:
                return
            try:
                async with asyncio.timeout(ping_s), self._has_changed:
                    await self._has_changed.wait_for(
                        lambda: self.is_over or next_turn < len(self.turns)  # noqa: B023
                    )
            except TimeoutError:
                yield None
            self.used_at = time.monotonic()

    async def episode(self) -> schemas.Episode:
        """Return the game as it is now."""
        options = self.options
        return schemas.Episode(
            id=self.id,
            game=options.puzzle.game,
            tier=options.puzzle.tier or None,
            player=options.player,
            model=options.model,
            seed=options.puzzle.seed,
            turn_budget=options.turn_budget,
            board=shown_board(self._game, options.puzzle.board, is_over=self.is_over),
            board_now=shown_board(self._game, self._board, is_over=self.is_over),
            analysis=shown_analysis(await self._analysed()),
            status="over" if self.is_over else "playing",
            end_reason=self.end_reason or None,
            error=None if self.problem is None else schemas.Problem(**self.problem.body["error"]),
            turns=list(self.turns),
            created=self._created.isoformat(timespec="seconds"),
        )

    async def _play_agent(self, agent: Agent) -> None:
        await agent.play(
            self.options.puzzle,
            turn_budget=self.options.turn_budget,
            temperature=self.options.temperature,
            seed=self.options.sampling_seed,
            watch=self._watch,
        )

    async def _play_solver(self) -> None:
        end_reason = ""
        while not end_reason:
            best = (await self._analysed()).best
            if best is None:
                raise ApiProblem(409, "solver_gives_up", "the solver knows no move on this board")
            end_reason = await self._step(best)

    async def _played_out(self, playing: Awaitable[None]) -> None:
        """Wait for a player, then end the game with its reason or error."""
        try:
            await playing
        except Exception as error:
            if not isinstance(error, CastRayError):
                error = CastRayError(f"{type(error).__name__}: {error}")
            self.problem = problem_of(error)
            await self._end(FAILED)
        else:
            await self._end(self._last_reason)

    async def _step(self, action: str) -> str:
        """Carry out an action that comes without an answer; see ``_watch``.

        Raises:
            CastRayError: what it leads to cannot be analysed; then nothing has happened.
        """
        env = copy.copy(self._env)
        turn = env.step(f"```{action}```")
        played = PlayedTurn(
            board=self._board,
            board_after=turn.state,
            answer="",
            action=turn.action,
            effect=turn.effect.value,
            feedback=turn.feedback,
            num_tokens=0,
            seconds=0.0,
            reward=turn.reward,
            end_reason=turn.end_reason,
        )
        end_reason = await self._watch(played)
        self._env = env
        return end_reason

    async def _watch(self, played: PlayedTurn) -> str:
        """Score a turn, show it, and return why the game ends with it, if it does.

        Raises:
            CastRayError: it cannot be scored; then nothing is shown.
        """
        before = await self._analysed()
        analysis = self._analysis
        if played.board_after != played.board:
            analysis = self._analyse(played.board_after)
        number = len(self.turns)
        cost_after = await self._cost_after(played, before, analysis)
        turn = scored_turn(
            self._game, number, played, before=before, cost_after=cost_after, is_over=False
        )
        end_reason = played.end_reason
        is_dead = cost_after is not None and math.isinf(cost_after)
        if is_dead and self.options.ends_when_dead and end_reason in ("", TURN_BUDGET):
            end_reason = DEADLOCK
        if not end_reason and number + 1 == self.options.max_turns:
            end_reason = STOPPED
        self._board, self._analysis = played.board_after, analysis
        self._played.append(played)
        self._last_reason = end_reason
        async with self._has_changed:
            self.turns.append(turn)
            self._has_changed.notify_all()
        if not end_reason and self.options.delay_s:
            await asyncio.sleep(self.options.delay_s)
        return end_reason

    async def _cost_after(
        self, played: PlayedTurn, before: Analysis, after: asyncio.Task[Analysis]
    ) -> float | None:
        """Return the cost after a turn, without waiting for the solver if it is already known."""
        if played.board_after == played.board:
            return before.cost
        if before.action_costs is not None and played.action in before.action_costs:
            return before.action_costs[played.action]
        return (await asyncio.shield(after)).cost

    async def _end(self, reason: str) -> None:
        """Show what was hidden, then end the game."""
        if self._is_hidden and reason not in (STOPPED, FAILED):
            try:
                await self._reveal()
            except CastRayError as error:  # the game is over all the same
                logger.warning("a game ends with its values hidden: %s", error)
        async with self._has_changed:
            self.end_reason = reason
            self._has_changed.notify_all()

    async def _reveal(self) -> None:
        boards = [*(played.board for played in self._played), self._board]
        analyses = await self._ask(boards, privileged=True)
        self._analysis.cancel()
        # A task whose result is known already.
        self._analysis = asyncio.create_task(asyncio.sleep(0, analyses[-1]))
        self.turns[:] = [
            scored_turn(
                self._game,
                number,
                played,
                before=analyses[number],
                cost_after=analyses[number + 1].cost,
                is_over=True,
            )
            for number, played in enumerate(self._played)
        ]

    async def _analysed(self) -> Analysis:
        """Return the analysis of the present board; one that failed is asked for again."""
        task = self._analysis
        if task.done() and (task.cancelled() or task.exception() is not None):
            self._analysis = self._analyse(self._board)
        # Many wait for it, and one who leaves must not take it from the others.
        return await asyncio.shield(self._analysis)

    def _analyse(self, board: str) -> asyncio.Task[Analysis]:
        async def ask() -> Analysis:
            return (await self._ask([board], privileged=not self._is_hidden))[0]

        task = asyncio.create_task(ask())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
        return task

    async def _ask(self, boards: Sequence[str], *, privileged: bool) -> Sequence[Analysis]:
        game, left = self.options.puzzle.game, _ATTEMPTS
        while True:
            left -= 1
            try:
                return await self._analyst.analyse(game, boards, privileged=privileged)
            except (ActorLostError, RemoteTimeout):
                if not left:
                    raise
