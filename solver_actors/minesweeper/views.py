"""A Minesweeper board from what a player sees of it: some layout that agrees, found by search.

The solver's kernels take a layout but never peek at it (``choice``): for every layout that agrees
they give the same answers about what is seen. Letters: ``P`` components of the constraints,
``M`` = 65 numbers of mines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from cast_ray.errors import PuzzleError
from cast_ray.games.minesweeper import Minesweeper, MinesweeperLayout, MinesweeperState, check_size
from cast_ray.games.text import cell_set, check_grid, neighbors
from solver_actors.minesweeper.choice import new_work
from solver_actors.minesweeper.constraints import (
    MAX_CELLS,
    NONE,
    Frontier,
    MineBoard,
    bit,
    constrain,
    form_groups,
    lowest,
    popcount,
    without,
)
from solver_actors.minesweeper.probability import PartCounts, count_parts
from solver_actors.minesweeper.search import (
    FOUND,
    OUT_OF_BUDGET,
    Search,
    begin,
    next_solution,
    order_component,
)
from solver_actors.minesweeper.solver import DEFAULT_NODE_BUDGET

VISIBLE = ".F012345678"
"""Hidden cell, flag, counts."""

_COUNTS = VISIBLE[2:]
_WITHOUT_MINES = str.maketrans("+f", ".F")
_CONTRADICTION = -2


def read_view(
    rows: Sequence[str], num_mines: int, *, node_budget: int = DEFAULT_NODE_BUDGET
) -> MinesweeperState | None:
    """Return a state that looks like this, with mines wherever they may be.

    Args:
        rows: of ``VISIBLE``.
        num_mines: of the board.
        node_budget: search nodes.

    Returns:
        None above 64 cells and out of budget.

    Raises:
        PuzzleError: the rows are no board, or no layout agrees with them.
    """
    _check_view(rows, num_mines)
    grid, num_rows, num_cols = "".join(rows), len(rows), len(rows[0])
    if len(grid) > MAX_CELLS:
        return None
    revealed = cell_set(grid, _COUNTS)
    board = MineBoard(
        all_cells=np.uint64((1 << len(grid)) - 1),
        mines=NONE,
        zeros=NONE,
        neighbors=np.array(neighbors(num_rows, num_cols), np.uint64),
        counts=np.array([int(c) if c in _COUNTS else 0 for c in grid], np.int64),
    )
    outcome, mines = _agreeing_mines(board, np.uint64(revealed), num_mines, node_budget)
    if outcome == OUT_OF_BUDGET:
        return None
    layout = MinesweeperLayout(rows=num_rows, cols=num_cols, mines=int(mines))
    state = MinesweeperState(layout=layout, revealed=revealed, flags=cell_set(grid, "F"))
    # A chain of single numbers may have run into a contradiction that left nothing to search.
    looks = Minesweeper().encode(state).translate(_WITHOUT_MINES)
    if outcome == _CONTRADICTION or looks != "\n".join(rows):
        raise PuzzleError(
            f"no layout of {num_mines} mines agrees with all open counts in rows 0 to "
            f"{num_rows - 1}, columns 0 to {num_cols - 1}: correct a count or the number of mines"
        )
    return state


def _check_view(rows: Sequence[str], num_mines: int) -> None:
    """Raise PuzzleError for faults of the rows that need no search."""
    if not rows:
        raise PuzzleError("the board is empty at row 0, column 0: give one line of symbols per row")
    check_grid(list(rows), VISIBLE)
    num_rows, num_cols = len(rows), len(rows[0])
    check_size(num_rows, num_cols)
    grid = "".join(rows)
    hidden = cell_set(grid, ".F")
    most = min(hidden.bit_count(), len(grid) - 1)
    if not 0 <= num_mines <= most:
        raise PuzzleError(
            f"the number of mines is {num_mines}, and the board has room for 0 to {most} in the "
            f"hidden cells of rows 0 to {num_rows - 1}, columns 0 to {num_cols - 1}"
        )
    for cell, around in enumerate(neighbors(num_rows, num_cols)):
        num_closed = (around & hidden).bit_count()
        if grid[cell] in _COUNTS and int(grid[cell]) > num_closed:
            raise PuzzleError(
                f"the count {grid[cell]} at row {cell // num_cols}, column {cell % num_cols} is "
                f"too large: only {num_closed} cells around it are hidden"
            )


@njit(cache=True)
def _agreeing_mines(
    board: MineBoard, revealed: np.uint64, num_mines: int, node_budget: int
) -> tuple[int, np.uint64]:
    """Return ``FOUND`` and mines of a layout, ``OUT_OF_BUDGET`` or ``_CONTRADICTION``.

    Not every contradiction is found: the caller compares the counts of the layout.

    Args:
        board: its counts are read at open cells alone, its mines not at all.
        revealed: the open cells.
        num_mines: of the board.
        node_budget: search nodes.
    """
    frontier, search = new_work(node_budget)
    num_constraints, safe, mined = constrain(board, revealed, frontier)
    num_groups = form_groups(frontier, num_constraints)
    parts = count_parts(frontier, num_constraints, num_groups, search)
    if parts.num_parts < 0:
        return OUT_OF_BUDGET, NONE
    interior = board.all_cells & ~(revealed | safe | mined)
    for group in range(num_groups):
        interior = without(interior, frontier.group_cells[group])
    shares = _shares(parts, popcount(interior), num_mines - popcount(mined))
    if shares[parts.num_parts] < 0:
        return _CONTRADICTION, NONE
    mines = mined | _lowest_of(interior, shares[parts.num_parts])
    for part in range(parts.num_parts):
        first = 0
        while parts.part_of[first] != part:
            first += 1
        begin(frontier, num_constraints, num_groups, search)
        mines |= _solution(frontier, search, num_groups, first, shares[part])
    return FOUND, mines


@njit(cache=True)
def _shares(parts: PartCounts, num_interior: int, num_mines: int) -> np.ndarray:
    """Return ``[P + 1]`` int64 mines of each component and, last, of the interior.

    The last is -1 where the mines cannot be shared out.
    """
    num_parts = parts.num_parts
    shares = np.full(num_parts + 1, -1, np.int64)
    can_be = np.zeros((num_parts + 1, MAX_CELLS + 1), np.bool_)
    can_be[0, 0] = True
    for part in range(num_parts):
        for before in range(MAX_CELLS + 1):
            for more in range(MAX_CELLS + 1 - before):
                if can_be[part, before] and parts.ways[part, more]:
                    can_be[part + 1, before + more] = True
    held = -1
    for total in range(min(num_mines, MAX_CELLS) + 1):
        if can_be[num_parts, total] and num_mines - total <= num_interior:
            held = total
    if held < 0:
        return shares
    shares[num_parts] = num_mines - held
    for part in range(num_parts - 1, -1, -1):
        more = 0
        while not (can_be[part, held - more] and parts.ways[part, more]):
            more += 1
        shares[part] = more
        held -= more
    return shares


@njit(cache=True)
def _solution(
    frontier: Frontier, search: Search, num_groups: int, first: int, num_mines: int
) -> np.uint64:
    """Return the mines of a solution of one group's component with that many; there is one."""
    search.nodes_left[0] = search.node_budget  # enough: all were counted with it
    length = order_component(frontier, num_groups, first, search)
    outcome = next_solution(frontier, search, length, True, 0)
    while outcome == FOUND and search.held[:length].sum() != num_mines:
        outcome = next_solution(frontier, search, length, False, 0)
    mines = NONE
    for place in range(length):
        group = int(search.order[place])
        mines |= _lowest_of(frontier.group_cells[group], search.held[place])
    return mines


@njit(cache=True)
def _lowest_of(cells: np.uint64, count: int) -> np.uint64:
    """Return the ``count`` smallest members of a set that has as many."""
    found = NONE
    for _ in range(count):
        cell = bit(lowest(cells))
        found |= cell
        cells = without(cells, cell)
    return found
