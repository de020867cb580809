"""Data sets of generated puzzles: ``<game>/<tier>/test.parquet`` and ``train.parquet``.

Attempts are computed in chunks, by any workers in any order, and merged in order of attempt. The
files have the same bytes whatever the workers and however often the build was interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from cast_ray.datasets.chunks import Chunk, ChunkStore, ChunkWorkers, differences
from cast_ray.errors import ConfigError, PuzzleError, RemoteTimeout
from cast_ray.games import GAMES, get_game
from cast_ray.games.generators import PuzzleSource, build_puzzles
from cast_ray.games.generators.collection import (
    PATIENCE,
    PuzzleCollector,
    SplitRule,
    by_cost,
)
from cast_ray.games.puzzles import Puzzle, read_puzzle_metadata, read_puzzles, write_puzzles
from solver_actors.registry import StartSolver


class BuildProgress(Progress):
    """Shows the progress of a build in a ``with`` block; without a terminal, only its lines."""

    def __init__(self, console: Console | None = None) -> None:
        """Show nothing yet. ``console`` None = standard output."""
        console = console or Console(
            force_terminal=sys.stdout.isatty(), soft_wrap=True, highlight=False, emoji=False
        )
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,} puzzles"),
            TextColumn("{task.fields[attempts]:,} attempts, {task.fields[rate]:,.0f}/s"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def begin(self, name: str, num_wanted: int) -> None:
        """Show a new set in place of the last one."""
        for task in self.task_ids:
            self.remove_task(task)
        self.add_task(name, total=num_wanted, attempts=0, rate=0.0)

    def show(self, num_attempts: int, num_kept: int) -> None:
        """Update the bar of the set."""
        (task,) = self.tasks
        rate = num_attempts / task.elapsed if task.elapsed else 0.0
        self.update(task.id, completed=num_kept, attempts=num_attempts, rate=rate)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(Text(text))


SETTINGS, SPLIT, VERSION, ROLE = (
    "cast_ray.settings",
    "cast_ray.split",
    "cast_ray.version",
    "cast_ray.role",
)
"""Keys of a file's metadata; the role is ``train`` or ``test``."""
CHUNK_TIMEOUT_S = 600.0
UNFINISHED = "unfinished"
"""Directory, next to the files, with the chunks of a build in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """Everything that determines the bytes of both files of one tier."""

    source: PuzzleSource
    rule: SplitRule
    order: Literal["as-drawn", "by-cost"] = "as-drawn"
    """Of the training file."""

    @property
    def name(self) -> str:
        """Return ``game:tier``."""
        return f"{self.source.game}:{self.source.tier}"

    @property
    def siblings(self) -> tuple[str, ...]:
        """Return the game's other tiers with the same board size: a puzzle can be in both."""
        level = self.source.level
        return tuple(
            other.name
            for other in get_game(self.source.game).tiers.values()
            if other.name != level.name
            and (other.rows, other.cols, other.num_pieces)
            == (level.rows, level.cols, level.num_pieces)
        )

    def to_json(self) -> str:
        """Return all settings as one line; equal settings give equal lines."""
        document = {
            **asdict(self.source),
            **asdict(self.rule),
            "order": self.order,
            "level": asdict(self.source.level),
            "patience": PATIENCE,
            "train_without_test_of": self.siblings,
        }
        return json.dumps(document, sort_keys=True)


def available_tiers(game: str | None = None, tier: str | None = None) -> list[tuple[str, str]]:
    """Return all pairs of game and tier, those of one game, or one pair.

    Raises:
        ConfigError: there is no such game or tier, or a tier is given without its game.
    """
    if tier is None:
        games = list(GAMES) if game is None else [game]
        return [(name, each) for name in games for each in get_game(name).tiers]
    if game is None:
        raise ConfigError(f"--tier {tier} needs --game")
    return [(game, PuzzleSource(game=game, tier=tier, seed=0).level.name)]


