"""Minesweeper's K: the reveals that one deterministic solver needs, which never peeks.

K is privileged all the same: where the solver has to guess, the true board says how the guess
comes out. An infinite K means that this solver hits a mine, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit

from cast_ray.errors import PuzzleError
from cast_ray.games.game import Status
from cast_ray.games.minesweeper import Minesweeper, MinesweeperLayout, MinesweeperState, action_on
from cast_ray.games.text import neighbors
from solver_actors.minesweeper.choice import UNKNOWN, choose, mine_counts, new_work
from solver_actors.minesweeper.constraints import MAX_CELLS, MineBoard, opened_by
from solver_actors.solver import action_costs, check_layout

DEFAULT_NODE_BUDGET = 2_000_000
"""Nodes of the search for solutions, for each reveal of the solver: well under a second."""
MEMO_SLOTS = 1 << 12

_MINESWEEPER = Minesweeper()
_DEAD, _FREE = -1, -3
_HASH = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(64 - 12)


class Memo(NamedTuple):
    """K of positions already walked through, in a hash table with open addressing."""

    revealed: np.ndarray
    """``[MEMO_SLOTS]`` uint64 open cells."""
    costs: np.ndarray
    """``[MEMO_SLOTS]`` int16 K, ``_DEAD``, ``UNKNOWN``, or ``_FREE`` for an empty slot."""
    num_used: np.ndarray
    """``[1]`` int64 number of slots that are not empty."""


class MinesweeperSolver:
    """Plays one layout to its end from any state, and remembers what it met on the way."""

    def __init__(
        self, layout: MinesweeperLayout, *, node_budget: int = DEFAULT_NODE_BUDGET
    ) -> None:
        """Prepare a layout.

        Args:
            layout: the board with its mines.
            node_budget: search nodes for each reveal; beyond it a cost is unknown.

        Raises:
            PuzzleError: the board has more than 64 cells.
        """
        num_cells = layout.rows * layout.cols
        if num_cells > MAX_CELLS:
            raise PuzzleError(
                f"a Minesweeper board of {layout.rows} x {layout.cols} has {num_cells} cells, and "
                f"the solver takes at most {MAX_CELLS}: use a smaller one"
            )
        self._layout = layout
        self._node_budget = node_budget
        around = neighbors(layout.rows, layout.cols)
        num_mines = [(cells & layout.mines).bit_count() for cells in around]
        zeros = sum(
            1 << cell
            for cell, count in enumerate(num_mines)
            if not count and not layout.mines >> cell & 1
        )
        self._board = MineBoard(
            all_cells=np.uint64((1 << num_cells) - 1),
            mines=np.uint64(layout.mines),
            zeros=np.uint64(zeros),
            neighbors=np.array(around, np.uint64),
            counts=np.array(num_mines, np.int64),
        )
        self._memo = Memo(
            revealed=np.zeros(MEMO_SLOTS, np.uint64),
            costs=np.full(MEMO_SLOTS, _FREE, np.int16),
            num_used=np.zeros(1, np.int64),
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Travel without the memo, which another process could only read."""
        return partial(MinesweeperSolver, node_budget=self._node_budget), (self._layout,)

    @property
    def memory_bytes(self) -> int:
        """Return the size of all arrays; it never grows."""
        return sum(
            part.nbytes for part in (*self._board, *self._memo) if isinstance(part, np.ndarray)
        )

    def cost_to_go(self, states: Sequence[MinesweeperState]) -> np.ndarray:
        """Return ``[len(states)]`` float64 K in reveals, and 1 for each flag on a safe cell.

        Those flags are lifted first, so K is that of the state without flags plus their number.

        Returns:
            inf where the solver hits a mine or the state is lost, which is no proof that no player
            could win; NaN where the search for solutions ran out of its budget.

        Raises:
            ValueError: a state belongs to another layout.
        """
        check_layout(_MINESWEEPER, self._layout, states)
        mines = self._layout.mines
        return _costs(
            self._board,
            np.array([state.revealed for state in states], np.uint64),
            np.array([(state.flags & ~mines).bit_count() for state in states], np.int64),
            self._memo,
            self._node_budget,
        )

    def action_costs(self, state: MinesweeperState) -> dict[str, float]:
        """Return K after each scored action, on the true board: privileged."""
        return action_costs(_MINESWEEPER, self.cost_to_go, state)

    def best_action(self, state: MinesweeperState) -> str | None:
        """Return ``next_action``, which does not peek; None at cost 0, inf or unknown."""
        cost = self.cost_to_go([state])[0]
        return self.next_action(state) if np.isfinite(cost) and cost > 0 else None

    def is_dead(self, state: MinesweeperState) -> bool:
        """Return whether the game is lost by its rules.

        An infinite K does not count: it says that this solver loses, and another guess may win.
        """
        return _MINESWEEPER.status(state) is Status.LOST

    def next_action(self, state: MinesweeperState) -> str | None:
        """Return what the solver does next by what is open alone, wherever that leads.

        Returns:
            The reveal of a cell, or the lifting of the flag on it; None in a game that is over or
            out of budget.

        Raises:
            ValueError: the state belongs to another layout.
        """
        check_layout(_MINESWEEPER, self._layout, [state])
        if _MINESWEEPER.status(state) is not Status.PLAYING:
            return None
        cell, _ = _next_cell(self._board, np.uint64(state.revealed), self._node_budget)
        return None if cell == UNKNOWN else self._move_on(state, cell)

    def safest_moves(self, state: MinesweeperState) -> tuple[str, ...]:
        """Return every move that is as safe as ``next_action``, by what is open alone.

        Returns:
            A move on each hidden cell of the least exact chance of a mine, as ``next_action`` words
            it, row by row; () in a game that is over or out of budget.

        Raises:
            ValueError: the state belongs to another layout.
        """
        check_layout(_MINESWEEPER, self._layout, [state])
        if _MINESWEEPER.status(state) is not Status.PLAYING:
            return ()
        total, counts = _mine_counts(self._board, np.uint64(state.revealed), self._node_budget)
        if not total:
            return ()
        hidden = [cell for cell in range(len(counts)) if not state.revealed >> cell & 1]
        least = min(int(counts[cell]) for cell in hidden)
        return tuple(self._move_on(state, cell) for cell in hidden if counts[cell] == least)

    def num_guesses(self, state: MinesweeperState) -> int | None:
        """Return how many reveals of the solver may hit a mine, to the end; None if unknown.

        Raises:
            ValueError: the state belongs to another layout.
        """
        check_layout(_MINESWEEPER, self._layout, [state])
        found = _num_guesses(self._board, np.uint64(state.revealed), self._node_budget)
        return None if found == UNKNOWN else found

    def mine_probabilities(self, state: MinesweeperState) -> np.ndarray:
        """Return the exact chance of a mine in every hidden cell, given what is open.

        The number of mines is known; flags are no evidence. Not privileged.

        Returns:
            ``[rows, cols]`` float64, NaN at open cells; all NaN out of budget.

        Raises:
            ValueError: the state belongs to another layout, or is lost.
        """
        check_layout(_MINESWEEPER, self._layout, [state])
        if _MINESWEEPER.status(state) is Status.LOST:
            raise ValueError("a lost game has no mine probabilities: ask before the mine is hit")
        total, counts = _mine_counts(self._board, np.uint64(state.revealed), self._node_budget)
        probabilities = [
            np.nan if state.revealed >> cell & 1 or not total else count / int(total)
            for cell, count in enumerate(counts.tolist())
        ]
        return np.array(probabilities).reshape(self._layout.rows, self._layout.cols)

    def _move_on(self, state: MinesweeperState, cell: int) -> str:
        verb = "flag" if state.flags >> cell & 1 else "reveal"
        return action_on(self._layout, verb, cell)


