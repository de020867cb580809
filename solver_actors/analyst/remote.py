"""Analysts in Ray actors, the client that asks them, and one that answers quick questions itself.

Asking twice gives the same answer, so Ray repeats what a restart lost.

A call has questions of one caller, and each caller has one call under way at most, in turn: with
two actors, a caller whose search takes seconds leaves the other actor to the others. A call comes
back after ``BATCH_S``, so that a caller who asks much waits behind one who asks little.

A call of an actor costs more processor time than a look-up in a table. But an unknown board may
take a search of seconds, which would block everything else in this process. ``NearAnalyst`` asks an
actor about every layout first, and answers here only for layouts that were quick there.
"""

from __future__ import annotations

import asyncio
import time
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


class RemoteAnalyst:
    """Asks analyst actors; is an ``Analyst``. Belongs to one event loop."""

    def __init__(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Prepare a client.

        Args:
            handles: of ``AnalystActor``, at least one. Any: Ray's handles have the actor's methods,
                and .remote.
            timeout_s: longest wait for one answer, restarts of its actor included.
        """
        self._free = list(reversed(list(enumerate(handles))))
        self._timeout_s = timeout_s
        self._waiting: OrderedDict[str, deque[_Ask]] = OrderedDict()
        self._asking: set[str] = set()
        """Callers whose call is under way."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def analyse(
        self, game: str, boards: Sequence[str], **options: Unpack[AnalysisOptions]
    ) -> Sequence[Analysis]:
        """Return one analysis per board; see ``Analyst``."""
        return await self._ask(partial(analyse, game=game, boards=tuple(boards), **options))

    async def analyse_visible(self, game: str, rows: Sequence[str], num_hidden: int) -> Analysis:
        """Return what can be said from what a player sees; see ``Analyst``."""
        question = partial(_visible, game=game, rows=tuple(rows), num_hidden=num_hidden)
        [analysis] = await self._ask(question)
        return analysis

    async def new_board(self, game: str, tier: str, seed: int) -> str:
        """Return a start state of a tier; see ``Analyst``."""
        return await self._ask(partial(new_board, game=game, tier=tier, seed=seed))

    async def _ask(self, question: Question) -> Any:
        loop = asyncio.get_running_loop()
        ask = _Ask(question, loop.create_future())
        self._waiting.setdefault(CALLER.get(), deque()).append(ask)
        loop.call_later(_GATHERING_S, self._send)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await ask.answer
        except TimeoutError:
            raise RemoteTimeout(
                f"the analyst did not answer within {self._timeout_s:g} s: ask again, or for a "
                "smaller board"
            ) from None

    def _send(self) -> None:
        """Ask each free actor what the next caller waits for."""
        for caller in list(self._waiting):
            if not self._free:
                return
            if caller in self._asking:
                continue
            asks, batch = self._waiting.pop(caller), list[_Ask]()
            while asks and len(batch) < _MAX_BATCH:
                if not (ask := asks.popleft()).answer.done():  # done: its caller left
                    batch.append(ask)
            if asks:
                self._waiting[caller] = asks  # behind all others
            if batch:
                self._asking.add(caller)
                task = asyncio.create_task(self._call(self._free.pop(), caller, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _call(self, actor: tuple[int, Any], caller: str, batch: list[_Ask]) -> None:
        """Ask an actor, pass its answers on, and ask for what is left. Any: Ray's handle."""
        number, handle = actor
        found: list[Any]  # Any: an answer, or an error
        try:
            found = await handle.answer.remote([ask.question for ask in batch])
        except RayTaskError as error:  # no input does this: a bug of ours
            found = [error] * len(batch)
            self._free.append(actor)
        except RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            message = f"analyst {number} is lost ({reason}): see its log and restart the service"
            found = [ActorLostError(message) for _ in batch]
            self._free.insert(0, actor)  # asked again after the others
        else:
            # The most recent one has the solvers of the most recent boards.
            self._free.append(actor)
        self._asking.discard(caller)
        if left := batch[len(found) :]:
            self._waiting.setdefault(caller, deque()).extendleft(reversed(left))
        self._send()
        for ask, answer in zip(batch, found, strict=False):
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
