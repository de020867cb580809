"""Analysts in Ray actors, the client that asks them, and one that answers quick questions itself.

Boards of one layout always go to the same actor, where its solver is. Asking twice gives the same
answer, so Ray repeats what a restart lost.

One call of an actor is under way at a time, with questions of all callers in turn, and it comes
back after ``BATCH_S``: who asks much, or for large boards, waits behind who asks little.

A call of an actor costs more processor time than a look-up in a table. But an unknown board may
take a search of seconds, which would block everything else in this process. ``NearAnalyst`` asks an
actor about every layout first, and answers here only for layouts that were quick there.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Unpack

import ray
from ray.exceptions import RayError, RayTaskError

from cast_ray.errors import ActorLostError, CastRayError, RemoteTimeout
from cast_ray.games import game_names, get_game
from cast_ray.games.analysis import CALLER, Analysis, AnalysisOptions, Analyst
from solver_actors.actors.actors import process_figures
from solver_actors.analyst.analyst import analyse, analyse_visible, new_board
from solver_actors.kernels import CompilationCounter, compile_kernels
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver

_GATHERING_S = 0.002
"""How long a question waits for others to the same actor: a call costs more than an answer."""
_MAX_BATCH = 64
BATCH_S = 0.1
"""When an actor begins no further question of a call."""
_MAX_RESTARTS = 20
"""Of one actor; one that dies more often has a fault."""


Answer = list[Analysis] | str | CastRayError
"""An error is an answer: it must not take the other answers of its call along."""
Question = Callable[[Oracle], Answer]


@ray.remote
class AnalystActor:
    """One process's solvers."""

    def __init__(self, *, max_bytes: int, games: Sequence[str]) -> None:
        compile_kernels(games)
        self._compilations = CompilationCounter()
        self._oracle = Oracle(max_bytes=max_bytes)
        self._num_calls = self._num_questions = 0

    def answer(self, questions: list[Question]) -> list[Answer]:
        """Return the answers to the first questions, at least one, as far as time allows."""
        self._num_calls += 1
        end = time.perf_counter() + BATCH_S
        answers: list[Answer] = []
        for question in questions:
            answers.append(_answered(self._oracle, question))
            if time.perf_counter() > end:
                break
        self._num_questions += len(answers)
        return answers

    def counters(self) -> dict[str, float]:
        """Return what this process has done since it was ready."""
        return {
            **asdict(self._oracle.counters),
            "num_calls": self._num_calls,
            "num_questions": self._num_questions,
            "num_compilations": self._compilations.num_compilations,
            **process_figures(),
        }


def start_analysts(
    count: int, *, num_cpus: float, max_bytes: int, games: Iterable[str]
) -> list[Any]:  # Any: Ray's handles have the actor's methods, and .remote
    """Return the handles of new actors; nothing waits for them here.

    Args:
        count: how many.
        num_cpus: that Ray reserves for each.
        max_bytes: bound of one actor's solvers.
        games: their kernels are compiled before an actor is ready.
    """
    options = AnalystActor.options(
        num_cpus=num_cpus,
        max_restarts=_MAX_RESTARTS,
        max_task_retries=-1,  # asking twice gives the same answer; restarts are bounded
    )
    names = tuple(games)
    return [options.remote(max_bytes=max_bytes, games=names) for _ in range(count)]


@dataclass(slots=True, eq=False)
class _Ask:
    """A question that waits for its answer."""

    question: Question
    answer: asyncio.Future[Any]
    """Any: a list of analyses, or a board."""


