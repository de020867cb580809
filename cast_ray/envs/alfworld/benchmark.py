"""ALFWorld: household tasks in text, one command per turn (Shridhar et al., ICLR 2021).

The games are the published ones, played by the published package (based on TextWorld) with its
own names of objects, zero-shot with the scaffold of our games. Admissible are the commands that
the package lists, including ``help``.
"""

from __future__ import annotations

from collections.abc import Mapping

from cast_ray.envs.alfworld.game_files import data_folder, game_files, read_game
from cast_ray.envs.alfworld.households import Scene, TextGame, require_package
from cast_ray.envs.environment import BenchmarkTier, Environment
from cast_ray.envs.text_env import SOLVED, BudgetedEpisode
from cast_ray.errors import ConfigError
from cast_ray.games.game import Effect
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import last_fenced_block
from cast_ray.games.wording import GameWording

TURNS = 30
"""A game's turn budget, the paper's."""
RULES = (
    "You do a task in a household that is told to you in texts. Each turn you give one command, "
    "and it must be one of the admissible commands that are listed, in the same words: they change "
    "with the place where you are and the thing that you hold. You hold one thing at a time. What "
    "is closed must be opened before you see what is in it. Things are cleaned at a sinkbasin, "
    "heated with a microwave, cooled with a fridge, and looked at under a lamp by holding them "
    "while the lamp beside you is in use. Think, then end with the command between two fences of "
    "three backticks, for example ```go to desk 1```."
)

_EXPECTED = "End with one of the admissible commands, for example ```look```."
_NOTHING = "Nothing happens."
"""What the package prints after a command that did nothing."""


class Alfworld:
    """The benchmark. Tiers are the splits of its data; how many games there are, the data say."""

    name = "alfworld"
    tiers: Mapping[str, BenchmarkTier] = {
        split: BenchmarkTier(name=split, turn_budget=TURNS)
        for split in ("valid_seen", "valid_unseen")
    }
    wording = GameWording()

    def puzzles(self, tier: str) -> list[Puzzle]:
        """Return the games of a split that are not marked as unsolvable, sorted by path.

        Raises:
            ConfigError: there is no such tier.
            EnvironmentSetupError, PuzzleError: see ``Benchmark``.
        """
        if tier not in self.tiers:
            raise ConfigError(f"alfworld has the tiers {', '.join(self.tiers)}, got {tier!r}")
        require_package()
        root = data_folder()
        games = [read_game(root, board) for board in game_files(root, tier)]
        return [
            Puzzle(game=self.name, tier=tier, puzzle_id=game.digest[:16], board=game.board)
            for game in games
            if game.is_solvable
        ]

    def environment(self, board: str, *, turn_budget: int) -> Environment:
        """Return an episode of the game whose file ``board`` names below the data folder."""
        require_package()
        return HouseholdTask(TextGame(read_game(data_folder(), board)), turn_budget=turn_budget)


class HouseholdTask(BudgetedEpisode):
    """An episode of one game. ``start`` takes seconds for a game that was not played lately."""

    rules = RULES
    is_slow = True

    def __init__(self, game: TextGame, *, turn_budget: int) -> None:
        """Set up an episode that begins with ``start``.

        Args:
            game: closed with this episode.
            turn_budget: turns an episode, >= 1.
        """
        super().__init__(turn_budget=turn_budget)
        self._game = game
        self._scene = Scene(text="The game has not begun.", commands=("look",), is_won=False)

    def state(self) -> str:
        """Return what the game said last."""
        return self._scene.text

    def choices(self) -> tuple[str, ...]:
        """Return the admissible commands, sorted."""
        return self._scene.commands

    def close(self) -> None:
        """See ``Environment``."""
        self._game.close()

    def _begin(self) -> None:
        """Read the game.

        Raises:
            PuzzleError: the game's own logic cannot be read.
            RuntimeError: the episode is closed.
        """
        self._scene = self._game.start()

    def _carry_out(self, answer: str) -> tuple[str, Effect, str]:
        content = last_fenced_block(answer)
        if content is None:
            return "", Effect.INVALID, f"No action found. {_EXPECTED}"
        listed = {_collapsed(command): command for command in self._scene.commands}
        command = listed.get(_collapsed(content))
        if command is None:
            return " ".join(content.split()), Effect.ILLEGAL, f"Not admissible now. {_EXPECTED}"
        scene = self._game.step(command)
        if scene.text == _NOTHING:
            # The room is unchanged, and so is its text.
            return command, Effect.INEFFECTIVE, f"{command}: nothing happens."
        self._scene = scene
        return command, Effect.CHANGED, ""

    def _ending(self) -> tuple[str, float]:
        return (SOLVED, 1.0) if self._scene.is_won else ("", 0.0)

    def _shown(self) -> list[str]:
        return [self._scene.text, f"Admissible commands: {', '.join(self._scene.commands)}"]


def _collapsed(command: str) -> str:
    """Return a command in lower case with single spaces, as commands are compared."""
    return " ".join(command.lower().split())
