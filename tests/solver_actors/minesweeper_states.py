"""Random Minesweeper boards in play, as plain data, for tests against the slow reference."""

from __future__ import annotations

from random import Random

from tests.solver_actors.enumerated_mines import num_candidates
from tests.solver_actors.plain_minefield import Board, Cell, all_cells, neighbours, reveal
from tests.solver_actors.plain_minesweeper import decided, solver_reveal

TIERS = {"id": (6, 6, 7), "unseen": (7, 7, 10), "mini": (5, 5, 3), "mini-unseen": (5, 5, 5)}
"""Rows, columns and number of mines of a tier."""


def first_board(rng: Random, tier: str) -> Board:
    """Return a random board with its first click opened; no mine lies in the 3x3 zone around it."""
    rows, cols, num_mines = TIERS[tier]
    cells = all_cells(rows, cols)
    click = rng.choice(cells)
    outside = [
        cell for cell in cells if cell != click and cell not in neighbours(rows, cols, click)
    ]
    mines = frozenset(rng.sample(outside, num_mines))
    return reveal(Board(rows=rows, cols=cols, mines=mines, revealed=frozenset()), click)


def random_state(seed: int, tier: str) -> Board:
    """Return a random unfinished board: first click, then some safe reveals.

    A third of the boards is played by the peek-free solver (a mine that it would hit is replaced by
    a random safe cell), a third at random, a third by both in turn.
    """
    rng = Random(f"{tier} {seed}")
    while True:
        board = _played(rng, first_board(rng, tier), flags=frozenset())
        if not board.is_won:
            return board


def random_flagged_state(seed: int, tier: str) -> tuple[Board, frozenset[Cell]]:
    """Return a random unfinished board and flags on it.

    Up to 5 flags were set after the first click, on any hidden cell, and about half of them are
    lifted again: the flood fills that skipped them may have left hidden cells beside a zero.
    """
    rng = Random(f"flagged {tier} {seed}")
    while True:
        board = first_board(rng, tier)
        hidden = [c for c in all_cells(board.rows, board.cols) if c not in board.revealed]
        flags = frozenset(rng.sample(hidden, rng.randint(1, min(5, len(hidden)))))
        board = _played(rng, board, flags=flags)
        if not board.is_won:
            return board, frozenset(cell for cell in sorted(flags) if rng.random() < 0.5)


def random_guess_state(seed: int, tier: str) -> Board:
    """Return a random unfinished board on which no cell is entailed safe: rule 2 decides.

    Of all random states one in twenty is of this kind; here each is played on until it is.
    """
    rng = Random(f"guess {tier} {seed}")
    while True:
        board = _played(rng, first_board(rng, tier), flags=frozenset())
        while not board.is_won and decided(board.rows, board.cols, board.view[3])[0]:
            board = reveal(board, solver_reveal(*board.view))
        if not board.is_won:
            return board


def random_small_guess_state(seed: int) -> Board:
    """Return a board of 15 to 25 cells without a first click on which rule 2 decides.

    Here cells tie in probability and score far more often than in the tiers: in about one of 400
    the order of ties differs from row-major.
    """
    rng = Random(f"small {seed}")
    while True:
        rows, cols = rng.choice(((3, 5), (5, 3), (4, 4), (4, 5), (3, 7), (5, 5)))
        mines = frozenset(rng.sample(all_cells(rows, cols), rng.randint(2, rows * cols // 4)))
        board = Board(rows=rows, cols=cols, mines=mines, revealed=frozenset())
        safe = [cell for cell in all_cells(rows, cols) if cell not in mines]
        for cell in rng.sample(safe, rng.randint(1, 6)):
            board = reveal(board, cell)
        if not board.is_won and not decided(rows, cols, board.view[3])[0]:
            return board


def states_with_few_layouts(
    num_states: int, tier: str, *, max_candidates: int = 10**6
) -> list[Board]:
    """Return random boards in play whose probabilities full enumeration can check."""
    found: list[Board] = []
    seed = 0
    while len(found) < num_states:
        board = random_state(seed, tier)
        if num_candidates(*board.view) <= max_candidates:
            found.append(board)
        seed += 1
    return found


def _played(rng: Random, board: Board, *, flags: frozenset[Cell]) -> Board:
    """Return the board after safe reveals, up to a random number of open cells."""
    num_safe = board.rows * board.cols - len(board.mines)
    goal = rng.randint(min(len(board.revealed), num_safe - 1), num_safe - 1)
    share_of_solver = rng.choice((0.0, 0.5, 1.0))
    while len(board.revealed) < goal:
        free = [
            cell
            for cell in all_cells(board.rows, board.cols)
            if cell not in board.revealed | board.mines | flags
        ]
        if not free:
            break
        cell = rng.choice(free)
        if rng.random() < share_of_solver:
            sensible = solver_reveal(*board.view)
            cell = sensible if sensible in free else cell
        board = reveal(board, cell, flags)
    return board