def build_data_set(
    settings: BuildSettings, out: Path, *, workers: ChunkWorkers, progress: BuildProgress
) -> None:
    """Write both files of a tier below ``out``, unless they are there already.

    Raises:
        PuzzleError: there are files with other settings, or too few puzzles were found.
        RemoteTimeout: no worker finished a chunk in time.
    """
    directory = out / settings.source.game / settings.source.tier
    test_file, train_file = directory / "test.parquet", directory / "train.parquet"
    if all([_is_there(test_file, settings), _is_there(train_file, settings)]):
        progress.say(f"{settings.name}: kept the files in {directory}, which have these settings")
        return
    store = ChunkStore(directory / UNFINISHED, settings.source)
    progress.begin(settings.name, settings.rule.num_wanted)
    reserved = _sibling_tests(settings) | _sibling_ids(settings, out, "test.parquet")
    collector = PuzzleCollector(settings.rule, reserved=reserved)
    for chunk in _chunks(settings.source, store, workers):
        for outcome in chunk.outcomes():
            if not collector.is_finished:
                collector.offer(outcome)
        progress.show(collector.num_attempts, collector.num_kept)
        if collector.is_finished:
            break
    split = collector.split()
    _refuse_trained_tests(settings, out, split.test)
    train = by_cost(split.train) if settings.order == "by-cost" else split.train
    facts = {SETTINGS: settings.to_json(), SPLIT: split.statement, VERSION: version("cast-ray")}
    for path, role, puzzles in ((test_file, "test", split.test), (train_file, "train", train)):
        write_puzzles(path, puzzles, metadata=facts | {ROLE: role})
    store.remove()
    note = split.statement if split.is_short else f"{collector.num_attempts:,} attempts"
    progress.say(
        f"{settings.name}: {len(split.test):,} test and {len(train):,} training puzzles in "
        f"{directory}; {note}"
    )


def _chunks(source: PuzzleSource, store: ChunkStore, workers: ChunkWorkers) -> Iterator[Chunk]:
    """Yield chunk after chunk for ever; each is stored before it is yielded."""
    pending: dict[Future[Chunk], int] = {}
    submitted = index = 0
    try:
        while True:
            while len(pending) < workers.max_pending and submitted < index + workers.max_pending:
                if submitted not in store:
                    pending[workers.submit(source, submitted)] = submitted
                submitted += 1
            while index in pending.values():
                _store_finished(pending, store)
            yield store.read(index)
            index += 1
    finally:
        for future in pending:
            future.cancel()


def _store_finished(pending: dict[Future[Chunk], int], store: ChunkStore) -> None:
    """Wait until a chunk is finished, and store all that are, in any order."""
    finished, _ = wait(pending, timeout=CHUNK_TIMEOUT_S, return_when=FIRST_COMPLETED)
    if not finished:
        raise RemoteTimeout(
            f"no worker finished a chunk of boards within {CHUNK_TIMEOUT_S:.0f} s: check the "
            "workers, then run the same command again, which continues where this one stopped"
        )
    for future in finished:
        store.write(future.result())
        del pending[future]


def _sibling_tests(settings: BuildSettings) -> set[str]:
    """Return the ids of the test puzzles of the sibling tiers, made from the same seed."""
    source = settings.source
    return {
        puzzle.puzzle_id
        for tier in settings.siblings
        for puzzle in build_puzzles(
            game=source.game,
            tier=tier,
            count=settings.rule.num_test,
            seed=source.seed,
            solve=StartSolver(source.game).solve,
            at_least=0,
        )
    }


def _sibling_ids(settings: BuildSettings, out: Path, name: str) -> set[str]:
    """Return the ids in the files of that name of the sibling tiers below ``out``."""
    files = [out / settings.source.game / tier / name for tier in settings.siblings]
    return {puzzle.puzzle_id for file in files if file.exists() for puzzle in read_puzzles(file)}


def _refuse_trained_tests(settings: BuildSettings, out: Path, test: list[Puzzle]) -> None:
    """Raise PuzzleError if a test puzzle is in a sibling's training file below ``out``."""
    trained = _sibling_ids(settings, out, "train.parquet")
    num_shared = sum(puzzle.puzzle_id in trained for puzzle in test)
    if num_shared:
        raise PuzzleError(
            f"{settings.name}: {num_shared} of the test puzzles are in a training file of "
            f"{' or '.join(settings.siblings)} in {out}, which was built with another --num-test "
            "or --seed: give the same, or another --out"
        )


def _is_there(path: Path, settings: BuildSettings) -> bool:
    """Return whether there is a file with these settings.

    Raises:
        PuzzleError: there is a file with other settings.
    """
    if not path.exists():
        return False
    found = read_puzzle_metadata(path).get(SETTINGS)
    if found is None:
        raise PuzzleError(f"{path} was not made by data build: delete it or give another --out")
    if found != settings.to_json():
        raise PuzzleError(
            f"{path} was made with other settings ({differences(found, settings.to_json())}): "
            "delete it or give another --out"
        )
    return True
