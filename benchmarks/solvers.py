"""Microseconds per scored state of the oracle, and the speed of ``cast-ray solve``.

``bench_solvers`` scores what a step plays: 16 puzzles with 8 episodes each. The oracle starts empty
for every batch, reads states as text, and scores a puzzle's episodes in one call. Plain Python
scores the same states for comparison: breadth-first search over the game's rules, or for
Minesweeper the peek-free solver over sets of cells. Both must agree.

``bench_solve`` solves states in play of all built-in games, from many puzzles, mixed. The clock is
the CPU time of this process.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Status
from cast_ray.games.generators import GENERATORS, build_puzzles
from cast_ray.games.minesweeper_board import MinesweeperState
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.text import members
from cast_ray.seeds import derive_seed
from solver_actors.kernels import compile_kernels
from solver_actors.oracle import Oracle
from solver_actors.plain_search import plain_costs
from solver_actors.registry import StartSolver, get_solver_entry
from solver_actors.solve_file import solve_file
from solver_actors.solver import Solver
from tests.solver_actors.plain_minefield import Board
from tests.solver_actors.plain_minesweeper import costs_to_go

TIERS = ("id", "unseen")
NUM_BATCHES = 6
NUM_PUZZLES = 16
NUM_EPISODES = 8
SHARE_OF_BEST_ACTIONS = 0.6
"""The other actions are random among those that change the state."""
SEED = 0
PLAIN_TIER = "id"
NUM_PLAIN_PUZZLES = 8
_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The scored episodes of one puzzle. Times in microseconds per state."""

    num_states: int
    building: float
    scoring: float
    boards: list[str]


def bench_solvers() -> dict[str, float]:
    """Return microseconds per scored state of every built-in game on ID and Unseen puzzles.

    ``…_us`` includes the time to build solvers, ``…_us_scoring`` does not; median and p95 over
    puzzles, mean over all states of the batches. ``…_us_plain`` is plain Python's on the first
    puzzles, ``…_times`` its ratio to the oracle's on the same puzzles.
    """
    compile_kernels(GAMES)
    figures: dict[str, float] = {}
    for game in GAMES:
        for tier in TIERS:
            groups = _scored_groups(game, tier)
            figures |= _figures(f"{game}_{tier}", groups)
            if tier == PLAIN_TIER:
                figures |= _beside_plain(f"{game}_{tier}", game, groups[:NUM_PLAIN_PUZZLES])
    return figures


def _beside_plain(name: str, game: str, groups: Sequence[_Group]) -> dict[str, float]:
    seconds = [_plain_seconds(game, group.boards) for group in groups]
    states = sum(group.num_states for group in groups)
    plain = 1e6 * sum(seconds) / states
    own = sum((group.building + group.scoring) * group.num_states for group in groups) / states
    return {f"{name}_us_plain": round(plain, 1), f"{name}_times": round(plain / own, 1)}


def _plain_seconds(game_name: str, boards: Sequence[str]) -> float:
    game = get_game(game_name)
    begun = time.process_time()
    states = [game.decode(board) for board in boards]
    if game_name == "minesweeper":
        said = costs_to_go(minefield(state) for state in states)
    else:
        costs = plain_costs(game, states[0])
        said = [costs[state] for state in states]
    seconds = time.process_time() - begun
    exact = get_solver_entry(game_name).build(states[0]).cost_to_go(states)
    assert np.array_equal(said, exact), f"plain Python and the solver differ on {boards[0]}"
    return seconds


def minefield(state: MinesweeperState) -> Board:
    """Return the mines and the revealed cells of a board, without its flags."""
    rows, cols = state.layout.rows, state.layout.cols
    mines, revealed = (
        frozenset(divmod(cell, cols) for cell in members(cells))
        for cells in (state.layout.mines, state.revealed)
    )
    return Board(rows=rows, cols=cols, mines=mines, revealed=revealed)


def _scored_groups(game: str, tier: str) -> list[_Group]:
    solver = StartSolver(game)
    puzzles = build_puzzles(
        game=game, tier=tier, count=NUM_BATCHES * NUM_PUZZLES, seed=SEED, solve=solver.cost
    )
    rng = np.random.default_rng(SEED)
    visited = [_visited_states(puzzle, rng) for puzzle in puzzles]
    groups: list[_Group] = []
    for batch in range(NUM_BATCHES):
        oracle = Oracle(max_bytes=_CACHE_BYTES)
        for boards in visited[batch * NUM_PUZZLES : (batch + 1) * NUM_PUZZLES]:
            groups.append(_scored(oracle, game, boards))
    return groups


def _visited_states(puzzle: Puzzle, rng: np.random.Generator) -> list[str]:
    """Return the states of a puzzle's episodes, start states included, as a group visits them."""
    game = get_game(puzzle.game)
    start = game.decode(puzzle.board)
    solver = get_solver_entry(puzzle.game).build(start)
    budget = game.tiers[puzzle.tier].turn_budget
    boards: list[str] = []
    for _ in range(NUM_EPISODES):
        state = start
        boards.append(puzzle.board)
        for _ in range(budget):
            action = _action(game.scored_actions, solver, state, rng)
            state = game.apply(state, action).state
            boards.append(game.encode(state))
            if game.status(state) is not Status.PLAYING or solver.is_dead(state):
                break
    return boards


def _action(
    scored_actions: Callable[[Any], tuple[str, ...]],  # Any: any game's state
    solver: Solver[Any],
    state: Any,
    rng: np.random.Generator,
) -> str:
    best = solver.best_action(state) if rng.random() < SHARE_OF_BEST_ACTIONS else None
    choices = scored_actions(state)
    return choices[rng.integers(len(choices))] if best is None else best


def _scored(oracle: Oracle, game: str, boards: list[str]) -> _Group:
    started = time.process_time()
    oracle.solver(game, boards[0])
    built = time.process_time()
    oracle.cost_to_go(game, boards)
    scored = time.process_time()
    per_state = 1e6 / len(boards)
    return _Group(
        num_states=len(boards),
        building=(built - started) * per_state,
        scoring=(scored - built) * per_state,
        boards=boards,
    )


def _figures(name: str, groups: list[_Group]) -> dict[str, float]:
    scoring = np.array([group.scoring for group in groups])
    both = scoring + np.array([group.building for group in groups])
    num_states = np.array([group.num_states for group in groups])
    return {
        f"{name}_us_scoring_median": round(float(np.median(scoring)), 2),
        f"{name}_us_scoring_p95": round(float(np.percentile(scoring, 95)), 2),
        f"{name}_us_median": round(float(np.median(both)), 2),
        f"{name}_us_p95": round(float(np.percentile(both, 95)), 2),
        f"{name}_us_mean": round(float(np.average(both, weights=num_states)), 2),
        f"{name}_states": int(num_states.sum()),
    }


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
