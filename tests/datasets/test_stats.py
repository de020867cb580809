"""What data stats says of puzzle files, and the mirrored board that it must find."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.datasets.stats import certify, read_puzzle_files
from cast_ray.games.puzzles import Puzzle, make_puzzle, write_puzzles
from cast_ray.games.sokoban import Sokoban

GAME = Sokoban()
ROOMS = ("P_XO", "PXO_\n____", "P_X_O", "S_X_", "P__XO", "PX_O_\n#____")
MIRRORED = "_OXP\n____"  # ROOMS[1] from the other side


def puzzle(board: str, *, cost: float = 2, pushes: float = 1) -> Puzzle:
    state = GAME.decode(board)
    return make_puzzle(GAME, state, tier="mini", cost=cost, seed=0, measures={"pushes": pushes})


def files(tmp_path: Path, *, train: Sequence[Puzzle], test: Sequence[Puzzle]) -> Path:
    write_puzzles(tmp_path / "train.parquet", train)
    write_puzzles(tmp_path / "test.parquet", test)
    return tmp_path


def run(*arguments: str | Path) -> tuple[int, str]:
    """Return exit code and output of ``cast-ray data stats``."""
    result = CliRunner().invoke(app, ["data", "stats", *map(str, arguments)])
    return result.exit_code, result.output


def test_disjoint_sets_get_a_certificate(tmp_path: Path) -> None:
    code, output = run(
        files(tmp_path, train=[puzzle(r) for r in ROOMS[:3]], test=[puzzle(r) for r in ROOMS[3:]])
    )
    assert code == 0
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    assert re.search(rf"^disjoint .*{test}.*{train}$", output, re.MULTILINE)


def test_mirrored_board_in_both_sets_is_found_with_its_rows(tmp_path: Path) -> None:
    place = files(
        tmp_path,
        train=[puzzle(room) for room in ROOMS[:3]],
        test=[puzzle(ROOMS[4]), puzzle(ROOMS[5]), puzzle(MIRRORED)],
    )
    code, output = run(place)
    assert code == 1
    assert "NOT DISJOINT" in output
    assert re.search(r"test row 2\b.*training row 1$", output, re.MULTILINE)


def test_certificate_is_judged_by_the_boards_alone(tmp_path: Path) -> None:
    train, test = puzzle(ROOMS[1]), puzzle(MIRRORED)
    assert train.puzzle_id == test.puzzle_id
    (read_train,) = read_puzzle_files([files(tmp_path, train=[train], test=[]) / "train.parquet"])
    write_puzzles(tmp_path / "other.parquet", [test])
    (read_test,) = read_puzzle_files([tmp_path / "other.parquet"])
    # As if the column of ids lied, which the reader of the file would refuse.
    lying = replace(read_test, puzzles=[replace(test, puzzle_id="0" * 16)])
    (certificate,) = certify([read_train, lying])
    assert certificate.overlaps == [(0, 0)]


def test_table_counts_puzzles_costs_and_measures(tmp_path: Path) -> None:
    puzzles = [
        puzzle(ROOMS[0], cost=2, pushes=1),
        puzzle(ROOMS[1], cost=9, pushes=4),
        puzzle(ROOMS[2], cost=3, pushes=1),
        puzzle(ROOMS[3], cost=float("inf")),
        puzzle(MIRRORED, cost=float("nan")),
    ]
    write_puzzles(tmp_path / "some.parquet", puzzles)
    code, output = run(tmp_path / "some.parquet")
    cells = [" ".join(line.replace("│", " ").split()) for line in output.splitlines()]
    assert code == 0
    assert "some.parquet 5 4 2 to 9 pushes 1.6" in cells
    assert {"median 3", "mean 4.7", "1 infinite", "1 unknown"} <= set(cells)
    assert "disjoint" not in output.lower()


def test_chunks_of_an_unfinished_build_are_not_looked_at(tmp_path: Path) -> None:
    files(tmp_path, train=[puzzle(ROOMS[0])], test=[puzzle(ROOMS[1])])
    (tmp_path / "unfinished").mkdir()
    write_puzzles(tmp_path / "unfinished" / "chunk-000000.parquet", [puzzle(ROOMS[0])])
    names = [file.path.name for file in read_puzzle_files([tmp_path])]
    assert names == ["test.parquet", "train.parquet"]


def test_directory_without_files_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["data", "stats", str(tmp_path)])
    assert re.search(rf"Parquet.*{tmp_path}", str(result.exception))


def test_plot_is_written_whole(tmp_path: Path) -> None:
    place = files(tmp_path, train=[puzzle(ROOMS[0]), puzzle(ROOMS[1], cost=float("inf"))], test=[])
    code, _ = run(place, "--plot", tmp_path / "plots" / "costs.png")
    assert code == 0
    assert (tmp_path / "plots" / "costs.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["costs", "costs.docx"])
def test_plot_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    place = files(tmp_path, train=[puzzle(ROOMS[0])], test=[])
    result = CliRunner().invoke(app, ["data", "stats", str(place), "--plot", name])
    assert re.search(r"--plot.*png, svg, pdf", str(result.exception))
