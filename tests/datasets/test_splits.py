"""The three sets of boards of a run: disjoint up to symmetry, and bad files refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cast_ray.config.train import PuzzleConfig, TrainConfig
from cast_ray.datasets.build import BuildProgress, BuildSettings, build_data_set
from cast_ray.datasets.chunks import this_process
from cast_ray.datasets.splits import Boards, make_boards, write_boards
from cast_ray.errors import PuzzleError
from cast_ray.evaluation.tasks import GameTier, evaluation_boards, seen_in_training
from cast_ray.games import get_game
from cast_ray.games.generators import PuzzleSource
from cast_ray.games.generators.collection import SplitRule
from cast_ray.games.puzzles import Puzzle, puzzle_id_of, read_puzzles, write_puzzles
from cast_ray.runs.run_directory import RunDirectory

SIZES = PuzzleConfig(num_train=20, num_validation=5, num_held_out=10)


@cache
def boards() -> Boards:
    return make_boards("sokoban", "mini", SIZES)


def ids(puzzles: list[Puzzle]) -> set[str]:
    return {puzzle.puzzle_id for puzzle in puzzles}


def turned(puzzle: Puzzle) -> Puzzle:
    """The same room seen in a mirror."""
    board = "\n".join(line[::-1] for line in puzzle.board.split("\n"))
    return replace(puzzle, board=board)


def test_no_puzzle_is_in_two_sets_or_twice_in_one() -> None:
    made = boards()
    sets = [ids(made.train), ids(made.validation), ids(made.held_out)]
    assert [len(each) for each in sets] == [20, 5, 10]
    assert len(set.union(*sets)) == 35


def test_puzzles_of_a_file_are_trained_on_and_not_held_out(tmp_path: Path) -> None:
    file = tmp_path / "puzzles.parquet"
    given = boards().held_out  # what the generator would hold out without the file
    write_puzzles(file, given)

    made = make_boards("sokoban", "mini", replace(SIZES, file=str(file)))

    assert made.train == given
    assert not ids(made.train) & (ids(made.held_out) | ids(made.validation))


def test_file_of_another_tier_is_refused_with_row_and_both_tiers(tmp_path: Path) -> None:
    file = tmp_path / "puzzles.parquet"
    puzzles = boards().train
    write_puzzles(file, [*puzzles[:2], replace(puzzles[2], tier="id")])

    with pytest.raises(PuzzleError, match=r"row 2.*sokoban id.*sokoban mini.*puzzles.file"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(file)))


def test_file_that_repeats_a_puzzle_in_a_mirror_is_refused_with_both_rows(tmp_path: Path) -> None:
    file = tmp_path / "puzzles.parquet"
    puzzles = boards().train
    again = turned(puzzles[1])
    game = get_game("sokoban")
    assert again.board != puzzles[1].board
    assert puzzle_id_of(game, game.decode(again.board)) == again.puzzle_id
    write_puzzles(file, [*puzzles[:3], again])

    with pytest.raises(PuzzleError, match=r"row 3.*row 1"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(file)))


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    settings = BuildSettings(
        source=PuzzleSource(game="sokoban", tier="mini", seed=0),
        rule=SplitRule(num_test=10, num_train=25),
    )
    with this_process() as workers, BuildProgress() as progress:
        build_data_set(settings, out, workers=workers, progress=progress)
    return out / "sokoban/mini"


def test_data_set_holds_out_its_test_puzzles_and_validates_on_spaced_training_puzzles(
    data_set: Path,
) -> None:
    made = make_boards("sokoban", "mini", replace(SIZES, file=str(data_set), num_held_out=8))
    train = read_puzzles(data_set / "train.parquet")
    assert made.held_out == read_puzzles(data_set / "test.parquet")[:8]
    assert made.validation == train[::5]
    assert made.train == [puzzle for row, puzzle in enumerate(train) if row % 5]


def test_data_set_that_is_too_small_is_refused_with_the_key_to_change(data_set: Path) -> None:
    with pytest.raises(PuzzleError, match=r"test.parquet .*num_held_out=11.* 10\b"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(data_set), num_held_out=11))
    with pytest.raises(PuzzleError, match=r"train.parquet .*num_validation=25.* 24\b"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(data_set), num_validation=25))


def test_data_set_whose_sets_share_a_mirrored_puzzle_is_refused(
    tmp_path: Path, data_set: Path
) -> None:
    test = read_puzzles(data_set / "test.parquet")
    train = read_puzzles(data_set / "train.parquet")
    write_puzzles(tmp_path / "test.parquet", test)
    write_puzzles(tmp_path / "train.parquet", [*train[:3], turned(test[4])])
    with pytest.raises(PuzzleError, match=r"row 3.*train.parquet.*row 4.*test.parquet"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(tmp_path)))


def test_file_without_puzzles_is_refused_and_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "puzzles.parquet"
    write_puzzles(file, [])
    with pytest.raises(PuzzleError, match=r"puzzles\.parquet.*at least one"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(file)))


def test_evaluation_never_plays_what_a_run_was_trained_on(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig(puzzles=SIZES))
    write_boards(boards(), run.puzzles)
    config = TrainConfig(puzzles=SIZES)
    seen = seen_in_training(run.path)
    own = evaluation_boards(GameTier(game="sokoban", tier="mini"), config, limit=30, seen=seen)
    assert own[:10] == boards().held_out
    assert len(own) == 30
    assert not ids(own) & (ids(boards().train) | ids(boards().validation))
    assert seen_in_training(tmp_path) == set()  # a mere model directory


def test_evaluation_needs_no_more_boards_than_it_plays() -> None:
    """Of so small a tier a run's own boards leave little more than the held-out ones."""
    which = GameTier(game="minesweeper", tier="mini")
    config = TrainConfig(game="minesweeper", puzzles=replace(SIZES, num_train=10_000))
    all_boards = make_boards("minesweeper", "mini", config.puzzles)
    seen = ids(all_boards.train) | ids(all_boards.validation)
    left = len(all_boards.held_out)
    assert evaluation_boards(which, config, limit=left, seen=seen) == all_boards.held_out
    with pytest.raises(PuzzleError, match=rf"\b{left}\b.*\b{left + 1}\b"):
        evaluation_boards(which, config, limit=left + 1, seen=seen)


