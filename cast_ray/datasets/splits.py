"""The puzzles of a run: training, validation and held-out sets, disjoint up to symmetry."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from cast_ray.config.train import PuzzleConfig
from cast_ray.datasets.importing import read_puzzle_set
from cast_ray.envs.registry import find_benchmark, is_benchmark
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.functions import short_name
from cast_ray.games.generators import PuzzleSource, build_puzzles
from cast_ray.games.puzzles import Puzzle, is_puzzle_file, read_puzzles, write_puzzles
from cast_ray.runs.remote_directories import localized
from cast_ray.seeds import derive_seed
from solver_actors.registry import StartSolver

HELD_OUT = "held_out.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boards:
    """Three sets of puzzles, no two puzzles equal up to symmetry."""

    train: list[Puzzle]
    validation: list[Puzzle]
    held_out: list[Puzzle]


def make_boards(
    game: str, tier: str, config: PuzzleConfig, *, exclude: Set[str] = frozenset()
) -> Boards:
    """Read the sets that files are given for, and generate the others.

    If there are fewer distinct puzzles than wanted, the training set is smaller.

    Args:
        game: name of the game.
        tier: name of its tier.
        config: how many, and from where.
        exclude: ids of puzzles that must not be generated.

    Raises:
        PuzzleError: a file is damaged, of another game or tier, or repeats a puzzle; or there are
            too few distinct puzzles.
    """
    if is_benchmark(game):
        return _tasks(game, tier, config)
    source = PuzzleSource(game=game, tier=tier, seed=config.seed)
    file = localized(config.file) if config.file else None
    test = {
        name: read_puzzle_set(localized(path), source, as_given=True)
        for name, path in (
            ("held_out", config.held_out_file),
            ("validation", config.validation_file),
        )
        if path
    }
    known = {puzzle.puzzle_id: name for name, puzzles in test.items() for puzzle in puzzles}
    if file and (file / "train.parquet").is_file():
        found = _boards_of_data_set(game, tier, replace(config, file=str(file)))
        train = [puzzle for puzzle in found.train if puzzle.puzzle_id not in known]
        return replace(found, train=train, **test)
    if file and file.is_dir():
        return _boards_of_folder(file, source, config, test, known)
    given = _training_puzzles(file, source, known) if file else []
    num_held_out = 0 if "held_out" in test else config.num_held_out
    num_test = num_held_out + (0 if "validation" in test else config.num_validation)
    puzzles: list[Puzzle] = []
    if num_test or not given:
        puzzles = build_puzzles(
            game=game,
            tier=tier,
            count=num_test + (0 if given else config.num_train),
            seed=config.seed,
            solve=StartSolver(game).solve,
            exclude=exclude | known.keys() | {puzzle.puzzle_id for puzzle in given},
            at_least=num_test + (0 if given else 1),
        )
    return Boards(
        held_out=test.get("held_out", puzzles[:num_held_out]),
        validation=test.get("validation", puzzles[num_held_out:num_test]),
        train=given or puzzles[num_test:],
    )


def _tasks(name: str, tier: str, config: PuzzleConfig) -> Boards:
    """Return three sets of a benchmark's tasks, or of an environment's, drawn by the seed."""
    if any((config.file, config.validation_file, config.held_out_file)):
        raise ConfigError(
            f"puzzles.file has boards of a game; {short_name(name)} has its own tasks"
        )
    tasks = find_benchmark(name).puzzles(tier)
    num_held_out, num_test = config.num_held_out, config.num_held_out + config.num_validation
    if len(tasks) <= num_test:
        raise ConfigError(
            f"{short_name(name)} has {len(tasks)} tasks, and puzzles.num_held_out="
            f"{config.num_held_out} with puzzles.num_validation={config.num_validation} leave none "
            "to train on: lower them"
        )
    rng = np.random.default_rng(derive_seed(config.seed, "tasks"))
    order = [tasks[i] for i in rng.permutation(len(tasks))]
    return Boards(
        held_out=order[:num_held_out],
        validation=order[num_held_out:num_test],
        train=order[num_test : num_test + config.num_train],
    )


def _boards_of_folder(
    folder: Path,
    source: PuzzleSource,
    config: PuzzleConfig,
    test: dict[str, list[Puzzle]],
    known: dict[str, str],
) -> Boards:
    """Return sets from the files of a folder; those below ``test`` and ``valid`` never train."""
    sets, known = dict(test), dict(known)
    for name, part, limit in (
        ("held_out", "test", config.num_held_out),
        ("validation", "valid", config.num_validation),
        ("train", "train", config.num_train),
    ):
        if name not in sets:
            place = folder / part if (folder / part).is_dir() else folder
            sets[name] = read_puzzle_set(place, source, limit=limit, exclude=known)
        known |= {puzzle.puzzle_id: name for puzzle in sets[name]}
    return Boards(**sets)


def _training_puzzles(file: Path, source: PuzzleSource, known: dict[str, str]) -> list[Puzzle]:
    """Return the training puzzles of a file of ours, or of boards in another form."""
    if is_puzzle_file(file):
        puzzles = _given_puzzles(file, game=source.game, tier=source.tier)
        return [puzzle for puzzle in puzzles if puzzle.puzzle_id not in known]
    return read_puzzle_set(file, source, exclude=known)


def _boards_of_data_set(game: str, tier: str, config: PuzzleConfig) -> Boards:
    """Return the sets of a directory that ``cast-ray data build`` made.

    Its test puzzles are held out. Validation puzzles are taken from the training file at equal
    distances, because a small tier may have no puzzles beyond the data set.
    """
    directory = Path(config.file)
    test = _given_puzzles(directory / "test.parquet", game=game, tier=tier)
    train = _given_puzzles(directory / "train.parquet", game=game, tier=tier)
    in_test = {puzzle.puzzle_id: row for row, puzzle in enumerate(test)}
    for row, puzzle in enumerate(train):
        if puzzle.puzzle_id in in_test:
            raise PuzzleError(
                f"{directory}: row {row} of train.parquet is row {in_test[puzzle.puzzle_id]} of "
                "test.parquet, up to symmetry; delete it from one of them"
            )
    for key, wanted, path, most in (
        ("num_held_out", config.num_held_out, "test.parquet", len(test)),
        ("num_validation", config.num_validation, "train.parquet", len(train) - 1),
    ):
        if wanted > most:
            raise PuzzleError(
                f"{directory / path} is too small for puzzles.{key}={wanted}: set it to {most} or "
                "less"
            )
    validation = {i * len(train) // config.num_validation for i in range(config.num_validation)}
    return Boards(
        held_out=test[: config.num_held_out],
        validation=[puzzle for row, puzzle in enumerate(train) if row in validation],
        train=[puzzle for row, puzzle in enumerate(train) if row not in validation],
    )


def _given_puzzles(file: Path, *, game: str, tier: str) -> list[Puzzle]:
    """Return the puzzles of a file; all must be of this game and tier, without repetitions."""
    puzzles = read_puzzles(file)
    if not puzzles:
        raise PuzzleError(f"{file} has no puzzle: give a file with at least one")
    rows: dict[str, int] = {}
    for row, puzzle in enumerate(puzzles):
        if (puzzle.game, puzzle.tier) != (game, tier):
            raise PuzzleError(
                f"{file}, row {row}: a puzzle of {puzzle.game} {puzzle.tier}, but the run uses "
                f"{game} {tier}; set game and tier to match puzzles.file"
            )
        first = rows.setdefault(puzzle.puzzle_id, row)
        if first != row:
            raise PuzzleError(
                f"{file}, row {row}: the same puzzle as row {first}, up to symmetry; keep one"
            )
    return puzzles


def write_boards(boards: Boards, directory: Path) -> None:
    """Store the three sets in the run directory, ``HELD_OUT`` last."""
    for part in fields(Boards):
        write_puzzles(directory / f"{part.name}.parquet", getattr(boards, part.name))


def read_boards(directory: Path) -> Boards:
    """Return what ``write_boards`` stored."""
    names = [part.name for part in fields(Boards)]
    files = {name: directory / f"{name}.parquet" for name in names}
    return Boards(
        **{name: read_puzzles(file, is_task=is_benchmark) for name, file in files.items()}
    )


class PuzzleSampler:
    """Draws each step's puzzles in seeded order, every puzzle once before any repeats."""

    def __init__(self, puzzles: list[Puzzle], *, per_step: int, seed: int) -> None:
        if not puzzles:
            raise PuzzleError("there is no training puzzle; raise puzzles.num_train")
        self._puzzles = puzzles
        self._per_step = per_step
        self._seed = seed

    def draw(self, step: int, further: int = 0) -> list[Puzzle]:
        """Return the puzzles of a step; the same arguments give the same puzzles.

        Args:
            step: of the run, from 1.
            further: 0 = the step's own puzzles; n = the n-th additional draw (dynamic sampling).
                Additional draws use a separate order for each step, so that no step affects
                another, and repeat the step's own puzzles only after all others.
        """
        first = (step - 1) * self._per_step
        positions = [divmod(first + i, len(self._puzzles)) for i in range(self._per_step)]
        orders = {epoch: self._order(epoch) for epoch in {epoch for epoch, _ in positions}}
        own = [int(orders[epoch][index]) for epoch, index in positions]
        if further == 0:
            return [self._puzzles[index] for index in own]
        rng = np.random.default_rng(derive_seed(self._seed, "further draws", step))
        shuffled = rng.permutation(len(self._puzzles))
        is_own = np.isin(shuffled, own)
        order = np.concatenate([shuffled[~is_own], shuffled[is_own]])
        start = (further - 1) * self._per_step
        return [self._puzzles[order[(start + i) % len(order)]] for i in range(self._per_step)]

    def _order(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng(derive_seed(self._seed, "epoch", epoch))
        return rng.permutation(len(self._puzzles))
