"""Minesweeper's K in plain Python: the peek-free solver from nothing but sets. For comparison.

Shares no code with the rules or the solver beside which it is timed and which it checks in tests.
Cells are ``(row, column)``.

Where the text of the specification can be read in two ways, this is how it is read here:

- A *constraint* is a revealed number, 0 included, with at least one hidden neighbour; it says how
  many of these are mines. A flood fill that skipped a flag leaves hidden cells beside a 0: they
  are entailed safe like any others.
- A *constraint component* is all constraints that are connected through shared hidden cells.
- *Entailed safe* (or *proven mine*): safe (a mine) in every assignment of the component's cells
  that its numbers allow, were there any number of mines on the board, even more than there are.
- An *undecided hidden cell* is hidden and no proven mine. Rule 2 applies only when no cell is
  entailed safe. A cell that only the global mine count decides is undecided: probability 0 or 1.
- *Boundary cells* are undecided with a revealed neighbour, *interior cells* undecided without.
- The *score* counts the neighbours on the board (3 in a corner) as the player sees them; a proven
  mine is hidden like any other cell: +1.
- *The component's first constraint*: of those that still hold an undecided cell, the one whose
  number stands first row-major. *Cells with the same constraints*: the same set of such numbers.
- A flood fill spreads from zeros that it opens itself, never from zeros that were open before.
- Agent flags: all that stand on safe hidden cells are lifted first, at 1 each; then the solver
  plays as if there had never been any. A won board costs 0, a board with a mine hit is infinite.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tests.solver_actors.plain_minefield import Board, Cell, Numbers, all_cells, neighbours, reveal


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """The number at ``at`` says that ``mines`` of ``cells`` are mines."""

    at: Cell
    cells: frozenset[Cell]
    mines: int


def constraints_of(
    rows: int, cols: int, numbers: Numbers, mines: Iterable[Cell] = ()
) -> list[Constraint]:
    """Return the constraints row-major, known mines taken out of them."""
    found: list[Constraint] = []
    for at, number in sorted(numbers.items()):
        hidden = neighbours(rows, cols, at).difference(numbers)
        if number and not hidden:
            raise ValueError(f"no layout agrees with the {number} at {at}: nothing is hidden there")
        known = hidden.intersection(mines)
        if hidden != known:
            found.append(Constraint(at=at, cells=hidden - known, mines=number - len(known)))
    return found


def cells_of(constraints: list[Constraint]) -> list[Cell]:
    return sorted(frozenset[Cell]().union(*(each.cells for each in constraints)))


def components(constraints: list[Constraint]) -> list[list[Constraint]]:
    """Split constraints at shared cells; both the parts and what is in them row-major."""
    parts: list[list[Constraint]] = []
    for each in constraints:
        apart, merged = [], [each]
        for part in parts:
            if each.cells.isdisjoint(cells_of(part)):
                apart.append(part)
            else:
                merged += part
        parts = [*apart, merged]
    in_order = [sorted(part, key=lambda each: each.at) for part in parts]
    return sorted(in_order, key=lambda part: part[0].at)


def assignments(
    cells: list[Cell], constraints: list[Constraint], *, most: int | None = None
) -> list[int]:
    """Return every set of at most ``most`` mines that the constraints allow, as bits of ``cells``.

    Cells are decided one after the other; a partial assignment is dropped as soon as a number has
    too many mines, or could not get enough from the cells still to come.
    """
    masks = [(sum(1 << cells.index(c) for c in each.cells), each.mines) for each in constraints]
    partial = [0]
    for i in range(len(cells)):
        partial += [mines | 1 << i for mines in partial]
        for mask, number in masks:
            if mask >> i & 1:
                least = number - (mask >> i + 1).bit_count()
                partial = [p for p in partial if least <= (p & mask).bit_count() <= number]
        if most is not None:
            partial = [mines for mines in partial if mines.bit_count() <= most]
    return partial


# The peek-free solver


def score(rows: int, cols: int, numbers: Numbers, cell: Cell) -> int:
    """Return how much a reveal may tell: 1 a hidden neighbour, 2 a number, 3 a zero."""
    beside = [numbers.get(each) for each in neighbours(rows, cols, cell)]
    return sum(1 if number is None else 2 if number else 3 for number in beside)


def decided(rows: int, cols: int, numbers: Numbers) -> tuple[set[Cell], set[Cell]]:
    """Return the hidden cells entailed safe and the proven mines, without the mine count."""
    safe, mines = set[Cell](), set[Cell]()
    for part in components(constraints_of(rows, cols, numbers)):
        cells = cells_of(part)
        allowed = assignments(cells, part)
        for i, cell in enumerate(cells):
            values = {mask >> i & 1 for mask in allowed}
            if values == {0}:
                safe.add(cell)
            if values == {1}:
                mines.add(cell)
    return safe, mines


def guesses(rows: int, cols: int, numbers: Numbers, proven: set[Cell]) -> list[Cell]:
    """Return the undecided cells in the order that breaks the last ties."""
    boundary: list[Cell] = []
    for part in components(constraints_of(rows, cols, numbers, proven)):
        groups: dict[frozenset[Cell], list[Cell]] = {}
        for cell in cells_of(part):  # row-major, so groups appear by their smallest cell
            same = frozenset(each.at for each in part if cell in each.cells)
            groups.setdefault(same, []).append(cell)
        for group in groups.values():
            boundary += group
    others = set(boundary) | proven | set(numbers)
    return boundary + [cell for cell in all_cells(rows, cols) if cell not in others]


def undecided_probabilities(
    rows: int, cols: int, num_mines: int, numbers: Numbers, proven: set[Cell]
) -> dict[Cell, Fraction]:
    """Return the undecided cells' mine probabilities, from each component's solution counts."""
    parts = components(constraints_of(rows, cols, numbers, proven))
    solutions = [(cells_of(part), assignments(cells_of(part), part)) for part in parts]
    boundary = {cell for cells, _ in solutions for cell in cells}
    interior = [c for c in guesses(rows, cols, numbers, proven) if c not in boundary]
    left = num_mines - len(proven)
    sizes = [_sizes(allowed) for _, allowed in solutions]
    rest = _sizes_of_free_cells(len(interior))
    num_layouts = _product([*sizes, rest])[left]
    num_with: dict[Cell, int] = {}
    for part, (cells, allowed) in enumerate(solutions):
        others = _product([*sizes[:part], *sizes[part + 1 :], rest])
        for i, cell in enumerate(cells):
            here = _sizes(mines for mines in allowed if mines >> i & 1)
            num_with[cell] = _product([others, here])[left]
    if interior:
        rest_without_one = _sizes_of_free_cells(len(interior) - 1)
        num_with |= dict.fromkeys(interior, _product([*sizes, rest_without_one])[left - 1])
    return {cell: Fraction(number, num_layouts) for cell, number in num_with.items()}


def _sizes(allowed: Iterable[int]) -> Counter[int]:
    """Return how many assignments have each number of mines."""
    return Counter(mines.bit_count() for mines in allowed)


def _sizes_of_free_cells(num_cells: int) -> Counter[int]:
    return Counter({size: math.comb(num_cells, size) for size in range(num_cells + 1)})


def _product(counts: list[Counter[int]]) -> Counter[int]:
    """Return how many ways there are to get each number of mines from all parts together."""
    product = Counter({0: 1})
    for each in counts:
        longer = Counter[int]()
        for one, ways in product.items():
            for other, more in each.items():
                longer[one + other] += ways * more
        product = longer
    return product


def solver_reveal(rows: int, cols: int, num_mines: int, numbers: Numbers) -> Cell:
    """Return the peek-free solver's next reveal.

    Raises:
        ValueError: All hidden cells are mines, so there is nothing to reveal.
    """
    if rows * cols - len(numbers) <= num_mines:
        raise ValueError("every hidden cell is a mine: the board is won")
    safe, proven = decided(rows, cols, numbers)
    if safe:
        return min(safe, key=lambda cell: (-score(rows, cols, numbers, cell), cell))
    chances = undecided_probabilities(rows, cols, num_mines, numbers, proven)
    ordered = guesses(rows, cols, numbers, proven)
    # min keeps the first of equals.
    return min(ordered, key=lambda cell: (chances[cell], -score(rows, cols, numbers, cell)))


def solver_reveals(board: Board) -> list[Cell]:
    """Return the solver's reveals to the end, a mine that it hits included."""
    reveals: list[Cell] = []
    while not (board.is_won or board.is_lost):
        reveals.append(solver_reveal(*board.view))
        board = reveal(board, reveals[-1])
    return reveals


def costs_to_go(boards: Iterable[Board]) -> list[float]:
    """Return K of boards without flags, each position on the solver's way played once."""
    known: dict[Board, float] = {}
    costs: list[float] = []
    for start in boards:
        board, way = start, list[Board]()
        while board not in known:
            if board.is_won or board.is_lost:
                known[board] = 0.0 if board.is_won else math.inf
            else:
                way.append(board)
                board = reveal(board, solver_reveal(*board.view))
        for steps, earlier in enumerate(reversed(way), start=1):
            known[earlier] = known[board] + steps
        costs.append(known[start])
    return costs


def cost_to_go(board: Board, flags: frozenset[Cell] = frozenset()) -> float:
    """Return K: the solver's reveals and 1 for each flag on a safe hidden cell; inf if it loses."""
    reveals = solver_reveals(board)
    if board.mines & (board.revealed | set(reveals)):
        return math.inf
    return float(len(reveals) + len(flags - board.mines - board.revealed))
