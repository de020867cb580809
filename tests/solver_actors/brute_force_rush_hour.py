"""N of all states in reach of a board, by nothing but text: no code shared with rules or solver."""

from __future__ import annotations

import math


def moves(board: str) -> list[str]:
    """Return the boards, rows with line breaks, after every slide of every vehicle."""
    after: list[str] = []
    for letter in sorted(set(board) - {".", "x", "\n"}):
        cells = [place for place, symbol in enumerate(board) if symbol == letter]
        along = cells[1] - cells[0]
        for direction in (-along, along):
            slid, moved = board, cells
            while True:
                moved = [place + direction for place in moved]
                # A line break is no free cell either.
                if not all(
                    0 <= place < len(slid) and slid[place] in ("." + letter) for place in moved
                ):
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
    States are texts as the given one: rows with line breaks, or 36 symbols without.
    """
    if "\n" not in board:
        rows = "\n".join(board[start : start + 6] for start in range(0, 36, 6))
        return {s.replace("\n", ""): cost for s, cost in brute_force(rows, most=most).items()}
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
    frontier = [state for state in costs if "A\n" in f"{state}\n"]  # a right end of a row
    cost = 0
    while frontier:
        frontier = [state for state in set(frontier) if costs[state] == math.inf]
        for state in frontier:
            costs[state] = cost
        frontier = [before for state in frontier for before in comes_from[state]]
        cost += 1
    return costs
