"""Games and benchmarks as environments: one way to play them, by tokens, whatever is behind."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cast_ray.envs.registry import BENCHMARKS, make_environment, tier_of
from cast_ray.envs.text_env import TextEnv
from cast_ray.errors import ConfigError
from cast_ray.evaluation.build_attempts import attempts_of_trajectories
from cast_ray.evaluation.tasks import GameTier
from cast_ray.evaluation.with_players import play_with_player
from cast_ray.games import GAMES, get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.episode import Sampling, play_episode
from cast_ray.rollout.specs import episode_groups
from cast_ray.rollout.trajectory import Trajectory, to_rollout_batch
from solver_actors.oracle import Oracle
from solver_actors.registry import StartSolver
from solver_actors.scoring import Scorer
from solver_actors.teacher import SoftTeacher
from tests.support.made_shop import SOFA, write_shop
from tests.support.scripted import ScriptedPolicy, build_test_policy, in_turn

SAMPLING = Sampling(
    temperature=1.0,
    top_p=1.0,
    max_answer_tokens=200,
    prompt_tokens=4000,
    response_tokens=16384,
    conversation_tokens=20000,
    truncated="skip",
)
TRIP = ("search[corner sofa]", f"click[{SOFA}]", "click[dark red]", "click[3 seats]")


def puzzle_of(game: str) -> Puzzle:
    return build_puzzles(game=game, tier="mini", count=1, seed=3, solve=StartSolver(game).cost)[0]


@pytest.fixture
def sofa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Puzzle:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("WEBSHOP_DATA", str(write_shop(tmp_path / "data")))
    which = GameTier.parse("webshop")
    tasks = BENCHMARKS["webshop"].puzzles(which.tier)
    return next(task for task in tasks if json.loads(task.board)["asin"] == SOFA)


@pytest.mark.parametrize("name", GAMES)
def test_a_games_environment_says_what_its_text_environment_says(name: str) -> None:
    game, puzzle = get_game(name), puzzle_of(name)
    environment = make_environment(puzzle, turn_budget=6)
    state = game.decode(puzzle.board)
    env = TextEnv(game, state, turn_budget=6)
    assert environment.start() == env.start()
    assert environment.rules == game.rules
    assert environment.state() == puzzle.board
    for number in range(6):
        choices = environment.choices()
        assert choices == game.scored_actions(state)
        answer = "nothing" if number == 2 else f"```{choices[number % len(choices)]}```"
        turn, expected = environment.step(answer), env.step(answer)
        state = env.position
        assert (turn.action, turn.effect, turn.message, turn.feedback, turn.end_reason) == (
            expected.action, expected.effect, expected.message, expected.feedback,
            expected.end_reason,
        )  # fmt: skip
        assert turn.state == environment.state() == game.encode(state)
        assert turn.reward == (1.0 if turn.end_reason == "solved" else 0.0)
        if turn.end_reason:
            break


def shop_by_tokens(tmp_path: Path, puzzle: Puzzle, *actions: str) -> Trajectory:
    tokenizer = build_test_policy(tmp_path / "tiny")
    policy = ScriptedPolicy(tokenizer, in_turn(*(f"```{action}```" for action in actions)))
    [[spec]] = episode_groups([puzzle], attempts=1, step=0, seed=0, purpose="evaluation")
    return asyncio.run(
        play_episode(spec, tokenizer=tokenizer, generate=policy, sampling=SAMPLING, is_dead=None)
    )


def test_a_shopper_of_tokens_gets_the_shops_reward(tmp_path: Path, sofa: Puzzle) -> None:
    whole = shop_by_tokens(tmp_path, sofa, *TRIP, "click[buy now]")
    assert (whole.end_reason, whole.reward) == ("solved", 1.0)
    assert (whole.game, whole.tier, whole.turn_budget) == ("webshop", "test", 30)
    hasty = shop_by_tokens(tmp_path, sofa, *TRIP[:2], "click[buy now]")
    assert hasty.end_reason == "lost"
    assert 0 < hasty.reward < 1
    assert len(hasty.states) == len(hasty.actions) + 1 == 4
    assert len(set(hasty.states[:3])) == 3


def test_nobody_solves_a_benchmark_so_its_costs_are_unknown_and_not_zero(
    tmp_path: Path, sofa: Puzzle
) -> None:
    played = [shop_by_tokens(tmp_path, sofa, *TRIP[:2], "click[buy now]")]
    mixed = [*played, replace(played[0], episode=1)]
    oracle = Oracle(max_bytes=2**20, teacher=SoftTeacher(temperature=1.0, rescue="cost"))
    scored = oracle.score(to_rollout_batch(mixed))
    assert set(scored.column("cost_status").flatten().to_pylist()) == {"unknown"}
    assert scored.column("teacher_logprobs").flatten().null_count == 2 * 3
    scorer = Scorer(oracle)
    table = pa.Table.from_batches([scored])
    first, second = attempts_of_trajectories(table, scorer, model="m", run=0)
    assert all(math.isnan(cost) for cost in first.costs)
    assert not first.is_success and first.reward == pytest.approx(0.6)
    assert first.answer_tokens == tuple(
        end - start for start, end in zip(played[0].turn_starts, played[0].turn_ends, strict=True)
    )
    assert first.prompt_tokens == sum(played[0].turn_starts)
    assert second.attempt == 1


def test_a_random_shopper_follows_its_seed(sofa: Puzzle) -> None:
    def shop(seed: int) -> list[tuple[str, ...]]:
        attempts = play_with_player(
            "random",
            [sofa],
            label="random",
            turn_budget=30,
            attempts=3,
            seed=seed,
            deadlock_ends_episode=True,
            on_puzzle=lambda done, total: None,
        )
        assert all("illegal" not in attempt.effects for attempt in attempts)
        return [attempt.actions for attempt in attempts]

    assert shop(0) == shop(0) != shop(1)


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'go'.*sokoban.*webshop"):
        tier_of("go", "")
