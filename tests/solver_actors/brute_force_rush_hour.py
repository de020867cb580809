"""N of all states in reach of a board, by nothing but text: no code shared with rules or solver."""

from __future__ import annotations

import math


def moves(board: str) -> list[str]:
    """Return the boards after every slide, of any length, of every vehicle."""
    after: list[str] = []
    for letter in sorted(set(board) - {".", "x"}):
        cells = [place for place, symbol in enumerate(board) if symbol == letter]
        along = cells[1] - cells[0]
        for direction in (-along, along):
            slid, moved = board, cells
            while True:
                moved = [place + direction for place in moved]
                if not all(0 <= place < 36 and slid[place] in ("." + letter) for place in moved):
                    break
                if along == 1 and len({place // 6 for place in moved}) > 1:
                    break
                symbols = ["." if symbol == letter else symbol for symbol in slid]
                for place in moved:
                    symbols[place] = letter
                slid = "".join(symbols)
                after.append(slid)
    return after


def brute_force(board: str, *, most: int) -> dict[str, float]:
    """Return N of all states in reach, or nothing if there are more than ``most`` of them.

    All states first, each with those it leads to; then distances backwards from the solved ones.
    """
    leads_to: dict[str, list[str]] = {}
    found = [board]
    while found:
        state = found.pop()
        if state in leads_to:
            continue
        if len(leads_to) == most:
            return {}
        leads_to[state] = moves(state)
        found += leads_to[state]
    comes_from: dict[str, list[str]] = {state: [] for state in leads_to}
    for state, after in leads_to.items():
        for each in after:
            comes_from[each].append(state)
    costs = dict.fromkeys(leads_to, math.inf)
    frontier = [state for state in costs if state[17] == "A"]  # the right end of row 2
    cost = 0
    while frontier:
        frontier = [state for state in set(frontier) if costs[state] == math.inf]
        for state in frontier:
            costs[state] = cost
        frontier = [before for state in frontier for before in comes_from[state]]
        cost += 1
    return costs