def solve_minesweeper(state: MinesweeperState) -> MinesweeperSolver:
    """Return the solver of a state's layout."""
    return MinesweeperSolver(state.layout)


@njit(cache=True)
def _slot_of(memo: Memo, revealed: np.uint64) -> int:
    """Return where a position stands in the memo, or the empty slot where it would."""
    slot = int(np.int64((revealed * _HASH) >> _HASH_SHIFT))
    while memo.costs[slot] != _FREE and memo.revealed[slot] != revealed:
        slot = (slot + 1) % MEMO_SLOTS
    return slot


@njit(cache=True)
def _cost(board: MineBoard, revealed: np.uint64, memo: Memo, node_budget: int) -> int:
    """Return K of a position, ``_DEAD`` or ``UNKNOWN``; note all positions on the way."""
    work = new_work(node_budget)
    way = np.empty(MAX_CELLS + 1, np.uint64)
    length = 0
    while True:
        if revealed & board.mines:
            cost = _DEAD
            break
        if revealed | board.mines == board.all_cells:
            cost = 0
            break
        slot = _slot_of(memo, revealed)
        if memo.costs[slot] != _FREE:
            cost = int(memo.costs[slot])
            break
        way[length] = revealed
        length += 1
        cell, _ = choose(board, revealed, work)
        if cell == UNKNOWN:
            cost = UNKNOWN
            break
        revealed |= opened_by(board, revealed, cell)
    for i in range(length - 1, -1, -1):
        if cost >= 0:
            cost += 1
        slot = _slot_of(memo, way[i])
        memo.revealed[slot], memo.costs[slot] = way[i], cost
    memo.num_used[0] += length
    return cost


@njit(cache=True)
def _costs(
    board: MineBoard,
    revealed: np.ndarray,
    num_wrong_flags: np.ndarray,
    memo: Memo,
    node_budget: int,
) -> np.ndarray:
    """Return ``[n]`` float64 costs of the positions ``revealed`` ``[n]``."""
    costs = np.empty(len(revealed), np.float64)
    for i in range(len(revealed)):
        if memo.num_used[0] > MEMO_SLOTS * 3 // 4:
            memo.costs[:] = _FREE
            memo.num_used[0] = 0
        cost = _cost(board, revealed[i], memo, node_budget)
        if cost >= 0:
            costs[i] = cost + num_wrong_flags[i]
        else:
            costs[i] = np.inf if cost == _DEAD else np.nan
    return costs


@njit(cache=True)
def _next_cell(board: MineBoard, revealed: np.uint64, node_budget: int) -> tuple[int, bool]:
    """Return the solver's next cell or ``UNKNOWN``, and whether it is a guess."""
    return choose(board, revealed, new_work(node_budget))


@njit(cache=True)
def _num_guesses(board: MineBoard, revealed: np.uint64, node_budget: int) -> int:
    """Return the number of guesses until the game ends, or ``UNKNOWN``."""
    num_guesses = 0
    while not revealed & board.mines and revealed | board.mines != board.all_cells:
        cell, is_guess = _next_cell(board, revealed, node_budget)
        if cell == UNKNOWN:
            return UNKNOWN
        num_guesses += is_guess
        revealed |= opened_by(board, revealed, cell)
    return num_guesses


@njit(cache=True)
def _mine_counts(
    board: MineBoard, revealed: np.uint64, node_budget: int
) -> tuple[np.uint64, np.ndarray]:
    """Return the number of layouts that agree, and of those with a mine in each cell ``[C]``."""
    return mine_counts(board, revealed, new_work(node_budget))
