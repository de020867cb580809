"""Data sets: the same bytes whoever builds them and however often the build is stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from cast_ray.datasets.build import (
    ROLE,
    SETTINGS,
    SPLIT,
    UNFINISHED,
    BuildProgress,
    BuildSettings,
    available_tiers,
    build_data_set,
)
from cast_ray.datasets.chunks import (
    CHUNK_ATTEMPTS,
    Chunk,
    ChunkWorkers,
    compute_chunk,
    processes,
    this_process,
)
from cast_ray.errors import ConfigError, EnvironmentSetupError, PuzzleError
from cast_ray.games.generators import PuzzleSource, build_puzzles
from cast_ray.games.generators.collection import SplitRule
from cast_ray.games.puzzles import read_puzzle_metadata, read_puzzles
from solver_actors.registry import StartSolver

MINI = BuildSettings(
    source=PuzzleSource(game="sokoban", tier="mini", seed=0),
    rule=SplitRule(num_test=20, num_train=700),  # three chunks
)
KILLED = BuildSettings(
    source=PuzzleSource(game="sokoban", tier="unseen", seed=0),
    rule=SplitRule(num_test=20, num_train=2000),  # five chunks of more than half a second
)
WORKERS_DEATH_S = 30.0


def build(
    out: Path,
    settings: BuildSettings = MINI,
    *,
    workers: Callable[[], AbstractContextManager[ChunkWorkers]] = this_process,
) -> str:
    """Build a set, return what the user was told."""
    console = Console(file=StringIO(), width=400)
    with workers() as ready, BuildProgress(console) as progress:
        build_data_set(settings, out, workers=ready, progress=progress)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def contents(out: Path) -> dict[str, bytes]:
    """Return all files below a directory."""
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    build(out)
    return out


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("mini", "ca8efa74a506f69d"),
        ("id", "645b926632e28d33"),
        ("unseen", "05499c64d3cd0d00"),
        ("mini-unseen", "6014a24e1c2261ae"),
    ],
)
def test_seed_0_gives_the_boards_that_it_always_gave(tier: str, expected: str) -> None:
    # Results of runs are compared across versions: their boards must stay what they are.
    puzzles = build_puzzles(
        game="sokoban", tier=tier, count=100, seed=0, solve=StartSolver("sokoban").cost
    )
    text = "\n\n".join(f"{p.board}\n{p.cost_to_go} {p.seed}" for p in puzzles)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == expected


def test_data_set_is_the_puzzles_of_a_run_in_their_order(built: Path) -> None:
    expected = build_puzzles(
        game="sokoban", tier="mini", count=720, seed=0, solve=StartSolver("sokoban").cost
    )
    tested = read_puzzles(built / "sokoban/mini/test.parquet")
    trained = read_puzzles(built / "sokoban/mini/train.parquet")
    assert [replace(p, measures={}) for p in tested + trained] == expected
    assert all(p.measures.keys() == {"pushes", "dead_fraction"} for p in tested + trained)


def test_two_workers_give_the_bytes_of_one(built: Path, tmp_path: Path) -> None:
    build(tmp_path, workers=lambda: processes(2))
    assert contents(tmp_path) == contents(built)
    assert contents(built).keys() == {"sokoban/mini/test.parquet", "sokoban/mini/train.parquet"}


def test_interrupted_build_goes_on_and_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    asked: list[int] = []

    def interrupted(source: PuzzleSource, index: int) -> Future[Chunk]:
        asked.append(index)
        if asked == [0, 1]:
            raise KeyboardInterrupt
        future: Future[Chunk] = Future()
        future.set_result(compute_chunk(source, index))
        return future

    workers = ChunkWorkers(submit=interrupted, max_pending=1)
    progress = BuildProgress(Console(file=StringIO()))
    with pytest.raises(KeyboardInterrupt):
        build_data_set(MINI, tmp_path, workers=workers, progress=progress)
    unfinished = tmp_path / "sokoban/mini" / UNFINISHED
    assert [p.name for p in unfinished.glob("*.parquet")] == ["chunk-000000.parquet"]

    build_data_set(MINI, tmp_path, workers=workers, progress=progress)
    assert asked == [0, 1, 1, 2]  # chunk 0 was kept
    assert contents(tmp_path) == contents(built)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed")
    build(out, KILLED)
    return contents(out)


@pytest.mark.parametrize("victim", ["a worker", "the build"])
def test_killed_build_leaves_no_process_and_goes_on_to_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, bytes], victim: str
) -> None:
    command = [sys.executable, "-m", "cast_ray.cli", "data", "build", "--workers", "2"]
    command += ["--game", "sokoban", "--tier", "unseen", "--num-test", "20", "--num-train", "2000"]
    unfinished = tmp_path / "sokoban/unseen" / UNFINISHED
    killed = subprocess.Popen([*command, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    while not list(unfinished.glob("chunk-*.parquet")):
        with pytest.raises(subprocess.TimeoutExpired):
            killed.wait(timeout=0.01)  # it is at work
    children = psutil.Process(killed.pid).children()
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(workers) == 2
    os.kill(workers[0].pid if victim == "a worker" else killed.pid, signal.SIGKILL)
    _, errors = killed.communicate(timeout=WORKERS_DEATH_S)

    if victim == "a worker":
        assert killed.returncode == 2
        assert errors.startswith("cast-ray: a worker process died")
    assert not psutil.wait_procs(workers, timeout=WORKERS_DEATH_S)[1]
    assert not (tmp_path / "sokoban/unseen/train.parquet").exists()
    build(tmp_path, KILLED)
    assert contents(tmp_path) == undisturbed


def test_training_options_leave_the_test_puzzles_and_choose_among_the_others(
    built: Path, tmp_path: Path
) -> None:
    rule = SplitRule(num_test=20, num_train=90, cost_range=(4, 6), is_even=True)
    build(tmp_path, replace(MINI, rule=rule, order="by-cost"))
    train = read_puzzles(tmp_path / "sokoban/mini/train.parquet")
    tested = read_puzzles(tmp_path / "sokoban/mini/test.parquet")
    assert [p.cost_to_go for p in train] == [4] * 30 + [5] * 30 + [6] * 30
    assert tested == read_puzzles(built / "sokoban/mini/test.parquet")


def test_fewer_training_puzzles_are_the_beginning_of_more(built: Path, tmp_path: Path) -> None:
    build(tmp_path, replace(MINI, rule=SplitRule(num_test=10, num_train=50)))
    every = read_puzzles(built / "sokoban/mini/test.parquet")
    every += read_puzzles(built / "sokoban/mini/train.parquet")
    assert read_puzzles(tmp_path / "sokoban/mini/test.parquet") == every[:10]
    assert read_puzzles(tmp_path / "sokoban/mini/train.parquet") == every[10:60]


def test_metadata_say_how_a_file_was_made(built: Path) -> None:
    metadata = read_puzzle_metadata(built / "sokoban/mini/test.parquet")
    settings = json.loads(metadata[SETTINGS])
    assert (settings["seed"], settings["tier"], settings["level"]["rows"]) == (0, "mini", 6)
    assert metadata[ROLE] == "test"
    assert metadata[SPLIT].startswith("the first 20 distinct puzzles in order of attempt")
    assert metadata["cast_ray.version"]


def test_finished_files_of_the_same_settings_are_kept(tmp_path: Path) -> None:
    settings = replace(MINI, rule=SplitRule(num_test=5, num_train=5))
    assert re.search(r"\b5 test.*\b5 training", build(tmp_path, settings))
    times = [path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")]
    assert "kept" in build(tmp_path, settings)
    assert [path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")] == times


def test_files_of_other_settings_are_refused_and_stay(tmp_path: Path) -> None:
    settings = replace(MINI, rule=SplitRule(num_test=5, num_train=5))
    build(tmp_path, settings)
    before = contents(tmp_path)
    other = replace(settings, source=replace(MINI.source, seed=3))
    with pytest.raises(PuzzleError, match=r"test.parquet.*seed 0.* 3.*--out"):
        build(tmp_path, other)
    assert contents(tmp_path) == before


def test_file_that_data_build_did_not_make_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "sokoban/mini/train.parquet"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(PuzzleError, match=r"train.parquet.*Parquet"):
        build(tmp_path)
    assert path.read_text() == "mine"


def test_unfinished_build_of_another_seed_is_refused(tmp_path: Path) -> None:
    unfinished = tmp_path / "sokoban/mini" / UNFINISHED
    unfinished.mkdir(parents=True)
    (unfinished / "source.json").write_text('{"seed": 4}')
    with pytest.raises(PuzzleError, match=r"unfinished.*seed 4.*--out"):
        build(tmp_path)


def test_broken_chunk_is_named(tmp_path: Path) -> None:
    settings = replace(MINI, rule=SplitRule(num_test=5, num_train=5))

    def nothing(source: PuzzleSource, index: int) -> Future[Chunk]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_data_set(
            settings,
            tmp_path,
            workers=ChunkWorkers(submit=nothing, max_pending=1),
            progress=BuildProgress(Console(file=StringIO())),
        )
    (tmp_path / "sokoban/mini" / UNFINISHED / "chunk-000000.parquet").write_text("half a ch")
    with pytest.raises(PuzzleError, match=r"chunk-000000.parquet.*delete"):
        build(tmp_path, settings)


def test_chunk_holds_each_puzzle_at_its_attempt() -> None:
    chunk = compute_chunk(MINI.source, 1)
    outcomes = chunk.outcomes()
    assert len(outcomes) == CHUNK_ATTEMPTS
    assert [p for p in outcomes if p is not None] == list(chunk.puzzles)
    assert all(
        outcomes[attempt - CHUNK_ATTEMPTS] is puzzle
        for attempt, puzzle in zip(chunk.attempts, chunk.puzzles, strict=True)
    )


def test_tiers_with_boards_of_the_same_form_keep_their_test_puzzles_from_each_other() -> None:
    source = PuzzleSource(game="sokoban", tier="id", seed=0)
    assert replace(MINI, source=source).siblings == ("mini-unseen",)
    assert MINI.siblings == ()


def test_tier_is_looked_up_before_anything_is_built() -> None:
    assert ("sokoban", "mini-unseen") in available_tiers()
    assert available_tiers("sokoban", "id") == [("sokoban", "id")]
    with pytest.raises(ConfigError, match=r"tier of sokoban.*\bid\b"):
        available_tiers("sokoban", "easy")
    with pytest.raises(ConfigError, match=r"--tier id.*--game"):
        available_tiers(None, "id")


def test_tiers_of_one_form_stay_apart_also_with_other_numbers(tmp_path: Path) -> None:
    def settings(tier: str, num_test: int, num_train: int) -> BuildSettings:
        source = PuzzleSource(game="sokoban", tier=tier, seed=0)
        return BuildSettings(source=source, rule=SplitRule(num_test=num_test, num_train=num_train))

    many_tests = settings("mini-unseen", 400, 1)
    build(tmp_path / "a", many_tests)
    build(tmp_path / "a", settings("id", 20, 1500))
    test = read_puzzles(tmp_path / "a/sokoban/mini-unseen/test.parquet")
    train = read_puzzles(tmp_path / "a/sokoban/id/train.parquet")
    assert not {p.puzzle_id for p in test} & {p.puzzle_id for p in train}

    build(tmp_path / "b", settings("id", 20, 1500))
    with pytest.raises(PuzzleError, match=r"\bid in .*--num-test.*--seed.*--out"):
        build(tmp_path / "b", many_tests)


def test_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentSetupError, match=r"file.*space"):
        build(tmp_path / "file")
