"""Import boards from other sources: each is checked, solved and compared with its given cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cast_ray.datasets.build import BuildProgress
from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.costs import INFINITE, UNKNOWN, status_of
from cast_ray.games.game import Game, Status
from cast_ray.games.generators import PuzzleSource
from cast_ray.games.json_state import request_of
from cast_ray.games.puzzles import Puzzle, make_puzzle, puzzle_id_of, write_puzzles
from cast_ray.games.text import BoardText
from solver_actors.registry import StartSolver

_NUM_LISTED = 20
REPEATED, EXCLUDED = "repeated", "excluded"
OF_ANOTHER_COST = "of a cost that the tier does not have"
_LEFT_OUT = (REPEATED, EXCLUDED, OF_ANOTHER_COST)
"""Faults that are none of a file: the board is sound, but not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A board that cannot be imported."""

    place: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A given cost that differs from the solver's."""

    place: str
    given: float
    ours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import."""

    out: Path
    num_boards: int
    num_compared: int
    """Boards that were solved and had a given cost."""
    num_written: int
    """Puzzles in the file; 0 if it was not written."""
    faults: list[Fault]
    differences: list[Difference]


def import_puzzles(
    file: Path,
    source: PuzzleSource,
    *,
    out: Path,
    skip_broken: bool,
    progress: BuildProgress,
    exclude: Sequence[Path] = (),
    keep_repeats: bool = False,
) -> ImportReport:
    """Write the boards of a file as puzzles of one tier, with costs from our solver.

    Args:
        file: see ``read_board_files``.
        source: game and tier.
        out: the new puzzle file; must not exist.
        skip_broken: skip boards with a fault; otherwise nothing is written if there is a fault.
        progress: shown to the user.
        exclude: files or directories of boards that are left out, up to symmetry.
        keep_repeats: keep boards that occur more than once or cost more than the tier's, as a
            published test set has them.

    Raises:
        PuzzleError: the file has no boards, or ``out`` exists.
    """
    if out.exists():
        raise PuzzleError(f"{out} exists already: delete it or give another --out")
    game = get_game(source.game)
    excluded = {
        board_id: str(path)
        for path in exclude
        for board in read_board_files(path, game, source.level)
        if (board_id := _id_of(game, board))
    }
    importer = PuzzleReader(source, exclude=excluded, keep_repeats=keep_repeats)
    given = list(read_board_files(file, game, source.level))
    progress.begin(file.name, len(given))
    for number, board in enumerate(given, start=1):
        importer.take(board)
        progress.show(number, number)
    is_written = bool(importer.puzzles) and (skip_broken or not importer.faults)
    if is_written:
        metadata = {"cast_ray.imported_from": file.name, "cast_ray.version": version("cast-ray")}
        write_puzzles(out, importer.puzzles, metadata=metadata)
    return ImportReport(
        out=out,
        num_boards=len(given),
        num_compared=importer.num_compared,
        num_written=len(importer.puzzles) if is_written else 0,
        faults=importer.faults,
        differences=importer.differences,
    )


def format_import(report: ImportReport) -> str:
    """Return the report as text."""
    lines = [f"{report.num_boards:,} boards read"]
    if report.faults:
        kinds = Counter(fault.kind for fault in report.faults)
        counts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        lines += [f"{len(report.faults):,} with a fault: {counts}"]
        lines += listed([f"{fault.place}: {fault.reason}" for fault in report.faults])
    if report.num_compared:
        lines += [
            f"{report.num_compared:,} given costs compared with our solver's: "
            f"{len(report.differences):,} differ" + (", ours is used" if report.differences else "")
        ]
        lines += listed(
            f"{d.place}: given {_cost(d.given)}, ours {_cost(d.ours)}" for d in report.differences
        )
    if report.num_written:
        lines += [f"{report.num_written:,} puzzles written to {report.out}"]
    else:
        remedy = "fix them, or skip them with --skip-broken"
        is_hopeless = len(report.faults) == report.num_boards
        lines += [f"nothing was written: {'no board is left' if is_hopeless else remedy}"]
    return "\n".join(lines)


def read_puzzle_set(
    path: Path,
    source: PuzzleSource,
    *,
    limit: int | None = None,
    as_given: bool = False,
    exclude: Mapping[str, str] = MappingProxyType({}),
) -> list[Puzzle]:
    """Return the boards of a file or directory as puzzles of one tier, in their order.

    Args:
        path: see ``read_board_files``.
        source: game and tier.
        limit: most puzzles; no board is solved beyond it.
        as_given: every board counts, repeated ones and those of another size or cost, too. Else
            repeated ones and those of a cost that the tier does not have are left out.
        exclude: where boards are known from, by id; they are left out.

    Raises:
        PuzzleError: there is none; or a board is broken or, unless ``as_given``, of another size.
    """
    reader = PuzzleReader(source, exclude=exclude, as_given=as_given, keep_repeats=as_given)
    for board in read_board_files(path, get_game(source.game), source.level):
        if len(reader.puzzles) == limit:
            break
        reader.take(board)
    faults = [fault for fault in reader.faults if fault.kind not in _LEFT_OUT]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise PuzzleError(f"{path}, {faults[0].place}: {faults[0].reason}{more}")
    if not reader.puzzles:
        raise PuzzleError(f"{path}: no board fits {source.game}:{source.tier}: give other boards")
    return reader.puzzles


def _id_of(game: Game[Any], board: BoardText) -> str:
    """Return the puzzle id of a board; empty if it cannot be read."""
    try:
        return puzzle_id_of(game, game.decode(board.text)) if board.text else ""
    except PuzzleError:
        return ""


class PuzzleReader:
    """Sorts boards into puzzles and faults, and collects differences of costs."""

    def __init__(
        self,
        source: PuzzleSource,
        *,
        exclude: Mapping[str, str] = MappingProxyType({}),
        as_given: bool = False,
        keep_repeats: bool = False,
    ) -> None:
        self._exclude, self._as_given, self._keep_repeats = exclude, as_given, keep_repeats
        self._game: Game[Any] = get_game(source.game)  # Any: each game has its own states
        self._tier = source.level
        self._solver = StartSolver(source.game)
        self._places: dict[str, str] = {}
        self.puzzles: list[Puzzle] = []
        self.faults: list[Fault] = []
        self.differences: list[Difference] = []
        self.num_compared = 0

    def take(self, given: BoardText) -> None:
        """Add a board as a puzzle or as a fault."""
        try:
            state = request_of(self._game, given).state
            if state is None:
                raise PuzzleError("it is what a player sees: give the whole board, mines included")
        except PuzzleError as error:
            return self._refuse(given, "broken", str(error))
        misfit = self._tier.misfit(self._game.dimensions(state))
        if misfit and not self._as_given:
            return self._refuse(given, "of another size", misfit)
        if reason := self._game.start_fault(state):
            return self._refuse(given, "not at its start", reason)
        if self._game.status(state) is not Status.PLAYING:
            return self._refuse(given, "over at the start", "the game is over before it starts")
        puzzle_id = puzzle_id_of(self._game, state)
        if puzzle_id in self._exclude:
            return self._refuse(given, EXCLUDED, f"it is in {self._exclude[puzzle_id]}")
        first = self._places.setdefault(puzzle_id, given.place)
        if first != given.place and not self._keep_repeats:
            return self._refuse(given, REPEATED, f"the same as {first}, up to symmetry")
        return self._solve(given, state)

    def _solve(self, given: BoardText, state: Any) -> None:
        cost = self._solver.cost(state)
        if given.cost is not None:
            self.num_compared += 1
            if _cost(given.cost) != _cost(cost):
                self.differences.append(Difference(place=given.place, given=given.cost, ours=cost))
        if status_of(cost) != UNKNOWN and not self._keep_repeats and not self._tier.has_cost(cost):
            reason = (
                f"its cost is {_cost(cost)}, and {self._tier.name} has costs from "
                f"{self._tier.min_cost} to {self._tier.max_cost}"
            )
            return self._refuse(given, OF_ANOTHER_COST, reason)
        measures = self._solver.measures(state)
        self.puzzles.append(
            make_puzzle(
                self._game,
                state,
                tier=self._tier.name,
                cost=cost,
                seed=0,
                measures=measures,
                title=given.title,
            )
        )
        return None

    def _refuse(self, given: BoardText, kind: str, reason: str) -> None:
        self.faults.append(Fault(place=given.place, kind=kind, reason=reason))


def _cost(cost: float) -> str:
    status = status_of(cost)
    return status if status in (INFINITE, UNKNOWN) else f"{cost:g}"


def listed(found: Iterable[str]) -> list[str]:
    """Return the first entries as indented lines, and how many more there are."""
    entries = list(found)
    lines = [f"  {entry}" for entry in entries[:_NUM_LISTED]]
    if len(entries) > _NUM_LISTED:
        lines += [f"  … and {len(entries) - _NUM_LISTED:,} more"]
    return lines
