"""Single-player games of TextArena (Guertler et al., 2025), played with the published package.

``game=cast_ray.envs.textarena:FrozenLake`` plays one; any other game of one player that needs no
downloads is a subclass with its id there. What the game writes goes to the policy unchanged.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

from cast_ray.envs.tasks import Step, TextEnvironment
from cast_ray.errors import EnvironmentSetupError

_MOVE = re.compile(r"\[[^\[\]]*\]")
_draws = threading.Lock()
"""TextArena draws from Python's global random numbers, which all episodes of a process share."""


class TextArena(TextEnvironment):
    """One game. Its reward comes at its end: often how far it came, 1 if it is won."""

    env_id: ClassVar[str]
    """As in ``textarena.make``."""
    moves: ClassVar[tuple[str, ...]] = ()
    """Answers for the player ``random``."""
    rules = (
        "You play a game that is described to you in texts. Each turn, think, then end with your "
        "move between square brackets, as the game asks for it."
    )

    def __init__(self) -> None:
        self._env: Any = _package().make(f"{self.env_id}-raw")  # Any: the package has no types
        self._random: object = None  # this game's state of Python's generator

    def reset(self, task: int) -> str:
        """Begin the game whose seed is the task's number."""
        self._random = random.Random(task).getstate()
        with self._own_draws():
            self._env.reset(num_players=1, seed=task)
        return self._heard()

    def step(self, answer: str) -> Step:
        """Play the last move between square brackets: some games want nothing beside it."""
        move = (_MOVE.findall(answer) or [answer])[-1]
        errors = self._env.state.error_count
        with self._own_draws():
            done, _ = self._env.step(move)
        state, about = self._env.state, self._env.state.game_info[0]
        reason = about.get("reason", "") if done else ""
        return Step(
            observation="\n".join(filter(None, [self._heard(), reason])),
            reward=float(state.rewards[0]) if done and state.rewards else 0.0,
            done=bool(done),
            action=move,
            is_valid=state.error_count <= errors and not about["invalid_move"],
        )

    def choices(self) -> tuple[str, ...]:
        """Return the game's moves."""
        return self.moves

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        with _draws:
            others = random.getstate()
            random.setstate(self._random)  # pyright: ignore[reportArgumentType]
            try:
                yield
            finally:
                self._random = random.getstate()
                random.setstate(others)

    def _heard(self) -> str:
        """Return what the game said since the last time, without the player's own words."""
        _, messages = self._env.get_observation()
        own = _package().ObservationType.PLAYER_ACTION
        return "\n".join(text.strip("\n") for _, text, kind in messages if kind is not own)


class Mastermind(TextArena):
    """Find a code of four different digits."""

    env_id, turn_budget = "Mastermind-v0", 20


class TowerOfHanoi(TextArena):
    """Move three disks to the last tower."""

    env_id, turn_budget = "TowerOfHanoi-v0", 14
    moves = ("[A B]", "[A C]", "[B A]", "[B C]", "[C A]", "[C B]")


class FrozenLake(TextArena):
    """Cross the ice past its holes."""

    env_id, turn_budget = "FrozenLake-v0", 30
    moves = ("[up]", "[down]", "[left]", "[right]")


class FifteenPuzzle(TextArena):
    """Slide the tiles into order."""

    env_id, turn_budget = "FifteenPuzzle-v0", 100
    moves = FrozenLake.moves


class Game2048(TextArena):
    """Join equal tiles up to 2048."""

    env_id, turn_budget = "2048-v0", 200
    moves = FrozenLake.moves


def _package() -> ModuleType:
    try:
        import textarena
    except ImportError as error:
        raise EnvironmentSetupError(
            f"TextArena is not installed ({error}): run pip install 'cast-ray[textarena]'"
        ) from None
    return textarena
