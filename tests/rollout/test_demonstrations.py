"""What the small policy is taught: imperfect solver play that ends where episodes end."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cast_ray.config.train import PuzzleConfig, WarmStartConfig
from cast_ray.datasets.splits import make_boards
from cast_ray.errors import ConfigError
from cast_ray.games import get_game
from cast_ray.games.game import Effect, Status
from cast_ray.games.puzzles import Puzzle
from cast_ray.games.sokoban import SokobanState
from cast_ray.rollout.chat import ChatTokenizer, Conversation
from cast_ray.rollout.demonstrations import demonstrate, demonstrated_answer
from cast_ray.training.warm_start import check_answers_fit, demonstrations
from solver_actors.minesweeper.solver import MinesweeperSolver
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry
from tests.support.refusals import refused
from tests.support.scripted import build_test_policy

GAME = get_game("sokoban")
BUDGET = GAME.tiers["mini"].turn_budget
ORACLE = Oracle(max_bytes=2**24)
CONFIG = WarmStartConfig(steps=6, trajectories_per_step=5, careless_steps=2)
MINEFIELD = "....+\n+.+21\n++210\n22100\n00000"
"""A board whose last safe move leaves a guess."""


@cache
def puzzles() -> list[Puzzle]:
    sizes = PuzzleConfig(num_train=30, num_validation=1, num_held_out=1)
    return make_boards("sokoban", "mini", sizes).train


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(Path(tmp_path_factory.mktemp("policy")))


def replayed(talk: Conversation, puzzle: Puzzle, tokenizer: ChatTokenizer) -> list[SokobanState]:
    """Return the states that the answers of a conversation lead through."""
    states = [GAME.decode(puzzle.board)]
    for start, end in zip(talk.turn_starts, talk.turn_ends, strict=True):
        action = GAME.parse(tokenizer.text(talk.token_ids[start:end]))
        assert isinstance(action, str)
        states.append(GAME.apply(states[-1], action).state)
    return states


def shown(
    puzzle: Puzzle,
    tokenizer: ChatTokenizer,
    *,
    mistakes: float,
    ends_dead: bool = True,
    with_thoughts: bool = False,
) -> Conversation:
    solver = ORACLE.solver(puzzle.game, puzzle.board)
    return demonstrate(
        puzzle,
        game=GAME,
        good_actions=partial(get_solver_entry(puzzle.game).demonstrated, solver),
        mistakes=partial(get_solver_entry(puzzle.game).demonstrated_mistakes, GAME),
        is_dead=solver.is_dead if ends_dead else None,
        turn_budget=BUDGET,
        mistake_probability=mistakes,
        with_thoughts=with_thoughts,
        tokenizer=tokenizer,
        rng=np.random.default_rng(0),
    )


def answers_of(row: dict[str, list[int]], tokenizer: ChatTokenizer) -> list[str]:
    """Return the texts of a demonstration that are in the loss, one an answer."""
    answers: list[str] = []
    pairs = zip(row["loss_mask"], row["token_ids"], strict=True)
    for in_loss, part in groupby(pairs, key=lambda pair: pair[0]):
        if in_loss:
            answers.append(tokenizer.text([token for _, token in part]))
    return answers


def test_player_who_cannot_move_walks_into_walls_until_the_turns_are_over(
    tokenizer: ChatTokenizer,
) -> None:
    walled_in = replace(puzzles()[0], board="#P#X\n###O")
    talk = shown(walled_in, tokenizer, mistakes=0.0, ends_dead=False)
    assert len(talk.turn_starts) == BUDGET


def test_without_mistakes_every_puzzle_is_solved_in_its_cost(tokenizer: ChatTokenizer) -> None:
    for puzzle in puzzles():
        talk = shown(puzzle, tokenizer, mistakes=0.0)
        assert len(talk.turn_starts) == puzzle.cost_to_go


def test_mistakes_change_the_state_and_the_first_dead_one_ends_it(tokenizer: ChatTokenizer) -> None:
    num_dead = 0
    for puzzle in puzzles():
        solver = ORACLE.solver(puzzle.game, puzzle.board)
        states = replayed(shown(puzzle, tokenizer, mistakes=1.0), puzzle, tokenizer)
        assert all(before != after for before, after in pairwise(states))
        assert not any(solver.is_dead(state) for state in states[:-1])
        num_dead += solver.is_dead(states[-1])
    assert num_dead > 0


def test_play_goes_on_in_dead_states_where_episodes_do(tokenizer: ChatTokenizer) -> None:
    lengths = [
        [len(shown(p, tokenizer, mistakes=1.0, ends_dead=dead).turn_starts) for p in puzzles()]
        for dead in (True, False)
    ]
    assert sum(lengths[0]) < sum(lengths[1])


def test_a_thought_before_an_action_changes_the_text_and_not_the_play(
    tokenizer: ChatTokenizer,
) -> None:
    for puzzle in puzzles():
        silent, thinking = (
            replayed(
                shown(puzzle, tokenizer, mistakes=0.5, with_thoughts=thoughts), puzzle, tokenizer
            )
            for thoughts in (False, True)
        )
        assert silent == thinking


@pytest.mark.parametrize(
    ("board", "thought"),
    [
        (
            "#####\n#PXO#\n#___#",
            "Box (1, 2) to target (1, 3): right 1. Me (1, 1) to box: right 1. "
            "I can go down, right.",
        ),
        (
            "#O_\n__X\nP__",
            "Box (1, 2) to target (0, 1): up 1, left 1. Me (2, 0) to box: up 1, right 2. "
            "I can go up, right.",
        ),
        # A box on its target is passed over, as is the target.
        (
            "P*_X_O",
            "Box (0, 3) to target (0, 5): right 2. Me (0, 0) to box: right 3. I can go right.",
        ),
        (
            "#P#\nX#O",
            "Box (1, 0) to target (1, 2): right 2. Me (0, 1) to box: down 1, left 1. "
            "I can go nowhere.",
        ),
    ],
)
def test_a_thought_says_what_the_board_shows(board: str, thought: str) -> None:
    state = GAME.decode(board)
    assert GAME.thought(state) == thought
    assert GAME.parse(demonstrated_answer(GAME, state, "Up", with_thoughts=True)) == "Up"


def test_answers_with_thoughts_must_fit(tokenizer: ChatTokenizer) -> None:
    puzzle = replace(puzzles()[0], board="P*_X_O")
    with refused(ConfigError, "max_answer_tokens", "41"):
        check_answers_fit(puzzle, tokenizer=tokenizer, max_answer_tokens=41, with_thoughts=True)
    check_answers_fit(puzzle, tokenizer=tokenizer, max_answer_tokens=41)


def test_thoughts_of_a_game_without_any_are_refused(tokenizer: ChatTokenizer) -> None:
    minefield = replace(puzzles()[0], game="minesweeper", board=MINEFIELD)
    with refused(ConfigError, "warm_start.thoughts", "minesweeper"):
        check_answers_fit(minefield, tokenizer=tokenizer, max_answer_tokens=99, with_thoughts=True)


def test_careless_demonstrations_are_the_last_ones(tokenizer: ChatTokenizer) -> None:
    config = replace(CONFIG, mistake_probability=0.0, careless_mistake_probability=1.0)
    table = demonstrations(
        puzzles(), config, tokenizer=tokenizer, turn_budget=BUDGET, ends_dead=True, seed=1
    )
    perfect = demonstrations(
        puzzles(),
        replace(config, careless_steps=0),
        tokenizer=tokenizer,
        turn_budget=BUDGET,
        ends_dead=True,
        seed=1,
    )
    assert table.num_rows == perfect.num_rows == 30
    same = [table.slice(row, 1).equals(perfect.slice(row, 1)) for row in range(30)]
    assert all(same[:20])
    assert not all(same[20:])


def shown_minefield(
    tokenizer: ChatTokenizer, *, mistakes: float, careless: bool = False
) -> pa.Table:
    """Return 40 demonstrations of ``MINEFIELD``."""
    puzzle = replace(puzzles()[0], game="minesweeper", board=MINEFIELD)
    config = replace(
        CONFIG,
        steps=1,
        trajectories_per_step=40,
        careless_steps=int(careless),
        mistake_probability=mistakes,
        careless_mistake_probability=mistakes,
    )
    return demonstrations(
        [puzzle], config, tokenizer=tokenizer, turn_budget=12, ends_dead=True, seed=1
    )


def test_minesweeper_is_shown_by_all_of_its_safest_moves_even_to_a_mine(
    tokenizer: ChatTokenizer,
) -> None:
    table = shown_minefield(tokenizer, mistakes=0.0)
    game = get_game("minesweeper")
    solver = ORACLE.solver("minesweeper", MINEFIELD)
    assert isinstance(solver, MinesweeperSolver)
    outcomes, choices, other = set(), set(), 0
    for row in table.to_pylist():
        state = game.decode(MINEFIELD)
        for answer in answers_of(row, tokenizer):
            action = game.parse(answer)
            moves = solver.safest_moves(state)
            assert isinstance(action, str) and action in moves
            choices.add(len(moves))
            other += action != solver.next_action(state)
            state = game.apply(state, action).state
        outcomes.add(game.status(state))
    assert Status.LOST in outcomes and Status.PLAYING not in outcomes
    assert max(choices) > 1 and other > 0


def effects_in(table: pa.Table, tokenizer: ChatTokenizer) -> set[Effect]:
    """Return what came of the reveals in demonstrations of ``MINEFIELD``, all that there are."""
    game, effects = get_game("minesweeper"), set()
    for row in table.to_pylist():
        state = game.decode(MINEFIELD)
        for answer in answers_of(row, tokenizer):
            action = game.parse(answer)
            assert isinstance(action, str) and action.startswith("reveal")
            change = game.apply(state, action)
            effects.add(change.effect)
            state = change.state
    return effects


def test_minesweeper_is_erred_in_by_reveals_of_open_cells_too(tokenizer: ChatTokenizer) -> None:
    """A policy that never saw how an open cell is answered writes nothing readable after it."""
    table = shown_minefield(tokenizer, mistakes=1.0)
    assert effects_in(table, tokenizer) == {Effect.CHANGED, Effect.ILLEGAL}


def test_a_careless_demonstrator_of_minesweeper_opens_closed_cells(
    tokenizer: ChatTokenizer,
) -> None:
    table = shown_minefield(tokenizer, mistakes=1.0, careless=True)
    assert effects_in(table, tokenizer) == {Effect.CHANGED}


def test_the_answers_are_in_the_loss_and_nothing_else(tokenizer: ChatTokenizer) -> None:
    talk = shown(puzzles()[0], tokenizer, mistakes=0.5)
    in_loss = [index for index, wanted in enumerate(talk.loss_mask) if wanted]
    spans = zip(talk.turn_starts, talk.turn_ends, strict=True)
    assert in_loss == [index for start, end in spans for index in range(start, end)]
