"""Games of ALFWorld played by its package, many in one process.

The package takes seconds to read a game, may not be used by two threads at once (its parsers are
shared, and it exchanges ``sys.stdout`` and ``sys.argv`` while it reads), and neither gives back its
planner, a C library of which every game in play needs a copy, nor survives its unloading (the
process then dies at its end). So everything in the package is done under one lock, a game is read
once and copied for each episode, and planners go from one episode to the next.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from cast_ray.envs.alfworld.game_files import GameFile
from cast_ray.errors import EnvironmentSetupError, PuzzleError

NUM_KEPT_GAMES = 8
"""Games that stay read: the attempts at one come together. Some megabytes each."""

_MISSING = "ALFWorld is not installed: pip install cast-ray[alfworld]"
_NO_PLANNER = object()
"""Stands where a game that was read and is not in play has no planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a game shows after a command."""

    text: str
    commands: tuple[str, ...]
    """Admissible now, sorted."""
    is_won: bool


def require_package() -> None:
    """Let pass where the package is installed; imports nothing.

    Raises:
        EnvironmentSetupError: it is not.
    """
    if not all(find_spec(name) for name in ("alfworld", "textworld", "fast_downward")):
        raise EnvironmentSetupError(_MISSING)


class _Reader:
    """Reads games with the package and lends planners. Used under ``_PACKAGE`` alone."""

    def __init__(self) -> None:
        self._loader: Any = None  # The package has no types.
        self._games: OrderedDict[str, Any] = OrderedDict()
        self.planners: deque[Any] = deque()
        """Not in use. Returning one needs no lock."""

    def begin(self, game: GameFile, planner: Any) -> Any:
        """Return a game at its beginning, played on ``planner``, as an environment of TextWorld."""
        if game.digest not in self._games:
            self._games[game.digest] = self._read(game)
            while len(self._games) > NUM_KEPT_GAMES:
                self._games.popitem(last=False)
        self._games.move_to_end(game.digest)
        planner = planner or self._planner()
        episode = _copied(self._games[game.digest], {id(_NO_PLANNER): planner})
        problem = episode._pddl_state
        planner.load_sas(problem.sas.encode())
        planner.load_sas_replan(problem.sas_replan.encode())
        return episode

    def _planner(self) -> Any:
        if self.planners:
            return self.planners.popleft()
        from fast_downward import load_lib  # pyright: ignore[reportMissingImports]

        return load_lib()

    def _read(self, game: GameFile) -> Any:
        """Return a game after its first observation, without a planner."""
        loader = self._loader or _new_loader()
        self._loader = loader
        with _unreadable_as_puzzle_error(game.board):
            loader.load(
                {
                    "pddl_domain": game.domain,
                    "grammar": game.grammar,
                    "pddl_problem": game.problem,
                }
            )
            loader.reset()
        inner = loader.unwrapped
        return _copied(inner, {id(inner.downward_lib): _NO_PLANNER})


_PACKAGE = threading.Lock()
"""Held while code of the package runs."""
_READER = _Reader()


class TextGame:
    """One game in play. Calls come one after the other; only ``close`` may come during one."""

    def __init__(self, game: GameFile) -> None:
        """Set up a game that is read when it starts."""
        self._game = game
        self._episode: Any = None
        self._is_closed = False
        self._in_call = threading.Lock()

    def start(self) -> Scene:
        """Begin, or begin again.

        Raises:
            EnvironmentSetupError: the package cannot be imported.
            PuzzleError: the game's own logic cannot be read.
            RuntimeError: the game is closed.
        """
        with self._call(), _PACKAGE:
            planner = None if self._episode is None else self._episode.downward_lib
            self._episode = _READER.begin(self._game, planner)
            return _scene(self._episode.state)

    def step(self, command: str) -> Scene:
        """Give a command, spelled as in ``Scene.commands``.

        Raises:
            RuntimeError: the game is closed or has not begun.
        """
        with self._call(), _PACKAGE:
            if self._episode is None:
                raise RuntimeError("the game has not begun: call start first")
            state, _, _ = self._episode.step(command)
            return _scene(state)

    def close(self) -> None:
        """Give the planner back, or let the call that is under way do so when it ends."""
        self._is_closed = True
        self._give_back()

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Refuse a closed game, and see to it that one closed meanwhile keeps nothing."""
        try:
            with self._in_call:
                if self._is_closed:
                    raise RuntimeError("the game is closed: ask for another environment")
                yield
        finally:
            if self._is_closed:
                self._give_back()

    def _give_back(self) -> None:
        if not self._in_call.acquire(blocking=False):
            return
        episode, self._episode = self._episode, None
        self._in_call.release()
        if episode is not None:
            _READER.planners.append(episode.downward_lib)


def _new_loader() -> Any:
    """Return the package's environment with the package's names of things."""
    try:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler  # pyright: ignore[reportMissingImports]
        from textworld import EnvInfos  # pyright: ignore[reportMissingImports]
        from textworld.envs.pddl import PddlEnv  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise EnvironmentSetupError(f"{_MISSING} ({error})") from error
    return AlfredDemangler(PddlEnv(EnvInfos(won=True, admissible_commands=True)))


def _copied(environment: Any, exchanged: dict[int, Any]) -> Any:
    """Return a copy of an environment of TextWorld that can be played on its own.

    What no step changes is shared: the logic of the game and the task, which are most of it.

    Args:
        environment: TextWorld's, without wrappers.
        exchanged: by the identity of a part, its replacement in the copy.
    """
    state = environment._pddl_state
    shared = (environment._logic, state.task, state._actions)
    return copy.deepcopy(environment, {id(part): part for part in shared} | exchanged)


def _scene(state: Any) -> Scene:
    commands: list[str] = state["admissible_commands"]
    return Scene(text=state.feedback.strip(), commands=tuple(commands), is_won=bool(state["won"]))


@contextmanager
def _unreadable_as_puzzle_error(board: str) -> Iterator[None]:
    """Say which game it is that the package cannot read, and keep ``sys.argv``.

    The planner's translator takes the options of a command line when it is imported and when it is
    used; the package writes them there and leaves them.
    """
    arguments = sys.argv
    sys.argv = ["translate.py", "domain", "task"]
    try:
        from fast_downward.translate.pddl_parser.lisp_parser import ParseError  # pyright: ignore[reportMissingImports]
        from tatsu.exceptions import ParseException  # pyright: ignore[reportMissingImports]

        try:
            yield
        except (
            AssertionError,
            AttributeError,
            LookupError,
            ParseError,
            ParseException,
            RuntimeError,
            StopIteration,
            SystemExit,  # The translator's way to say that a predicate is unknown, …
            TypeError,
            ValueError,
        ) as error:
            raise PuzzleError(
                f"{board} cannot be read by the alfworld package "
                f"({type(error).__name__}: {str(error)[:200]}): download the data again"
            ) from error
    finally:
        sys.argv = arguments
