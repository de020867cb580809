"""N of every reachable state of a Rush Hour board, by nothing but strings of 36 characters.

Shares no code with the rules or the solver that it checks. Readings of the specification:

- States beyond a solved one belong to the component: sliding goes on after success.
- A vehicle's orientation is that of its cells; A lies in row 2 (counted from 0).
- ``o`` and ``.`` both mean empty; all boards that come back have ``.``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from random import Random

SIDE = 6
EXIT_ROW = 2


def slides(board: str) -> dict[str, str]:
    """Return the board after every slide that fits, by letter, - before +, shorter first."""
    after: dict[str, str] = {}
    for letter in sorted(set(board) - set(".x")):
        places = [place for place, symbol in enumerate(board) if symbol == letter]
        step = places[1] - places[0]  # 1 along a row, 6 along a column
        for sign, ahead in (("-", places[0]), ("+", places[-1])):
            offset = -step if sign == "-" else step
            moved, length = board, 0
            while _is_beside(ahead, ahead + offset) and moved[ahead + offset] == ".":
                ahead, length = ahead + offset, length + 1
                moved = _shifted(moved, letter, offset)
                after[f"{letter}{sign}{length}"] = moved
    return after


def _is_beside(place: int, other: int) -> bool:
    """Say whether the other place is on the board, in the same row or column."""
    if not 0 <= other < SIDE * SIDE:
        return False
    return place // SIDE == other // SIDE or place % SIDE == other % SIDE


def _shifted(board: str, letter: str, offset: int) -> str:
    cells = [symbol.replace(letter, ".") for symbol in board]
    for place, symbol in enumerate(board):
        if symbol == letter:
            cells[place + offset] = letter
    return "".join(cells)


def is_solved(board: str) -> bool:
    """A touches the right edge of the exit's row."""
    return board[EXIT_ROW * SIDE + SIDE - 1] == "A"


def reachable(board: str, *, max_states: float = math.inf) -> dict[str, dict[str, str]] | None:
    """Return the slides of every reachable state; None when there are more than ``max_states``."""
    found: dict[str, dict[str, str]] = {}
    frontier = [board.replace("o", ".")]
    while frontier:
        if len(found) + len(frontier) > max_states:
            return None
        found.update((state, slides(state)) for state in frontier)
        ahead = [after for state in frontier for after in found[state].values()]
        frontier = [state for state in dict.fromkeys(ahead) if state not in found]
    return found


def slow_costs(board: str) -> dict[str, float]:
    """Return N of every reachable state: slides to a solved one, inf where there is none.

    Distances go backwards along recorded slides; that a slide can be undone is not used.
    """
    states = reachable(board) or {}
    comes_from: defaultdict[str, list[str]] = defaultdict(list)
    for state, ahead in states.items():
        for after in ahead.values():
            comes_from[after].append(state)
    costs = dict.fromkeys(states, math.inf)
    frontier = {state for state in states if is_solved(state)}
    cost = 0
    while frontier:
        costs.update(dict.fromkeys(frontier, cost))
        before = {state for after in frontier for state in comes_from[after]}
        frontier = {state for state in before if costs[state] == math.inf}
        cost += 1
    return costs


def random_board(seed: int, *, max_states: int = 3000) -> str:
    """Return a random board of 2 to 8 vehicles and 0 to 3 walls, of a small component.

    Some are solved as they stand, some can never be solved.
    """
    rng = Random(seed)
    num_vehicles = rng.randint(2, 8)
    num_walls = rng.choice((0, 0, 1, 2, 3))
    while True:
        board = _placed(rng, num_vehicles=num_vehicles, num_walls=num_walls)
        if reachable(board, max_states=max_states) is not None:
            return board


def _placed(rng: Random, *, num_vehicles: int, num_walls: int) -> str:
    cells = ["."] * (SIDE * SIDE)
    start = EXIT_ROW * SIDE + rng.choice((0, 0, 0, 1, 1, 2, 3, 4))
    cells[start : start + 2] = "AA"
    pieces = [("x", 1)] * num_walls
    pieces += [(letter, rng.choice((2, 2, 3))) for letter in "BCDEFGH"[: num_vehicles - 1]]
    for symbol, length in pieces:
        for place in rng.choice(_free_places(cells, length)):
            cells[place] = symbol
    return "".join(cells)


def _free_places(cells: list[str], length: int) -> list[list[int]]:
    """Return every stretch of empty cells of a length, along rows and along columns."""
    lines = [[row * SIDE + col for col in range(SIDE)] for row in range(SIDE)]
    lines += [[row * SIDE + col for row in range(SIDE)] for col in range(SIDE)]
    stretches = [line[i : i + length] for line in lines for i in range(SIDE - length + 1)]
    return [places for places in stretches if all(cells[place] == "." for place in places)]
