"""ALFWorld's data folder: which games there are, and one game's file."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cast_ray.errors import EnvironmentSetupError, PuzzleError

VARIABLE = "ALFWORLD_DATA"
GAME_FILE = "game.tw-pddl"

_SPLITS = "json_2.1.1"
_TEXTS = ("pddl_domain", "grammar", "pddl_problem")
_HOW = (
    f"set {VARIABLE} to the folder that holds {_SPLITS} and logic; "
    "`alfworld-download` of the alfworld package gets it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GameFile:
    """The contents of a game's file."""

    board: str
    """POSIX path below the data folder."""
    digest: str
    """SHA-256 of the file's bytes, in hexadecimal digits."""
    domain: str
    grammar: str
    problem: str
    is_solvable: bool
    """Whether the benchmark's makers found a way to solve it."""
    walkthrough: tuple[str, ...]
    """Commands that solve it; empty where the file has none."""


def data_folder() -> Path:
    """Return the data folder.

    Raises:
        EnvironmentSetupError: the variable is not set or names no such folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise EnvironmentSetupError(f"ALFWorld's data are not known here: {_HOW}")
    root = Path(named)
    if not (root / _SPLITS).is_dir():
        raise EnvironmentSetupError(f"{root} holds no folder {_SPLITS} of ALFWorld: {_HOW}")
    return root


def game_files(root: Path, split: str) -> list[str]:
    """Return the boards of a split, sorted; as in the package, no movable or sliced things.

    Raises:
        EnvironmentSetupError: the split is not among the data or holds no game.
    """
    folder = root / _SPLITS / split
    boards = sorted(path.relative_to(root).as_posix() for path in folder.rglob(GAME_FILE))
    boards = [board for board in boards if "movable" not in board and "Sliced" not in board]
    if not boards:
        raise EnvironmentSetupError(f"{folder} holds no {GAME_FILE} of ALFWorld: {_HOW}")
    return boards


def read_game(root: Path, board: str) -> GameFile:
    """Read a game.

    Raises:
        PuzzleError: the board leads out of the folder, or names no game or a broken one.
    """
    path = _inside(root, board)
    try:
        content = path.read_bytes()
        record = json.loads(content)
    except (OSError, ValueError) as error:
        raise PuzzleError(f"{path} is no readable game of ALFWorld: {error}") from error
    if not isinstance(record, dict) or not all(isinstance(record.get(key), str) for key in _TEXTS):
        raise PuzzleError(f"{path} must be a JSON object with the texts {', '.join(_TEXTS)}")
    walkthrough = record.get("walkthrough") or []
    if not isinstance(walkthrough, list):
        raise PuzzleError(f"{path}: walkthrough must be a list of commands")
    return GameFile(
        board=board,
        digest=hashlib.sha256(content).hexdigest(),
        domain=record["pddl_domain"],
        grammar=record["grammar"],
        problem=record["pddl_problem"],
        is_solvable=record.get("solvable") is True,
        walkthrough=tuple(str(command) for command in walkthrough),
    )


def _inside(root: Path, board: str) -> Path:
    """Return the path of a board, or raise unless it is, links followed, a game below ``root``."""
    place = PurePosixPath(board)
    is_plain = place.name == GAME_FILE and not place.is_absolute() and ".." not in place.parts
    path = root / place
    try:
        is_inside = path.resolve().is_relative_to(root.resolve())
        is_game = is_plain and is_inside and path.is_file()
    except (OSError, ValueError):  # A name that no file can have: too long, or with a zero byte.
        is_game = False
    if not is_game:
        raise PuzzleError(
            f"{board!r} names no {GAME_FILE} inside {VARIABLE}: "
            f"give its path below that folder, such as {_SPLITS}/valid_seen/…/{GAME_FILE}"
        )
    return path
