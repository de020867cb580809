"""N of every state of a room, by nothing but text: shares no code with the rules or the solver."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations


def moves(text: str) -> list[str]:
    """Return the four boards after Up, Down, Left, Right; a blocked move gives the same board."""
    line = text.find("\n") + 1 or len(text) + 1
    return [_moved(text, offset) for offset in (-line, line, -1, 1)]


def _moved(text: str, offset: int) -> str:
    here = text.index("P") if "P" in text else text.index("S")
    ahead, beyond = here + offset, here + 2 * offset
    cells = dict(enumerate(text))  # a place without a cell is a wall, as the end of a line is
    if cells.get(ahead) in ("X", "*"):
        if cells.get(beyond) not in ("_", "O"):
            return text
        cells[beyond] = "*" if cells[beyond] == "O" else "X"
        cells[ahead] = "O" if cells[ahead] == "*" else "_"
    if cells.get(ahead) not in ("_", "O"):
        return text
    cells[ahead] = "S" if cells[ahead] == "O" else "P"
    cells[here] = "O" if cells[here] == "S" else "_"
    return "".join(cells.values())


def all_states(text: str) -> list[str]:
    """Return every placement of the player and as many boxes as the room has."""
    bare = text.translate(str.maketrans("XP*S", "__OO"))
    floor = [place for place, symbol in enumerate(bare) if symbol in "_O"]
    num_boxes = text.count("X") + text.count("*")
    states: list[str] = []
    for boxes in combinations(floor, num_boxes):
        for player in set(floor).difference(boxes):
            cells = list(bare)
            for box in boxes:
                cells[box] = "*" if bare[box] == "O" else "X"
            cells[player] = "S" if bare[player] == "O" else "P"
            states.append("".join(cells))
    return states


def brute_force(text: str) -> dict[str, float]:
    """Return N of all states of a room: forward moves of all of them, then distances backwards."""
    costs = dict.fromkeys(all_states(text), math.inf)
    comes_from: defaultdict[str, list[str]] = defaultdict(list)
    for state in costs:
        for after in moves(state):
            comes_from[after].append(state)
    frontier = [state for state in costs if "X" not in state]
    cost = 0
    while frontier:
        frontier = [state for state in set(frontier) if costs[state] == math.inf]
        for state in frontier:
            costs[state] = cost
        frontier = [before for state in frontier for before in comes_from[state]]
        cost += 1
    return costs