class _Queue:
    """The questions to one actor, by caller."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, deque[_Ask]] = OrderedDict()
        self.is_asked = False
        """Whether a call is under way, or about to be."""

    def add(self, caller: str, ask: _Ask) -> None:
        self._of.setdefault(caller, deque()).append(ask)

    def put_back(self, batch: Sequence[tuple[str, _Ask]]) -> None:
        """Return what a call has left, to come before what its callers asked later."""
        for caller, ask in reversed(batch):
            self._of.setdefault(caller, deque()).appendleft(ask)

    def take(self) -> list[tuple[str, _Ask]]:
        """Return the next questions, one of each caller in turn, but none that nobody awaits."""
        batch: list[tuple[str, _Ask]] = []
        while self._of and len(batch) < _MAX_BATCH:
            caller, asks = self._of.popitem(last=False)
            ask = asks.popleft()
            if asks:
                self._of[caller] = asks  # behind all others
            if not ask.answer.done():
                batch.append((caller, ask))
        return batch


class RemoteAnalyst:
    """Asks analyst actors; is an ``Analyst``. Belongs to one event loop."""

    def __init__(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Prepare a client.

        Args:
            handles: of ``AnalystActor``, at least one, in an order that all clients share. Any:
                Ray's handles have the actor's methods, and .remote.
            timeout_s: longest wait for one answer, restarts of its actor included.
        """
        self._handles = list(handles)
        self._timeout_s = timeout_s
        self._queues = [_Queue() for _ in self._handles]
        self._tasks: set[asyncio.Task[None]] = set()

    async def analyse(
        self, game: str, boards: Sequence[str], **options: Unpack[AnalysisOptions]
    ) -> Sequence[Analysis]:
        """Return one analysis per board; see ``Analyst``."""
        key = get_solver_entry(game).layout_key(get_game(game).decode(boards[0]))
        question = partial(analyse, game=game, boards=tuple(boards), **options)
        return await self._ask(f"{game} {key!r}", question)

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        """Return what can be said from what a player sees; see ``Analyst``."""
        question = partial(_visible, game=game, rows=tuple(rows), num_hidden=num_hidden)
        [analysis] = await self._ask("\n".join(rows), question)
        return analysis

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier; see ``Analyst``."""
        question = partial(new_board, game=game, tier=tier, seed=seed)
        return await self._ask(f"{game} {tier} {seed}", question)

    async def _ask(self, key: str, question: Question) -> Any:
        """Return the answer of the actor that a key belongs to, the same one in every process."""
        number = zlib.crc32(key.encode()) % len(self._handles)
        loop = asyncio.get_running_loop()
        ask, queue = _Ask(question, loop.create_future()), self._queues[number]
        queue.add(CALLER.get(), ask)
        if not queue.is_asked:
            queue.is_asked = True
            loop.call_later(_GATHERING_S, self._send, number)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await ask.answer
        except TimeoutError:
            raise RemoteTimeout(
                f"analyst {number} did not answer within {self._timeout_s:g} s: ask again, or for "
                "a smaller board"
            ) from None

    def _send(self, number: int) -> None:
        """Ask one actor what waits for it, if anything does."""
        batch = self._queues[number].take()
        self._queues[number].is_asked = bool(batch)
        if batch:
            answers = self._handles[number].answer.remote([ask.question for _, ask in batch])
            task = asyncio.create_task(self._read(number, answers, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, number: int, answers: Any, batch: list[tuple[str, _Ask]]) -> None:
        """Pass the answers of one call on, and ask for what is left. Any: Ray's reference."""
        found: list[Any]  # Any: an answer, or an error
        try:
            found = await answers
        except RayTaskError as error:  # no input does this: a bug of ours
            found = [error] * len(batch)
        except RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            message = f"analyst {number} is lost ({reason}): see its log and restart the service"
            found = [ActorLostError(message) for _ in batch]
        self._queues[number].put_back(batch[len(found) :])
        self._send(number)
        for (_, ask), answer in zip(batch, found, strict=False):
            if ask.answer.done():  # timed out, or its task was cancelled
                continue
            if isinstance(answer, Exception):
                ask.answer.set_exception(answer)
            else:
                ask.answer.set_result(answer)


def _visible(oracle: Oracle, *, game: str, rows: Sequence[str], num_hidden: int) -> list[Analysis]:
    return [analyse_visible(game, rows, num_hidden)]


def _answered(oracle: Oracle, question: Question) -> Answer:
    """Return the answer to one question, or what is wrong with it."""
    try:
        return question(oracle)
    except CastRayError as error:
        return error


QUICK_S = 0.03
"""An actor's first answer that took no longer than this, transport included, was no search."""
_MAX_LAYOUTS = 4096
_MAX_BOARDS = 4
"""More at once go to an actor."""


def games_with_tables() -> list[str]:
    """Return the games that ``NearAnalyst`` may answer by itself."""
    solved = filter(has_solver, game_names())
    return [name for name in solved if get_solver_entry(name).has_tables]


class NearAnalyst:
    """Is an ``Analyst``. Belongs to one event loop."""

    def __init__(self, far: Analyst, *, max_bytes: int) -> None:
        """Start without any solver.

        Args:
            far: asked about what is not known to be quick.
            max_bytes: most bytes of solvers that are kept here.
        """
        self._far = far
        self._oracle = Oracle(max_bytes=max_bytes)
        self._quick: OrderedDict[tuple[str, Hashable], None] = OrderedDict()

    async def analyse(
        self, game: str, boards: Sequence[str], **options: Unpack[AnalysisOptions]
    ) -> Sequence[Analysis]:
        """Return one analysis per board; see ``Analyst``."""
        entry = get_solver_entry(game)
        is_small = entry.has_tables and len(boards) <= _MAX_BOARDS and not options.get("with_line")
        key = (game, entry.layout_key(get_game(game).decode(boards[0])))
        started = time.perf_counter()
        if is_small and key in self._quick:
            self._quick.move_to_end(key)
            found = analyse(self._oracle, game, boards, **options)
            if time.perf_counter() - started > QUICK_S:
                del self._quick[key]
            return found
        found = await self._far.analyse(game, boards, **options)
        if is_small and time.perf_counter() - started <= QUICK_S:
            self._quick[key] = None
            if len(self._quick) > _MAX_LAYOUTS:
                self._quick.popitem(last=False)
        return found

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        """Return what can be said from what a player sees; see ``Analyst``."""
        return await self._far.analyse_visible(game, rows, num_hidden)

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier; see ``Analyst``."""
        return await self._far.new_board(game, tier, seed)
