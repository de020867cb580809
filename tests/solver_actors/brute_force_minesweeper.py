"""Minesweeper by plain enumeration: shares no code with the rules or the solver.

A board is its text (``. + f F``, digits, ``*``); a cell is (row, column). Slow on purpose: every
solution is a set of cells, every probability a Fraction.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

Cell = tuple[int, int]
Cells = frozenset[Cell]
Constraint = tuple[Cells, int]


class Position:
    """What a text says; ``open_cells`` may grow as a solver plays."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.cells = [(r, c) for r, line in enumerate(lines) for c in range(len(line))]
        self.mines = {(r, c) for r, c in self.cells if lines[r][c] in "+F*"}
        self.open_cells = {(r, c) for r, c in self.cells if lines[r][c] in "012345678*"}
        self.wrong_flags = {(r, c) for r, c in self.cells if lines[r][c] == "f"}

    def around(self, cell: Cell) -> list[Cell]:
        return [
            (r, c)
            for r, c in self.cells
            if abs(r - cell[0]) <= 1 and abs(c - cell[1]) <= 1 and (r, c) != cell
        ]

    def count(self, cell: Cell) -> int:
        return len(self.mines.intersection(self.around(cell)))

    def hidden(self) -> list[Cell]:
        return [cell for cell in self.cells if cell not in self.open_cells]

    def constraints(self) -> list[Constraint]:
        """Return the hidden cells around each open number, row by row, and its mines."""
        found = [
            (frozenset(self.around(cell)) - self.open_cells, self.count(cell))
            for cell in self.cells
            if cell in self.open_cells
        ]
        return [(cells, count) for cells, count in found if cells]

    def reveal(self, cell: Cell) -> None:
        """Open a cell, and everything around a 0; no flag is looked at."""
        self.open_cells.add(cell)
        if cell not in self.mines and self.count(cell) == 0:
            for beside in self.around(cell):
                if beside not in self.open_cells:
                    self.reveal(beside)

    def score(self, cell: Cell) -> int:
        return sum(
            1 if beside not in self.open_cells else 2 if self.count(beside) else 3
            for beside in self.around(cell)
        )


def mine_probabilities(text: str) -> dict[Cell, Fraction]:
    """Return the chance of a mine in each hidden cell, from every placement of all the mines."""
    position = Position(text)
    constraints = position.constraints()
    layouts = [
        set(mines)
        for mines in combinations(position.hidden(), len(position.mines))
        if all(len(cells.intersection(mines)) == count for cells, count in constraints)
    ]
    return {
        cell: Fraction(sum(cell in mines for mines in layouts), len(layouts))
        for cell in position.hidden()
    }


def components(constraints: list[Constraint]) -> list[list[Constraint]]:
    """Return the constraints in connected parts, each part and all parts in the given order."""
    parts: list[list[int]] = []
    for number, (cells, _) in enumerate(constraints):
        linked = [part for part in parts if any(constraints[i][0] & cells for i in part)]
        parts = [part for part in parts if part not in linked]
        parts.append(sorted([number, *(i for part in linked for i in part)]))
    return [[constraints[i] for i in part] for part in sorted(parts)]


def solutions(constraints: list[Constraint]) -> list[Cells]:
    """Return every set of mines that gives each constraint its number."""
    cells = sorted(frozenset().union(*(cells for cells, _ in constraints)))
    partial: list[Cells] = [frozenset()]
    for number, cell in enumerate(cells):
        left = frozenset(cells[number + 1 :])
        partial = [
            mines
            for before in partial
            for mines in (before, before | {cell})
            if all(
                len(around & mines) <= count <= len(around & mines) + len(around & left)
                for around, count in constraints
                if cell in around
            )
        ]
    return partial


def next_reveal(position: Position) -> tuple[Cell, Fraction]:
    """Return the cell that SPEC's solver reveals, and its chance of a mine (0 if entailed safe)."""
    safe: list[Cell] = []
    proven: Cells = frozenset()
    for part in components(position.constraints()):
        found = solutions(part)
        cells = frozenset().union(*(cells for cells, _ in part))
        safe += cells - frozenset().union(*found)
        proven |= cells.intersection(*found)
    if safe:
        return min(safe, key=lambda cell: (-position.score(cell), cell)), Fraction(0)
    reduced = [
        (cells - proven, count - len(cells & proven)) for cells, count in position.constraints()
    ]
    parts = components([(cells, count) for cells, count in reduced if cells])
    interior = [
        cell for cell in position.hidden() if cell not in proven.union(*(c for c, _ in reduced))
    ]
    order = [cell for part in parts for cell in _by_groups(part)] + interior
    chances = _chances(parts, interior, len(position.mines) - len(proven))
    cell = min(order, key=lambda cell: (chances[cell], -position.score(cell), order.index(cell)))
    return cell, chances[cell]


def _by_groups(part: list[Constraint]) -> list[Cell]:
    """Return the cells of a component by groups of cells in the same constraints."""
    groups: dict[tuple[bool, ...], list[Cell]] = {}
    for cell in sorted(frozenset().union(*(cells for cells, _ in part))):
        groups.setdefault(tuple(cell in cells for cells, _ in part), []).append(cell)
    return [cell for group in sorted(groups.values()) for cell in group]


def _chances(
    parts: list[list[Constraint]], interior: list[Cell], num_mines: int
) -> dict[Cell, Fraction]:
    """Return the chance of a mine in each cell that is not decided."""
    joined: list[tuple[int, dict[Cell, int], int]] = [(0, {}, 1)]
    for part in parts:  # (mines, solutions with a mine in each cell, solutions), by mines
        by_mines: dict[int, list[Cells]] = {}
        for found in solutions(part):
            by_mines.setdefault(len(found), []).append(found)
        joined = [
            (
                mines + more,
                {cell: n * len(sets) for cell, n in counts.items()}
                | {
                    cell: ways * sum(cell in found for found in sets)
                    for cell in frozenset().union(*(cells for cells, _ in part))
                },
                ways * len(sets),
            )
            for mines, counts, ways in joined
            for more, sets in by_mines.items()
        ]
    total, weighted = 0, dict.fromkeys(interior, 0)
    for mines, counts, ways in joined:
        left = num_mines - mines
        if not 0 <= left <= len(interior):
            continue
        total += ways * math.comb(len(interior), left)
        for cell, n in counts.items():
            weighted[cell] = weighted.get(cell, 0) + n * math.comb(len(interior), left)
        for cell in interior:
            weighted[cell] += ways * (math.comb(len(interior) - 1, left - 1) if left else 0)
    return {cell: Fraction(n, total) for cell, n in weighted.items()}


def cost(text: str) -> tuple[float, int]:
    """Return K of a board, and how many reveals on the solver's way were guesses."""
    position = Position(text)
    num_reveals = num_guesses = 0
    while not position.open_cells & position.mines:
        if len(position.open_cells | position.mines) == len(position.cells):
            return num_reveals + len(position.wrong_flags), num_guesses
        cell, chance = next_reveal(position)
        num_guesses += chance > 0
        position.reveal(cell)
        num_reveals += 1
    return math.inf, num_guesses
