"""The slow references for Minesweeper and Rush Hour: cases worked by hand, and one another."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from tests.solver_actors.drawn_minefields import drawing, drawn, numbers_drawn
from tests.solver_actors.enumerated_mines import mine_probabilities, mine_probabilities_by_boundary
from tests.solver_actors.minesweeper_states import (
    TIERS,
    random_flagged_state,
    random_guess_state,
    random_small_guess_state,
    states_with_few_layouts,
)
from tests.solver_actors.plain_minefield import Board, Cell, neighbours, reveal
from tests.solver_actors.plain_minesweeper import (
    Constraint,
    assignments,
    components,
    cost_to_go,
    decided,
    score,
    solver_reveal,
    solver_reveals,
    undecided_probabilities,
)
from tests.solver_actors.slow_rush_hour import (
    is_solved,
    random_board,
    reachable,
    slides,
    slow_costs,
)


def first_reveal(*rows: str) -> Cell:
    return solver_reveal(*drawn("\n".join(rows)).view)


def strip_probabilities(text: str, num_mines: int) -> list[Fraction]:
    found = mine_probabilities(1, len(text), num_mines, numbers_drawn(text))
    assert mine_probabilities_by_boundary(1, len(text), num_mines, numbers_drawn(text)) == found
    return [found[cell] for cell in sorted(found)]


def test_flood_fill_opens_zeros_and_the_numbers_around_them() -> None:
    board = drawn(".....\n...M.\n.....\nM....")
    assert drawing(reveal(board, (0, 0))) == "001..\n001M.\n111..\nM...."


def test_flood_fill_skips_a_flag_and_the_hidden_cell_beside_a_zero_is_safe() -> None:
    board = reveal(drawn(".....\n...M.\n.....\nM...."), (0, 0), frozenset({(1, 1)}))
    assert drawing(board) == "001..\n0.1M.\n11...\nM...."
    assert first_reveal("001..", "0.1M.", "11...", "M....") == (1, 1)


def test_wrong_digit_in_a_drawing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2.*\(0, 0\).*1"):
        drawn("2M")


def test_one_mine_on_either_side_of_a_number_is_even() -> None:
    assert strip_probabilities(".1.", 1) == [Fraction(1, 2), Fraction(1, 2)]


def test_mine_count_decides_the_cells_away_from_numbers() -> None:
    assert strip_probabilities(".1....", 1) == [Fraction(1, 2), Fraction(1, 2), 0, 0, 0]
    assert strip_probabilities(".1....", 4) == [Fraction(1, 2), Fraction(1, 2), 1, 1, 1]


def test_layouts_with_fewer_mines_at_the_numbers_weigh_more() -> None:
    # The middle cell alone serves both numbers and leaves 1 mine for 4 cells: 4 layouts. The two
    # outer cells use up both mines: 1 layout.
    fifth = Fraction(1, 5)
    assert strip_probabilities(".1.1.....", 2) == [fifth, 4 * fifth, fifth, *[fifth] * 4]


@pytest.mark.parametrize("text", ["10.", ".3.", "1.20"])
def test_numbers_that_no_layout_fits_are_refused(text: str) -> None:
    for probabilities in (mine_probabilities, mine_probabilities_by_boundary):
        with pytest.raises(ValueError, match="no layout"):
            probabilities(1, len(text), 1, numbers_drawn(text))


@pytest.mark.parametrize("tier", TIERS)
def test_three_ways_to_the_probabilities_agree(tier: str) -> None:
    for board in states_with_few_layouts(40, tier, max_candidates=20_000):
        expected = mine_probabilities(*board.view)
        assert mine_probabilities_by_boundary(*board.view) == expected
        safe, mines = decided(board.rows, board.cols, board.view[3])
        found = undecided_probabilities(*board.view, mines) | dict.fromkeys(mines, 1)
        assert found == expected
        assert all(expected[cell] == 0 for cell in safe)


def test_assignments_are_those_that_fit_among_all() -> None:
    cells: list[Cell] = [(0, col) for col in range(9)]
    windows = [(0, 4, 2), (2, 7, 2), (6, 9, 1)]
    limits = [Constraint(at=(1, a), cells=frozenset(cells[a:b]), mines=m) for a, b, m in windows]
    fitting = {
        sum(bit << i for i, bit in enumerate(bits))
        for bits in product((0, 1), repeat=9)
        if all(sum(bits[a:b]) == m for a, b, m in windows)
    }
    assert len(fitting) == 26
    assert set(assignments(cells, limits)) == fitting
    assert set(assignments(cells, limits, most=3)) == {m for m in fitting if m.bit_count() <= 3}


def test_components_are_ordered_by_their_first_number() -> None:
    limits = [
        Constraint(at=at, cells=frozenset(cells), mines=1)
        for at, cells in (
            ((0, 0), [(9, 1), (9, 2)]),
            ((0, 3), [(9, 7), (9, 8)]),
            ((2, 0), [(9, 3), (9, 4)]),
            ((3, 3), [(9, 2), (9, 3)]),
        )
    ]
    split = [[each.at for each in part] for part in components(limits)]
    assert split == [[(0, 0), (2, 0), (3, 3)], [(0, 3)]]


def test_entailment_is_what_all_assignments_share() -> None:
    # The 1 at (0, 0) needs its mine in (0, 1) or (1, 1); the one below it sees both.
    numbers = numbers_drawn("1....\n1....\n.....")
    assert decided(3, 5, numbers) == ({(2, 0), (2, 1)}, set())


def test_number_with_as_many_hidden_neighbours_proves_mines() -> None:
    assert decided(1, 5, numbers_drawn("1.1..")) == ({(0, 3)}, {(0, 1)})


def test_score_counts_hidden_numbers_and_zeros() -> None:
    numbers = numbers_drawn("0..\n...\n.2.")
    assert score(3, 3, numbers, (1, 1)) == 3 + 2 + 6
    assert score(3, 3, numbers, (0, 2)) == 3


def test_entailed_cell_comes_before_a_better_one_that_only_the_mine_count_proves() -> None:
    # With one mine (1, 3) is safe as well, and its score is 8; that of (2, 1) is 6.
    assert first_reveal("1....", "1M...", ".....") == (2, 1)


def test_entailed_cells_of_equal_score_go_row_major() -> None:
    # The middle 1 proves the mine, so the four cells at the sides are safe, each of score 5.
    assert first_reveal(".1M1.", ".111.") == (0, 0)
    assert first_reveal("1M1", "111", "...") == (2, 1)  # but (2, 1) scores 8, (2, 0) only 5


def test_safest_cell_comes_before_a_better_score() -> None:
    # (0, 2) is a mine with 4/5 and scores 4; the other cells with 1/5, and (0, 4) scores 3.
    assert first_reveal(".1M1....M") == (0, 4)


def test_equally_safe_cells_go_by_groups_of_the_same_numbers() -> None:
    # Two mines: one that both (1, 1) and (1, 2) see, one that both (1, 2) and (2, 4) see. So
    # (1, 0), (0, 3) and (1, 4) are safe, all of score 6; (1, 0) is of the group of (0, 0).
    assert first_reveal(".M...", ".12..", "...M1") == (1, 0)


def test_equally_safe_cells_go_by_the_first_number_of_their_component() -> None:
    # (1, 1) sees the 1 at (1, 0); (1, 2) the component of (0, 4), which stands before it. Both
    # have probability 1/5 and score 9.
    assert first_reveal("....1", "1..2M", "M...M") == (1, 2)


def test_boundary_comes_before_interior() -> None:
    # Two mines, so (0, 4), (2, 4) and the whole left column are safe; (0, 4) and (1, 0) score 5.
    assert first_reveal("..M1.", "..2.1", "...M.") == (0, 4)
    assert first_reveal(".M.1.", "..2M1", ".....") == (0, 4)


def test_components_are_formed_anew_without_proven_mines() -> None:
    # (0, 1) proves (0, 2) and (1, 2). Without them the left component begins at (1, 0), behind
    # the right one at (0, 5). (1, 3) and (1, 4) are safe by the mine count and score 9.
    assert first_reveal("02M..1.", "13M..M.", ".M2...1") == (1, 4)


def test_untouched_board_is_opened_at_its_first_inner_cell() -> None:
    assert first_reveal("...M", "....", "M...") == (1, 1)


def test_cost_counts_reveals_and_not_the_cells_that_they_open() -> None:
    assert solver_reveals(drawn("1M1.....")) == [(0, 3)]  # a zero: it opens all the rest
    assert cost_to_go(drawn("1M1.....")) == 1
    assert solver_reveals(drawn("1M1.1M1.M")) == [(0, 3), (0, 7)]
    assert cost_to_go(drawn("1M1.1M1.M")) == 2


def test_lost_guess_is_infinite_and_its_mirror_image_is_not() -> None:
    assert cost_to_go(drawn(".1M")) == 1
    assert cost_to_go(drawn("M1.")) == math.inf


def test_won_board_costs_nothing_and_a_hit_mine_is_infinite() -> None:
    assert cost_to_go(drawn("1M1"), frozenset({(0, 1)})) == 0
    assert cost_to_go(drawn("1*.")) == math.inf


def test_each_flag_on_a_safe_hidden_cell_costs_one() -> None:
    board = drawn("1M1.....")
    assert cost_to_go(board, frozenset({(0, 1)})) == 1
    assert cost_to_go(board, frozenset({(0, 1), (0, 3), (0, 7)})) == 3
    assert cost_to_go(drawn("M1."), frozenset({(0, 2)})) == math.inf


@pytest.mark.parametrize("tier", TIERS)
def test_flagged_states_are_not_trivial(tier: str) -> None:
    states = [random_flagged_state(seed, tier) for seed in range(40)]
    assert sum(bool(flags - board.mines) for board, flags in states) > 10
    assert sum(has_hidden_cell_beside_zero(board) for board, _ in states) > 3
    assert all(not flags & board.revealed and not board.is_won for board, flags in states)


@pytest.mark.parametrize("seed", range(20))
def test_guess_states_have_no_cell_entailed_safe(seed: int) -> None:
    for board in (random_guess_state(seed, "id"), random_small_guess_state(seed)):
        safe, mines = decided(board.rows, board.cols, board.view[3])
        assert not safe
        assert mines <= board.mines


def has_hidden_cell_beside_zero(board: Board) -> bool:
    zeros = [cell for cell, number in board.view[3].items() if number == 0]
    return any(neighbours(board.rows, board.cols, cell) - board.revealed for cell in zeros)


OPEN = ("......", "......", "AA....", "......", "......", "......")


def cost_of(*rows: str) -> float:
    return slow_costs("".join(rows))["".join(rows)]


def test_one_slide_of_any_length_is_one_move() -> None:
    assert cost_of(*OPEN) == 1
    assert cost_of(*OPEN[:2], "....AA", *OPEN[3:]) == 0
    assert cost_of(*OPEN[:2], "...AA.", *OPEN[3:]) == 1
    assert len(slow_costs("".join(OPEN))) == 5


def test_car_in_the_way_costs_a_slide() -> None:
    assert cost_of("......", "...B..", "AA.B..", "......", "......", "......") == 2
    assert cost_of("......", "...B..", "AA.B..", "...B..", "......", "......") == 2


def test_lorry_that_cannot_leave_the_row_of_the_exit_makes_the_board_dead() -> None:
    assert cost_of("......", "......", "AA.BB.", "......", "......", "......") == math.inf
    # C in the last row stops the lorry, which needs it to go left or right first.
    assert cost_of("......", "...B..", "AA.B..", "...B..", "......", "..CC..") == 3
    assert cost_of("......", "...B..", "AA.B..", "...B..", "......", "...x..") == math.inf


def test_wall_in_the_row_of_the_exit_makes_the_board_dead() -> None:
    assert cost_of(*OPEN[:2], "AA..x.", *OPEN[3:]) == math.inf


def test_slides_are_listed_by_letter_then_back_before_forth_then_shorter_first() -> None:
    board = "".join(("B....x", "B.....", ".AA...", ".x....", "......", "CC...."))
    actions = ["A-1", "A+1", "A+2", "A+3", "B+1", "B+2", "B+3", "C+1", "C+2", "C+3", "C+4"]
    assert list(slides(board)) == actions
    assert (slides(board)["A+3"][12:18], slides(board)["B+3"][::6]) == ("....AA", "...BBC")


def test_vehicle_does_not_slide_from_one_row_into_the_next() -> None:
    board = "".join((*OPEN[:2], "....AA", *OPEN[3:]))
    assert [action for action in slides(board) if "+" in action] == []


def test_letter_o_is_an_empty_cell() -> None:
    assert slow_costs("".join(OPEN).replace(".", "o")) == slow_costs("".join(OPEN))


def test_component_larger_than_the_limit_is_not_searched() -> None:
    assert reachable("".join(OPEN), max_states=4) is None
    assert len(reachable("".join(OPEN), max_states=5) or ()) == 5


def test_every_slide_can_be_undone_and_changes_the_cost_by_one_at_most() -> None:
    num_dead, num_deep = 0, 0
    for seed in range(12):
        states = reachable(random_board(seed, max_states=300)) or {}
        costs = slow_costs(next(iter(states)))
        for state, ahead in states.items():
            assert all(state in states[after].values() for after in ahead.values())
            assert (costs[state] == 0) == is_solved(state)
            if 0 < costs[state] < math.inf:
                assert min(costs[after] for after in ahead.values()) == costs[state] - 1
        num_dead += math.inf in costs.values()
        num_deep += any(3 <= cost < math.inf for cost in costs.values())
    assert min(num_dead, num_deep) >= 2
