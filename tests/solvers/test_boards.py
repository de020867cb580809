"""The three sets of boards of a run: disjoint up to symmetry, and bad files refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cast_ray.config import PuzzleConfig
from cast_ray.errors import PuzzleError
from cast_ray.games import get_game
from cast_ray.jobs.boards import Boards, make_boards
from cast_ray.puzzles import Puzzle, puzzle_id_of, write_puzzles

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

    with pytest.raises(PuzzleError, match=r"row 2: .* sokoban id, and the run is of sokoban mini"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(file)))


def test_file_that_repeats_a_puzzle_in_a_mirror_is_refused_with_both_rows(tmp_path: Path) -> None:
    file = tmp_path / "puzzles.parquet"
    puzzles = boards().train
    again = turned(puzzles[1])
    game = get_game("sokoban")
    assert again.board != puzzles[1].board
    assert puzzle_id_of(game, game.decode(again.board)) == again.puzzle_id
    write_puzzles(file, [*puzzles[:3], again])

    with pytest.raises(PuzzleError, match="row 3: the same puzzle as row 1"):
        make_boards("sokoban", "mini", replace(SIZES, file=str(file)))