def as_levels(puzzles: list[Puzzle], *, usual: bool = True) -> str:
    """Return puzzles as a collection, in the usual symbols or ours."""
    symbols = str.maketrans("PXO_", "@$. ") if usual else {}
    return "".join(f"; {n}\n{p.board.translate(symbols)}\n\n" for n, p in enumerate(puzzles))


def test_a_folder_of_levels_holds_out_what_lies_below_test_and_valid(tmp_path: Path) -> None:
    made = boards()
    for part, puzzles in (
        ("test", made.held_out),
        ("valid", [*made.held_out[:2], *made.validation]),
        ("train", [*made.validation[:1], *made.held_out[:1], *made.train]),
    ):
        (tmp_path / part).mkdir()
        (tmp_path / part / "000.txt").write_text(as_levels(puzzles))
    found = make_boards("sokoban", "mini", replace(SIZES, file=str(tmp_path)))
    assert [p.board for p in found.held_out] == [p.board for p in made.held_out]
    assert [p.board for p in found.validation] == [p.board for p in made.validation]
    assert [p.board for p in found.train] == [p.board for p in made.train]
    assert [p.title for p in found.train[:2]] == ["2", "3"]
    assert [p.cost_to_go for p in found.train] == [p.cost_to_go for p in made.train]


def test_one_collection_gives_all_three_sets(tmp_path: Path) -> None:
    made = boards()
    everything = [*made.held_out, *made.validation, *made.train]
    (tmp_path / "all.xsb").write_text(as_levels(everything))
    found = make_boards("sokoban", "mini", replace(SIZES, file=str(tmp_path)))
    ids = [p.puzzle_id for p in (*found.held_out, *found.validation, *found.train)]
    assert ids == [p.puzzle_id for p in everything]


def test_a_file_of_levels_trains_and_leaves_out_what_the_tier_has_not(tmp_path: Path) -> None:
    made = boards()
    far = make_boards("sokoban", "mini-unseen", replace(SIZES, num_train=1)).train[0]
    repeated = turned(made.train[3])
    (tmp_path / "a.xsb").write_text(as_levels([*made.train, repeated]))
    found = make_boards("sokoban", "mini", replace(SIZES, file=str(tmp_path / "a.xsb")))
    assert [p.board for p in found.train] == [p.board for p in made.train]
    (tmp_path / "a.xsb").write_text(as_levels([*made.train, far]))
    with pytest.raises(PuzzleError, match=r"a.xsb, level 21, line \d+: 6 x 6 .* 2 pieces"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(tmp_path / "a.xsb")))


def test_given_test_sets_are_played_as_they_are_and_never_trained_on(tmp_path: Path) -> None:
    made = boards()
    far = make_boards("sokoban", "mini-unseen", replace(SIZES, num_train=1)).train[0]
    held_out = [far, made.train[0], turned(made.train[0]), made.train[1]]
    (tmp_path / "test.xsb").write_text(as_levels(held_out))
    config = replace(SIZES, held_out_file=str(tmp_path / "test.xsb"))
    found = make_boards("sokoban", "mini", config)
    assert [p.board for p in found.held_out] == [p.board for p in held_out]
    assert {p.tier for p in found.held_out} == {"mini"}
    assert not ids(found.held_out) & (ids(found.train) | ids(found.validation))
    assert (len(found.validation), len(found.train)) == (5, 20)
    write_puzzles(tmp_path / "own.parquet", made.train)
    own = make_boards("sokoban", "mini", replace(config, file=str(tmp_path / "own.parquet")))
    assert own.train == made.train[2:]
