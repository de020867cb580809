"""Mine probabilities by looking at every layout of the mines: the slowest reference."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, compress

from tests.solver_actors.plain_minefield import Cell, Numbers, all_cells, neighbours
from tests.solver_actors.plain_minesweeper import assignments, cells_of, constraints_of


def num_candidates(rows: int, cols: int, num_mines: int, numbers: Numbers) -> int:
    """Return how many layouts `mine_probabilities` has to look at."""
    return math.comb(rows * cols - len(numbers), num_mines)


def mine_probabilities(
    rows: int, cols: int, num_mines: int, numbers: Numbers
) -> dict[Cell, Fraction]:
    """Return every hidden cell's mine probability, by looking at every layout of the mines.

    Every number owns one hexadecimal digit. A cell weighs 1 in the digits of the numbers that it
    touches, so the weights of a layout's mines add up to all its counts at once: at most 8 each,
    so nothing is carried. Numbers with hidden neighbours own the low digits, which keeps weights
    in machine words.

    Raises:
        ValueError: No layout agrees with the numbers.
    """
    hidden = [cell for cell in all_cells(rows, cols) if cell not in numbers]
    owners = sorted(numbers, key=lambda at: neighbours(rows, cols, at).issubset(numbers))
    digit = {at: 16**i for i, at in enumerate(owners)}
    weights = [sum(digit.get(n, 0) for n in neighbours(rows, cols, cell)) for cell in hidden]
    seen = sum(number * digit[at] for at, number in numbers.items())
    sums = map(sum, combinations(weights, num_mines))
    num_layouts, num_with = 0, Counter[Cell]()
    for layout in compress(combinations(hidden, num_mines), map(seen.__eq__, sums)):
        num_layouts += 1
        num_with.update(layout)
    if num_layouts == 0:
        raise ValueError("no layout of the mines agrees with the numbers")
    return {cell: Fraction(num_with[cell], num_layouts) for cell in hidden}


def mine_probabilities_by_boundary(
    rows: int, cols: int, num_mines: int, numbers: Numbers
) -> dict[Cell, Fraction]:
    """Return the same with less work: the cells beside numbers all at once, the rest by binomials.

    Raises:
        ValueError: No layout agrees with the numbers.
    """
    hidden = [cell for cell in all_cells(rows, cols) if cell not in numbers]
    limits = constraints_of(rows, cols, numbers)
    boundary = cells_of(limits)
    num_rest = len(hidden) - len(boundary)
    num_layouts, num_with, num_with_interior = 0, dict.fromkeys(hidden, 0), 0
    for mines in assignments(boundary, limits, most=num_mines):
        left = num_mines - mines.bit_count()
        layouts = math.comb(num_rest, left)
        num_layouts += layouts
        num_with_interior += math.comb(num_rest - 1, left - 1) if num_rest and left else 0
        for i, cell in enumerate(boundary):
            num_with[cell] += layouts * (mines >> i & 1)
    if num_layouts == 0:
        raise ValueError("no layout of the mines agrees with the numbers")
    num_with |= dict.fromkeys(set(hidden).difference(boundary), num_with_interior)
    return {cell: Fraction(num_with[cell], num_layouts) for cell in hidden}
