"""The kernels of the numeric environments say the rules a second time: they must say the same.

Both faces play one episode turn by turn, and everything that the numeric one shows is computed
anew from ``Game``, whose words the text one plays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cast_ray.envs.gym import (
    NUMERIC_RULES,
    get_numeric_rules,
    make_numeric_env,
    make_text_env,
    widest_tier,
)
from cast_ray.envs.gym.numeric import NumericEnv
from cast_ray.envs.gym.text import GameTextEnv
from cast_ray.games import get_game
from cast_ray.games.game import Game, Status
from cast_ray.games.generators import get_generator
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.sokoban import SYMBOLS
from lights_out.solver import LIGHTS_OUT
from tests.support.rooms import FIXED, rooms

NUM_STEPS = 5_000
"""Random turns on the puzzles of each tier, 20,000 a game; 20,000 a tier take half a minute."""
NUM_TURNS = 30
"""Random turns on each odd board."""
CELLS = {
    "sokoban": SYMBOLS,
    "rush_hour": ".xABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "minesweeper": "012345678.F*",
    "lights_out": ".o",
}
"""The symbols in the order of their numbers."""


class SideBySide:
    """Both faces of one game in the same episode; every turn is compared in full."""

    def __init__(self, game: Game[Any], numeric: NumericEnv[Any], text: GameTextEnv[Any]) -> None:
        self.game, self.numeric, self.text = game, numeric, text
        self.numbers = {name: number for number, name in enumerate(numeric.actions)}
        self.mask = np.zeros(0, np.int8)
        self.counts: Counter[str] = Counter()
        """Effects and end reasons that came up."""

    def reset(self, *, seed: int | None = None) -> None:
        """Begin both episodes on the same one of the numeric environment's puzzles."""
        observation, info = self.numeric.reset(seed=seed)
        _, text_info = self.text.reset(options={"board": info["board"]})
        assert text_info["board"] == info["board"]
        self._compare(observation, info["board"])

    def step(self, action: int) -> bool:
        """Play one action in both; return whether the episode has ended."""
        name = self.numeric.actions[action]
        observation, reward, terminated, truncated, info = self.numeric.step(action)
        _, *text_outcome, text_info = self.text.step(f"```{name}```")
        assert text_info["action"] == name
        assert [reward, terminated, truncated] == text_outcome
        assert info == {key: text_info[key] for key in ("effect", "end_reason")}
        assert self.numeric.board() == text_info["board"]
        self._compare(observation, text_info["board"])
        self.counts.update(value for value in info.values() if value)
        return terminated or truncated

    def play(self, *, num_steps: int, seed: int) -> None:
        """Play random turns, half of them from the mask, and start again at the end of episodes."""
        rng = np.random.default_rng(seed)
        self.reset(seed=seed)
        for _ in range(num_steps):
            legal = np.flatnonzero(self.mask)
            masked = rng.random() < 0.5 and len(legal)
            action = int(rng.choice(legal) if masked else rng.integers(len(self.mask)))
            # Or hardly any game of Minesweeper would last until it is won.
            if self._is_mine(action) and rng.random() < 0.9:
                action += len(self.mask) // 2
            if self.step(action):
                self.reset()

    def _is_mine(self, action: int) -> bool:
        """Return whether the action is the reveal of a cell with a mine."""
        cells = self.numeric.board().replace("\n", "")
        return self.game.name == "minesweeper" and action < len(cells) and cells[action] in "+F"

    def _compare(self, observation: dict[str, np.ndarray], board: str) -> None:
        """Hold an observation against what the rules say of a board."""
        state = self.game.decode(board)
        changing = set(self.game.scored_actions(state))
        if self.game.name == "minesweeper" and changing:
            # Putting a flag down changes the state and earns no cost of its own.
            changing |= {name.replace("reveal", "flag") for name in changing}
        expected = np.zeros(len(self.numeric.actions), np.int8)
        expected[[self.numbers[name] for name in changing]] = 1
        self.mask = observation["action_mask"]
        assert self.mask.tobytes() == expected.tobytes()
        assert observation["cells"].tobytes() == self._numbers_shown(board)

    def _numbers_shown(self, board: str) -> bytes:
        """Return the numbers of the cells, row by row, as one byte each."""
        board = board.replace("\n", "")
        if self.game.name == "minesweeper":
            board = board.replace("+", ".").replace("f", "F")
        return bytes(map(CELLS[self.game.name].index, board))


def faces_of(game: Game[Any], boards: list[str]) -> SideBySide:  # Any: any game's state
    """Return both faces of tier id of a game that may have other tiers than usual."""
    puzzles = [
        Puzzle(
            game=game.name,
            tier="id",
            puzzle_id="",
            board=board,
            cost_to_go=1,
            cost_status="exact",
            seed=0,
        )
        for board in boards
    ]
    rules = LIGHTS_OUT.numeric if game.name == "lights_out" else get_numeric_rules(game.name)
    numeric = NumericEnv(game, rules, puzzles=puzzles)
    return SideBySide(game, numeric, GameTextEnv(game))


def with_tier(game: Game[Any], *, rows: int, cols: int, num_pieces: int) -> Game[Any]:
    """Return the same game with one tier, id, of another size."""
    tier = replace(
        game.tiers["id"], rows=rows, cols=cols, num_pieces=num_pieces, turn_budget=NUM_TURNS
    )
    return type(f"Resized{type(game).__name__}", (type(game),), {"tiers": {"id": tier}})()


