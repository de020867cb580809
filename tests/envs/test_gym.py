"""The Gymnasium faces of every game: the checker's opinion, ends, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import binary_dilation, label

from cast_ray.envs.gym import NUMERIC_IDS, TEXT_IDS, make_numeric_env, make_text_env
from cast_ray.envs.gym.numeric import NumericEnv
from cast_ray.errors import ConfigError, PuzzleError
from cast_ray.games import GAMES, get_game
from cast_ray.games.game import Tier
from cast_ray.games.generators import get_generator, is_winnable
from cast_ray.games.minesweeper import Minesweeper, MinesweeperState
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.sokoban import ACTIONS, SYMBOLS, Sokoban
from solver_actors.registry import get_solver_entry

FIELDS = Minesweeper()
FACES = {"text": TEXT_IDS, "numeric": NUMERIC_IDS}


@dataclass(frozen=True, kw_only=True)
class Example:
    """Boards of one game, of the size of tier mini unless said otherwise."""

    open_board: str
    other_board: str
    no_effect: str
    """An action that changes nothing on the open board."""
    one_left: str
    last_action: str
    """Solves the board with one action left."""
    won: str
    broken: str
    broken_at: str
    too_large: str
    too_large_reason: str


ROOM = "######\n#__O_#\n#__X_#\n#P_XO#\n#____#\n######"
FIELD = "+1000\n11000\n00011\n0012+\n001+2"
EXAMPLES = {
    "sokoban": Example(
        open_board=ROOM,
        other_board=ROOM.replace("#P_XO#", "#_PXO#"),
        no_effect="Left",
        one_left="######\n#____#\n#__*_#\n#_PXO#\n#____#\n######",
        last_action="Right",
        won="######\n#____#\n#__*_#\n#__P*#\n#____#\n######",
        broken=ROOM.replace("P", "?"),
        broken_at="'\\?'.*row 3, column 1",
        too_large=ROOM.replace("\n", "#\n") + "#",
        too_large_reason="mini.*6 x 6.*6 x 7.*tier",
    ),
    "rush_hour": Example(
        open_board="......\n......\nAAB...\n..B...\n..xCCC\n......".replace("\n", ""),
        other_board="......\n..B...\nAAB...\n......\n..xCCC\n......".replace("\n", ""),
        no_effect="B+1",
        one_left="......\n......\n...AA.\n..B...\n..BCCC\n......".replace("\n", ""),
        last_action="A+1",
        won="......\n......\n....AA\n..B...\n..BCCC\n......".replace("\n", ""),
        broken="......\n......\nAAB...\n......\n..BCCC\n......".replace("\n", ""),
        broken_at="vehicle B.*split.*row 4, column 2",
        too_large="......\n......\nAAB...\n..B...\n..xCCC\n.....C\n......".replace("\n", ""),
        too_large_reason="6 x 6",
    ),
    "minesweeper": Example(
        open_board=FIELD.replace("+1000", "+.000"),
        other_board=FIELD.replace("11000", "1.000"),
        no_effect="reveal 2 2",
        one_left=FIELD.replace("+1000", "+.000"),
        last_action="reveal 0 1",
        won=FIELD,
        broken=FIELD.replace("+1000", "+2000"),
        broken_at="count 2.*row 0, column 1",
        too_large=FIELD + "\n0011.",
        too_large_reason="mini.*5 x 5.*6 x 5.*tier",
    ),
}


class PluginGame(Sokoban):
    """A game that this package has never heard of."""

    name = "warehouse"


@pytest.fixture(params=["text", "numeric"])
def face(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=list(EXAMPLES))
def game(request: pytest.FixtureRequest) -> str:
    return request.param


def make(face: str, game: str, **settings: Any) -> gymnasium.Env[Any, Any]:  # Any: both faces
    settings.setdefault("tier", "mini")
    return gymnasium.make(FACES[face][game], **settings)


def puzzle(game: str, board: str) -> Puzzle:
    return Puzzle(
        game=game, tier="mini", puzzle_id="", board=board, cost_to_go=1, cost_status="exact", seed=0
    )


def answer(env: gymnasium.Env[Any, Any], action: str) -> Any:  # Any: an answer or a number
    """Return an action as the face takes it."""
    inner = env.unwrapped
    return inner.actions.index(action) if isinstance(inner, NumericEnv) else f"```{action}```"


def board_after(env: gymnasium.Env[Any, Any], info: dict[str, Any]) -> str:
    inner = env.unwrapped
    return inner.board() if isinstance(inner, NumericEnv) else info["board"]


@pytest.mark.parametrize("tier", ["id", "unseen", "mini", "mini-unseen"])
def test_checker_is_content(face: str, game: str, tier: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(face, game, tier=tier).unwrapped)


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_picture_shows_the_board_of_now_and_nothing_hidden(face: str, game: str, mode: str) -> None:
    rules, env = get_game(game), make(face, game, render_mode=mode)
    boards = [EXAMPLES[game].open_board, EXAMPLES[game].one_left]
    pictures = []
    for board in boards:
        env.reset(options={"board": board})
        pictures.append(env.render())
    env.step(answer(env, EXAMPLES[game].last_action))
    pictures.append(env.render())
    if mode == "ansi":
        states = [rules.decode(board) for board in (*boards, EXAMPLES[game].won)]
        assert pictures == ["\n".join(rules.visible_rows(state)) for state in states]
        return
    side = 32 * (5 if game == "minesweeper" else 6)
    assert {picture.shape for picture in pictures} == {(side, side, 3)}
    assert len({picture.tobytes() for picture in pictures}) == len({*boards, EXAMPLES[game].won})
    if game == "minesweeper":  # a mine under a hidden cell is drawn like a safe one
        env.reset(options={"board": EXAMPLES[game].open_board})
        picture = env.render()
        assert (picture[4:28, 4:28] == picture[4:28, 36:60]).all()


def test_module_in_the_name_registers_also_in_other_processes(game: str) -> None:
    ids = f"cast_ray.envs.gym:{NUMERIC_IDS[game]}"
    envs = gymnasium.make_vec(
        ids, 2, vectorization_mode="async", vector_kwargs={"context": "spawn"}, tier="mini"
    )
    _, info = envs.reset(seed=[3, 3])
    envs.close()
    assert len(set(info["board"])) == 1


def test_tier_may_be_a_description(face: str, tmp_path: Path) -> None:
    file = tmp_path / "wide.yaml"
    file.write_text("{rows: 5, cols: 9, num_pieces: 1, min_cost: 1, max_cost: 9, turn_budget: 9}")
    board = make(face, "sokoban", tier=str(file)).reset(seed=1)[1]["board"]
    assert [len(row) for row in board.split("\n")] == [9] * 5
    assert make(face, "sokoban", tier="boxoban").reset(seed=1)[1]["board"].count("X") == 4
    file.write_text("{rows: 0, cols: 0, num_pieces: 1, min_cost: 1, max_cost: 9, turn_budget: 9}")
    if face == "numeric":
        with pytest.raises(ConfigError, match="any size"):
            make(face, "sokoban", tier=str(file))


@pytest.mark.parametrize("tier", ["id", "unseen", "mini", "mini-unseen"])
def test_generated_boards_can_be_won_in_time(game: str, tier: str) -> None:
    rules, env = get_game(game), make("numeric", game, tier=tier)
    turns = rules.tiers[tier].turn_budget
    for seed in range(60):
        state = rules.decode(env.reset(seed=seed)[1]["board"])
        if game == "minesweeper":
            assert num_clicks(state) <= turns
        else:
            assert get_solver_entry(game).build(state).cost_to_go([state])[0] <= turns


def num_clicks(state: MinesweeperState) -> int:
    """Return the reveals of someone who knows the mines: areas of zeros, then what they leave."""
    rows = [[int(symbol in "+F") for symbol in row] for row in FIELDS.encode(state).split("\n")]
    mines = np.pad(np.array(rows), 1)
    near = sum(np.roll(mines, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))
    zeros = ((near == 0) & (mines == 0))[1:-1, 1:-1]
    hidden = np.array([[s in ".f" for s in row] for row in FIELDS.encode(state).split("\n")])
    areas, num_areas = label(zeros, np.ones((3, 3)))
    opened = binary_dilation(zeros, np.ones((3, 3)))
    num_hidden = sum(hidden[areas == i].all() for i in range(1, num_areas + 1))
    return int(num_hidden + (hidden & ~opened).sum())


@given(st.integers(0, 2**32), st.integers(0, 14))
@settings(max_examples=40, deadline=None)
def test_search_of_the_generators_agrees_with_the_solvers(seed: int, turns: int) -> None:
    for game in ("sokoban", "rush_hour"):
        tier = replace(get_game(game).tiers["mini-unseen"], min_cost=1, max_cost=30)
        state = get_generator(game)(tier, np.random.default_rng(seed))
        cost = get_solver_entry(game).build(state).cost_to_go([state])[0]
        assert is_winnable(game, state, turns) == (cost <= turns)
    wide = Tier(
        name="", rows=9, cols=9, num_pieces=8, turn_budget=turns, min_cost=1, max_cost=turns
    )
    field = get_generator("minesweeper")(wide, np.random.default_rng(seed))
    assert is_winnable("minesweeper", field, turns) == (num_clicks(field) <= turns)


def test_same_seed_gives_the_same_board(face: str, game: str) -> None:
    env = make(face, game)
    boards = [env.reset(seed=seed)[1]["board"] for seed in (1, 2, 1)]
    assert boards[0] == boards[2] != boards[1]


def test_given_puzzles_are_drawn_by_the_seed(face: str, game: str) -> None:
    boards = [EXAMPLES[game].open_board, EXAMPLES[game].other_board]
    env = make(face, game, puzzles=[puzzle(game, board) for board in boards])
    assert {env.reset(seed=seed)[1]["board"] for seed in range(20)} == set(boards)


def test_solving_pays_one_and_terminates(face: str, game: str) -> None:
    env = make(face, game)
    env.reset(options={"board": EXAMPLES[game].one_left})
    last_action = answer(env, EXAMPLES[game].last_action)
    _, reward, terminated, truncated, info = env.step(last_action)
    assert (reward, terminated, truncated, info["end_reason"]) == (1.0, True, False, "solved")
    assert board_after(env, info) == EXAMPLES[game].won


def test_hit_mine_pays_nothing_and_terminates(face: str) -> None:
    env = make(face, "minesweeper")
    env.reset(options={"board": EXAMPLES["minesweeper"].open_board})
    _, reward, terminated, truncated, info = env.step(answer(env, "reveal 3 4"))
    assert (reward, terminated, truncated, info["end_reason"]) == (0.0, True, False, "lost")


def test_deadlock_pays_nothing_and_terminates(face: str, game: str) -> None:
    seen: list[Any] = []  # Any: each game has a state type of its own
    env = make(face, game, is_dead=lambda state: bool(seen.append(state)) or True)
    env.reset(options={"board": EXAMPLES[game].open_board})
    _, reward, terminated, truncated, info = env.step(answer(env, EXAMPLES[game].no_effect))
    assert (reward, terminated, truncated, info["end_reason"]) == (0.0, True, False, "deadlock")
    assert seen == [get_game(game).decode(EXAMPLES[game].open_board)]


def test_action_without_effect_uses_up_a_turn_and_the_budget_truncates(
    face: str, game: str
) -> None:
    budget = get_game(game).tiers["mini"].turn_budget
    env = make(face, game)
    env.reset(options={"board": EXAMPLES[game].open_board})
    no_effect = answer(env, EXAMPLES[game].no_effect)
    ends = [env.step(no_effect)[1:4] for _ in range(budget)]
    assert ends == [(0.0, False, False)] * (budget - 1) + [(0.0, False, True)]


def test_step_after_the_end_is_an_error(face: str, game: str) -> None:
    env = make(face, game, is_dead=lambda state: True)
    env.reset(options={"board": EXAMPLES[game].open_board})
    env.step(answer(env, EXAMPLES[game].no_effect))
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step(answer(env, EXAMPLES[game].no_effect))


def test_step_before_reset_is_an_error(face: str, game: str) -> None:
    env = make(face, game).unwrapped
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step(answer(env, EXAMPLES[game].no_effect))


@pytest.mark.parametrize("fault", ["broken", "too_large", "won"])
def test_bad_board_is_refused_at_reset_and_among_the_puzzles(
    face: str, game: str, fault: str
) -> None:
    example = EXAMPLES[game]
    board = getattr(example, fault)
    reasons = {"broken": example.broken_at, "too_large": example.too_large_reason}
    reason = reasons.get(fault, "already won")
    with pytest.raises(PuzzleError, match=reason):
        make(face, game).reset(options={"board": board})
    with pytest.raises(PuzzleError, match=reason):
        make(face, game, puzzles=[puzzle(game, board)])


def test_board_that_is_no_text_is_refused(face: str, game: str) -> None:
    with pytest.raises(PuzzleError, match=r"board.*list"):
        make(face, game).reset(options={"board": ["######"]})


def test_lost_board_is_refused(face: str) -> None:
    with pytest.raises(PuzzleError, match="already lost"):
        make(face, "minesweeper").reset(options={"board": FIELD.replace("+1000", "*.000")})


def test_unknown_tier_is_refused(face: str, game: str) -> None:
    with pytest.raises(ConfigError, match=r"tier.*id.*'easy'"):
        make(face, game, tier="easy")


def test_unknown_game_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 'chess'"):
        make_text_env("chess")
    with pytest.raises(ConfigError, match="got 'chess'"):
        make_numeric_env("chess")


def test_any_game_has_a_text_face_and_says_where_it_has_no_numeric_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(GAMES, PluginGame.name, PluginGame())
    env = make_text_env(PluginGame.name)
    assert env.reset(options={"board": "P_X_O"})[1]["board"] == "P_X_O"
    with pytest.raises(ConfigError, match="warehouse"):
        make_numeric_env(PluginGame.name)


def test_vehicle_beyond_the_tier_is_refused_by_the_numeric_face() -> None:
    board = "......\n......\nAA.B..\n...B..\nFFF...\n......"
    reason = "vehicle F.*row 4, column 0.*mini.*A to D"
    with pytest.raises(PuzzleError, match=reason):
        make_numeric_env("rush_hour", tier="mini").reset(options={"board": board})


def test_text_face_gives_the_messages_and_takes_any_answer(game: str) -> None:
    rules, board = get_game(game), EXAMPLES[game].open_board
    env = make_text_env(game, tier="mini")
    message, _ = env.reset(options={"board": board})
    budget = rules.tiers["mini"].turn_budget
    assert message == rules.observe(rules.decode(board)) + f"\nSteps left: {budget}"
    message, *_, info = env.step("no idea")
    assert message.startswith("No action found.")
    assert (info["action"], info["effect"], info["board"]) == ("", "invalid", board)


def test_numeric_sokoban_gives_symbols_and_the_actions_that_change_something() -> None:
    env = make_numeric_env("sokoban")
    observation, _ = env.reset(options={"board": ROOM})
    symbols = np.array(list(SYMBOLS))[observation["cells"]]
    assert "\n".join("".join(row) for row in symbols) == ROOM
    assert observation["action_mask"].tolist() == [1, 1, 0, 1]
    observation, *_, info = env.step(ACTIONS.index("Right"))
    assert env.board() == ROOM.replace("#P_XO#", "#_PXO#")
    assert observation["cells"][3].tolist() == [SYMBOLS.index(s) for s in "#_PXO#"]
    assert info == {"effect": "changed", "end_reason": ""}


def test_numeric_rush_hour_gives_vehicles_by_letter_and_the_slides_that_fit() -> None:
    env = make_numeric_env("rush_hour", tier="mini")
    observation, _ = env.reset(options={"board": EXAMPLES["rush_hour"].open_board})
    assert observation["cells"][2:5].tolist() == [
        [2, 2, 3, 0, 0, 0],
        [0, 0, 3, 0, 0, 0],
        [0, 0, 1, 4, 4, 4],
    ]
    assert env.actions[8:16] == ("B-1", "B-2", "B-3", "B-4", "B+1", "B+2", "B+3", "B+4")
    fitting = [name for name, on in zip(env.actions, observation["action_mask"], strict=True) if on]
    assert fitting == ["B-1", "B-2"]
    assert len(env.actions) == 4 * 8
    *_, info = env.step(env.actions.index("D+1"))
    assert info["effect"] == "invalid"  # the tier has a D, this board has none


def test_numeric_minesweeper_gives_what_is_visible_and_the_legal_reveals_and_flags() -> None:
    env = make_numeric_env("minesweeper", tier="mini")
    observation, _ = env.reset(options={"board": FIELD.replace("+1000", "+f000")})
    assert observation["cells"].tolist() == [
        [9, 10, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 0, 1, 2, 9],
        [0, 0, 1, 9, 2],
    ]
    legal = [name for name, on in zip(env.actions, observation["action_mask"], strict=True) if on]
    assert legal == [
        *("reveal 0 0", "reveal 3 4", "reveal 4 3"),
        *("flag 0 0", "flag 0 1", "flag 3 4", "flag 4 3"),
    ]
    observation, *_ = env.step(env.actions.index("reveal 0 0"))
    assert observation["cells"][0, 0] == 11
    assert not observation["action_mask"].any()


def test_numeric_minesweeper_shows_nothing_of_what_lies_under_hidden_cells() -> None:
    env = make_numeric_env("minesweeper", tier="mini")
    boards = ("+....\n.F...\n....+\n.f...\n.....", "....+\n+f...\n.....\n.F...\n.....")
    first, second = (env.reset(options={"board": board})[0] for board in boards)
    assert first["cells"].tolist() == second["cells"].tolist()
    assert first["action_mask"].tolist() == second["action_mask"].tolist()


def test_numeric_observations_belong_to_the_caller(game: str) -> None:
    env = make_numeric_env(game, tier="mini")
    first, _ = env.reset(options={"board": EXAMPLES[game].one_left})
    kept = {key: array.copy() for key, array in first.items()}
    second, *_ = env.step(env.actions.index(EXAMPLES[game].last_action))
    assert all((first[key] == kept[key]).all() for key in kept)
    for array in (*first.values(), *second.values()):
        array[...] = 1
    assert env.board() == EXAMPLES[game].won
    assert (
        env.reset(options={"board": EXAMPLES[game].one_left})[0]["cells"] == kept["cells"]
    ).all()


@pytest.mark.parametrize("number", [-1, 4, np.int64(4)])
def test_number_of_no_action_is_refused(number: int) -> None:
    env = make_numeric_env("sokoban")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"action.*0 to 3.*{number}"):
        env.step(number)
