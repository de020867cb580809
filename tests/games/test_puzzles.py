"""Puzzle files and seeded generation. The solver here is a stand-in: N is not what is tested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.errors import ConfigError, EnvironmentSetupError, PuzzleError
from cast_ray.games.game import Tier
from cast_ray.games.generators import build_puzzles
from cast_ray.games.generators.sokoban import generate_sokoban
from cast_ray.games.puzzles import (
    PUZZLE_SCHEMA,
    Puzzle,
    puzzle_id_of,
    read_puzzle_metadata,
    read_puzzles,
    write_puzzles,
)
from cast_ray.games.sokoban import Sokoban, SokobanState
from tests.solver_actors.brute_force_sokoban import brute_force
from tests.support.rooms import symmetric_forms

GAME = Sokoban()


def stand_in_cost(state: SokobanState) -> float:
    """Stand in for N: any number that is equal for symmetric rooms."""
    return float(state.layout.walls.count(0) % 4)


def mini_puzzles(count: int, **settings: object) -> list[Puzzle]:
    arguments = {"game": "sokoban", "tier": "mini", "seed": 0, "solve": stand_in_cost}
    return build_puzzles(count=count, **(arguments | settings))  # type: ignore[arg-type]


def puzzle(board: str = "PXO") -> Puzzle:
    return Puzzle(
        game="sokoban",
        tier="mini",
        puzzle_id=puzzle_id_of(GAME, GAME.decode(board)),
        board=board,
        cost_to_go=1,
        cost_status="exact",
        seed=7,
    )


def test_puzzle_id_is_equal_for_symmetric_rooms_only() -> None:
    room = "P__O\n_X__\n#___"
    ids = {puzzle_id_of(GAME, GAME.decode(form)) for form in symmetric_forms(room)}
    assert len(ids) == 1
    assert puzzle_id_of(GAME, GAME.decode("_P_O\n_X__\n#___")) not in ids
    assert all(len(puzzle_id) == 16 for puzzle_id in ids)


def test_puzzle_id_of_a_known_board_stays_what_it_is() -> None:
    # Splits and run directories hold these: a change would break them all.
    assert puzzle().puzzle_id == "75c119e2725ee1bb"


def test_file_gives_back_what_was_written(tmp_path: Path) -> None:
    puzzles = mini_puzzles(20)
    write_puzzles(tmp_path / "mini.parquet", puzzles)
    assert read_puzzles(tmp_path / "mini.parquet") == puzzles
    assert pq.read_schema(tmp_path / "mini.parquet").equals(PUZZLE_SCHEMA)


def test_file_without_puzzles_is_read_as_none(tmp_path: Path) -> None:
    write_puzzles(tmp_path / "none.parquet", [])
    assert read_puzzles(tmp_path / "none.parquet") == []


def test_file_keeps_every_status_the_measures_and_its_own_metadata(tmp_path: Path) -> None:
    path = tmp_path / "kinds.parquet"
    puzzles = [
        replace(puzzle(), measures={"pushes": 1.0, "boxes": 0.5}),
        replace(puzzle(), cost_to_go=None, cost_status="infinite"),
        replace(puzzle(), cost_to_go=None, cost_status="unknown"),
    ]
    write_puzzles(path, puzzles, metadata={"seed": "3"})
    assert read_puzzles(path) == puzzles
    np.testing.assert_equal([each.cost for each in puzzles], [1.0, np.inf, np.nan])
    assert read_puzzle_metadata(path) == {"seed": "3"}


def test_equal_puzzles_give_equal_bytes_whatever_the_order_of_their_measures(
    tmp_path: Path,
) -> None:
    measures = {"pushes": 1.0, "boxes": 0.5}
    backwards = dict(reversed(measures.items()))
    write_puzzles(tmp_path / "a.parquet", [replace(puzzle(), measures=measures)])
    write_puzzles(tmp_path / "b.parquet", [replace(puzzle(), measures=backwards)])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_reader_of_the_old_file_is_not_disturbed_by_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "mini.parquet"
    write_puzzles(path, [puzzle()])
    before = path.read_bytes()
    with path.open("rb") as reader:
        write_puzzles(path, mini_puzzles(20))
        assert reader.read() == before
    assert len(read_puzzles(path)) == 20


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "folder.parquet"
    path.mkdir()
    with pytest.raises(EnvironmentSetupError, match="Is a directory"):
        write_puzzles(path, [puzzle()])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (replace(puzzle(), board="PX?"), "'\\?'.*row 0, column 2"),
        (replace(puzzle(), game="chess"), "game .*sokoban.*'chess'"),
        (replace(puzzle(), tier="easy"), "tier .*id.*'easy'"),
        (replace(puzzle(), board="P_XO"), "puzzle_id .*'[0-9a-f]*'.*'[0-9a-f]*'"),
        (replace(puzzle(), cost_to_go=-1), "cost_to_go .*-1"),
        (replace(puzzle(), cost_status="dead"), "cost_status .*exact.*'dead'"),
        (replace(puzzle(), cost_to_go=None), "cost_to_go .*None.*cost_status .*exact"),
        (replace(puzzle(), cost_status="infinite"), "cost_to_go .*1.*cost_status .*infinite"),
        (replace(puzzle(), measures={"pushes": np.nan}), "pushes"),
    ],
)
def test_broken_row_is_refused_with_file_and_row(
    tmp_path: Path, broken: Puzzle, reason: str
) -> None:
    path = tmp_path / "broken.parquet"
    write_puzzles(path, [puzzle(), broken, puzzle()])
    with pytest.raises(PuzzleError, match=rf"broken\.parquet.*row 1.*{reason}"):
        read_puzzles(path)


def test_null_is_refused_with_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "null.parquet"
    nullable = pa.schema([field.with_nullable(True) for field in PUZZLE_SCHEMA])
    row = {"game": "sokoban", "tier": "mini", "puzzle_id": "0", "cost_to_go": 1}
    row |= {"cost_status": "exact", "seed": 0, "measures": []}
    pq.write_table(pa.Table.from_pylist([row], schema=nullable), path)
    with pytest.raises(PuzzleError, match=r"null\.parquet.*row 0.*board.*null"):
        read_puzzles(path)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"board": ["PXO"], "cost_to_go": [1]}), path)
    with pytest.raises(PuzzleError, match=r"other\.parquet.*columns.*game"):
        read_puzzles(path)


def test_missing_file_and_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PuzzleError, match=r"missing\.parquet"):
        read_puzzles(tmp_path / "missing.parquet")
    (tmp_path / "foreign.parquet").write_text("no Parquet")
    with pytest.raises(PuzzleError, match=r"foreign\.parquet.*Parquet"):
        read_puzzles(tmp_path / "foreign.parquet")


def test_puzzles_are_distinct_up_to_symmetry_and_within_the_costs_of_the_tier() -> None:
    puzzles = mini_puzzles(300)
    assert len({puzzle.puzzle_id for puzzle in puzzles}) == 300
    assert {puzzle.cost_to_go for puzzle in puzzles} == {2, 3}  # the stand-in gives 0 to 3
    for made in puzzles:
        state = GAME.decode(made.board)
        assert made.puzzle_id == puzzle_id_of(GAME, state)
        assert made.cost_to_go == stand_in_cost(state)


def test_seed_kept_with_a_puzzle_makes_its_board_again() -> None:
    for made in mini_puzzles(10):
        state = generate_sokoban(GAME.tiers["mini"], np.random.default_rng(made.seed))
        assert GAME.encode(state) == made.board


def test_smaller_count_gives_the_beginning_and_another_seed_other_puzzles() -> None:
    assert mini_puzzles(10) == mini_puzzles(30)[:10]
    assert {p.puzzle_id for p in mini_puzzles(30)}.isdisjoint(
        p.puzzle_id for p in mini_puzzles(5, seed=1)
    )


def test_excluded_puzzles_are_left_out() -> None:
    first = mini_puzzles(30)
    rest = mini_puzzles(20, exclude={p.puzzle_id for p in first[:10]})
    assert rest == first[10:]


def test_states_of_infinite_or_unknown_cost_are_left_out() -> None:
    costs = iter([np.inf, np.nan, 2.0, 7.0, 6.0])
    assert [p.cost_to_go for p in mini_puzzles(2, solve=lambda state: next(costs))] == [2, 6]


def test_infinite_costs_are_kept_where_the_tier_has_them() -> None:
    tier = GAME.tiers["mini"]
    assert not tier.has_cost(np.inf)
    lenient = replace(tier, cost_may_be_infinite=True)
    assert [lenient.has_cost(cost) for cost in (np.inf, np.nan, 1, 2, 6, 7)] == [
        True, False, False, True, True, False,
    ]  # fmt: skip


def test_fewer_puzzles_will_do_where_that_is_said() -> None:
    costs = iter([2.0, 3.0])
    few = mini_puzzles(5, solve=lambda state: next(costs, np.inf), patience=50, at_least=2)
    assert [each.cost_to_go for each in few] == [2, 3]


def test_too_few_distinct_puzzles_is_an_error() -> None:
    with pytest.raises(PuzzleError, match=r"0 of 5 .*sokoban:mini"):
        mini_puzzles(5, solve=lambda state: np.inf, patience=50)


def test_unknown_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tier.*sokoban.*id.*'easy'"):
        mini_puzzles(1, tier="easy")


@pytest.mark.parametrize("tier", GAME.tiers.values(), ids=lambda tier: tier.name)
def test_generated_room_has_the_form_of_its_tier(tier: Tier) -> None:
    for seed in range(50):
        state = generate_sokoban(tier, np.random.default_rng(seed))
        rows = GAME.encode(state).split("\n")
        assert (len(rows), len(rows[0]), len(state.boxes)) == (
            tier.rows,
            tier.cols,
            tier.num_pieces,
        )
        border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
        assert set(border) == {"#"}
        assert not set(state.boxes) & set(state.layout.targets)


@pytest.mark.parametrize("seed", range(20))
def test_generated_room_is_solvable(seed: int) -> None:
    text = GAME.encode(generate_sokoban(GAME.tiers["id"], np.random.default_rng(seed)))
    assert 1 <= brute_force(text)[text] < np.inf


def test_tier_without_space_is_an_error() -> None:
    tier = replace(GAME.tiers["id"], name="tiny", rows=3, cols=3)
    with pytest.raises(PuzzleError, match=r"tiny.*2 boxes"):
        generate_sokoban(tier, np.random.default_rng(0))