def random_lot(seed: int, *, num_vehicles: int) -> str:
    """Return a Rush Hour board with walls, letters left out, and no thought for its solution."""
    rng = np.random.default_rng(seed)
    grid = np.where(rng.random((6, 6)) < rng.uniform(0, 0.2), "x", ".")
    start = int(rng.integers(4))
    grid[2, start : start + 2] = "A"
    for letter in rng.permutation(list(ascii_uppercase[1:num_vehicles])):
        row, col = rng.integers(6, size=2).tolist()
        length = int(rng.integers(2, 4))
        view = (
            grid[row, col : col + length] if rng.random() < 0.5 else grid[row : row + length, col]
        )
        if len(view) == length and (view == ".").all():
            view[:] = letter
    return "".join(grid.ravel())


def random_field(seed: int, *, rows: int, cols: int) -> str:
    """Return a Minesweeper board with any safe cells open, as if by many clicks, and any flags."""
    rng = np.random.default_rng(seed)
    mines = rng.random((rows, cols)) < rng.uniform(0, 0.5)
    mines[rng.integers(rows), rng.integers(cols)] = False
    padded = np.pad(mines, 1)
    around = [padded[r : r + rows, c : c + cols] for r in range(3) for c in range(3)]
    counts = np.sum(around, axis=0)
    is_open = (rng.random((rows, cols)) < rng.uniform(0, 0.9)) & ~mines
    has_flag = rng.random((rows, cols)) < 0.2
    hidden = np.choose(mines + 2 * has_flag, list(".+fF"))
    grid = np.where(is_open, counts.astype(str), hidden)
    return "\n".join("".join(row) for row in grid)


@pytest.mark.parametrize(
    ("game", "tier", "wide"),
    [
        *((game, tier, False) for game in NUMERIC_RULES for tier in get_game(game).tiers),
        ("rush_hour", "id", True),  # the actions of nine vehicles on boards of seven
    ],
)
def test_faces_agree_on_every_turn_of_random_play(game: str, tier: str, wide: bool) -> None:
    rules, rng = get_game(game), np.random.default_rng(0)
    boards = [rules.encode(get_generator(game)(rules.tiers[tier], rng)) for _ in range(64)]
    puzzles = [
        Puzzle(
            game=game,
            tier=tier,
            puzzle_id="",
            board=board,
            cost_to_go=1,
            cost_status="exact",
            seed=0,
        )
        for board in boards
    ]
    arrays_tier = widest_tier(game, tier) if wide else None
    numeric = make_numeric_env(game, tier=tier, puzzles=puzzles, arrays_tier=arrays_tier)
    assert len(numeric.actions) == len(NUMERIC_RULES[game].actions(rules.tiers[tier])) + 16 * wide
    faces = SideBySide(rules, numeric, make_text_env(game, tier=tier))
    faces.play(num_steps=NUM_STEPS, seed=1)
    assert {"changed", "turn_budget"} <= faces.counts.keys()
    assert faces.counts["changed"] < NUM_STEPS


@FIXED
@given(rooms(), st.integers(0, 2**32))
def test_faces_agree_on_rooms_with_open_borders_and_other_shapes(room: str, seed: int) -> None:
    game = get_game("sokoban")
    state = game.decode(room)
    assume(game.status(state) is Status.PLAYING)
    layout = state.layout
    sized = with_tier(game, rows=layout.rows, cols=layout.cols, num_pieces=len(state.boxes))
    faces_of(sized, [room]).play(num_steps=NUM_TURNS, seed=seed)


@FIXED
@given(st.integers(0, 2**32), st.integers(1, 13))
def test_faces_agree_on_lots_with_walls_and_letters_left_out(seed: int, num_vehicles: int) -> None:
    game = get_game("rush_hour")
    board = random_lot(seed, num_vehicles=num_vehicles)
    sized = with_tier(game, rows=6, cols=6, num_pieces=num_vehicles)
    faces_of(sized, [board]).play(num_steps=NUM_TURNS, seed=seed)


@FIXED
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 7))
def test_faces_agree_on_fields_opened_at_random(seed: int, rows: int, cols: int) -> None:
    game = get_game("minesweeper")
    board = random_field(seed, rows=rows, cols=cols)
    assume(game.status(game.decode(board)) is Status.PLAYING)
    sized = with_tier(game, rows=rows, cols=cols, num_pieces=1)
    faces_of(sized, [board]).play(num_steps=NUM_TURNS, seed=seed)


def test_faces_agree_in_a_game_that_brings_no_kernel() -> None:
    game = LIGHTS_OUT.game
    tier, rng = game.tiers["id"], np.random.default_rng(0)
    boards = [game.encode(LIGHTS_OUT.generate(tier, rng)) for _ in range(20)]
    faces = faces_of(game, boards)
    faces.play(num_steps=1_000, seed=0)
    assert {"changed", "turn_budget"} <= faces.counts.keys()
    before_the_last = game.apply(game.decode("\n".join(["." * 7] * 7)), "press 6 6").state
    faces = faces_of(game, [game.encode(before_the_last)])
    faces.reset(seed=0)
    assert faces.step(faces.numbers["press 6 6"])
    assert faces.counts["solved"] == 1
