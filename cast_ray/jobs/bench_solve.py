"""How fast ``solve`` answers: states of all built-in games, in play, from many puzzles, mixed.

The clock is the CPU time of this process, as in ``bench_gym``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cast_ray.games import GAMES
from cast_ray.games.base import Status
from cast_ray.games.grid import members
from cast_ray.games.minesweeper import MinesweeperState
from cast_ray.generators import GENERATORS
from cast_ray.jobs.solve import solve_file
from cast_ray.seeds import derive_seed

TIERS = ("id", "unseen")
SEED = 0


def bench_solve(*, num_states: int = 10_000, states_per_puzzle: int = 10) -> dict[str, float]:
    """Return how long ``solve`` with ``--q`` takes for a file of states in random order.

    One state of each game is solved before the clock starts, so that no figure holds imports or
    the loading of kernels.

    Args:
        num_states: of all games and tiers together, the same number of each.
        states_per_puzzle: the first states of random play on it, fewer if that ends before.
    """
    lines = make_lines(num_states=num_states, states_per_puzzle=states_per_puzzle)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("\n".join(make_lines(num_states=len(GAMES), states_per_puzzle=1)))
        solve_file(source, target, with_q=True)
        source.write_text("\n".join(lines))
        begun = process_time()
        num_bad = solve_file(source, target, with_q=True)
        seconds = process_time() - begun
    return {
        "num_states": len(lines),
        "num_bad": num_bad,
        "states_per_puzzle": states_per_puzzle,
        "seconds": round(seconds, 3),
        "us_per_state": round(1e6 * seconds / len(lines), 1),
    }


def make_lines(*, num_states: int, states_per_puzzle: int) -> list[str]:
    """Return lines for ``solve``, the same number of each game and tier, in random order."""
    kinds = [(game, tier) for tier in TIERS for game in GAMES]
    lines = [
        line
        for number, (game, tier) in enumerate(kinds)
        for line in islice(
            _played_lines(game, tier, states_per_puzzle),
            (num_states + number) // len(kinds),
        )
    ]
    order = np.random.default_rng(derive_seed(SEED, "order")).permutation(len(lines))
    return [lines[place] for place in order]


def request_line(game: str, state: Any) -> str:
    """Return a state as a line for ``solve``. Any: each game has a state type of its own."""
    if game == "minesweeper":
        return json.dumps({"game": game, **_minefield(state)})
    board = GAMES[game].encode(state)
    return json.dumps({"game": game, "board": board.split("\n") if "\n" in board else board})


def _minefield(state: MinesweeperState) -> dict[str, Any]:
    """Return a Minesweeper state by size, mines and what is open. Any: goes into JSON."""
    rows, cols = state.layout.rows, state.layout.cols

    def grid(cells: int) -> list[str]:
        text = "".join(str(cells >> cell & 1) for cell in range(rows * cols))
        return [text[start : start + cols] for start in range(0, rows * cols, cols)]

    return {
        "rows": rows,
        "cols": cols,
        "mines": [divmod(cell, cols) for cell in members(state.layout.mines)],
        "revealed": grid(state.revealed),
        "flags": grid(state.flags),
    }


def _played_lines(game: str, tier: str, states_per_puzzle: int) -> Iterator[str]:
    """Yield the states of random play on one generated puzzle after the other, without end."""
    rules, level = GAMES[game], GAMES[game].tiers[tier]
    rng = np.random.default_rng(derive_seed(SEED, "played", game, tier))
    while True:
        state = GENERATORS[game](level, rng)
        for _ in range(states_per_puzzle):
            yield request_line(game, state)
            if rules.status(state) is not Status.PLAYING:
                break
            # Half of the time any action that has a name: that way flags come to stand.
            actions = rules.scored_actions(state) or rules.actions(state)
            if rng.random() < 0.5:
                actions = rules.actions(state)
            state = rules.apply(state, actions[rng.integers(len(actions))]).state
