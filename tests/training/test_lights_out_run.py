"""A game from another package through the parts of the loop that need neither Ray nor an engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.algorithms.credit import add_credit
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.datasets.splits import Boards, PuzzleSampler, make_boards, write_boards
from cast_ray.errors import ConfigError
from cast_ray.games.plugins import forget_plugins
from cast_ray.parquet import write_table
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.rollout.episode import EpisodeSpec, play_episode
from cast_ray.rollout.generate import GenerateRequest
from cast_ray.rollout.specs import conversation_limit, episode_groups, training_sampling
from cast_ray.rollout.trajectory import to_rollout_batch
from cast_ray.runs.report import write_report
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.replay import replay_run
from cast_ray.training.warm_start import build_initial_model, check_answers_fit, demonstrations
from lights_out.solver import LIGHTS_OUT
from solver_actors.oracle import Oracle
from tests.support import installed
from tests.support.page import parse_page
from tests.support.scripted import ScriptedPolicy

GAME = LIGHTS_OUT.game
TIER = GAME.tiers["mini"]
OVERRIDES = [
    "game=lights_out",
    "steps=2",
    "puzzles.num_train=30",
    "puzzles.num_validation=2",
    "puzzles.num_held_out=3",
    "warm_start.steps=3",
    "warm_start.careless_steps=1",
    "rollout.puzzles_per_step=3",
    "rollout.group_size=4",
    "evaluation.held_out_attempts=2",
    "learner.mini_batches=1",
    "policy.hidden_size=16",
    "policy.intermediate_size=16",
    "policy.num_layers=1",
]


@pytest.fixture(scope="module", autouse=True)
def lights_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the game in a folder of its own and yield that folder."""
    with pytest.MonkeyPatch.context() as patch:
        site = tmp_path_factory.mktemp("site")
        installed.install(installed.LIGHTS_OUT, site)
        patch.syspath_prepend(str(site))
        forget_plugins()
        yield site
    forget_plugins()


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return load_config(None, OVERRIDES)


@pytest.fixture(scope="module")
def boards(config: TrainConfig) -> Boards:
    return make_boards(config.game, config.tier, config.puzzles)


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, config: TrainConfig, boards: Boards
) -> RunDirectory:
    """Write a run of two steps, played by a scripted policy in the words of the small one."""
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", config)
    write_boards(boards, run.puzzles)
    tokenizer = initial_tokenizer(run, config, boards)
    sampler = PuzzleSampler(boards.train, per_step=3, seed=config.seed)
    for step in (1, 2):
        drawn = sampler.draw(step)
        groups = episode_groups(drawn, attempts=4, step=step, seed=0, purpose="rollout")
        batch, _ = add_credit(scored(groups, config, tokenizer), config, step=step)
        run.write_trajectories(step, batch)
    groups = episode_groups(boards.held_out, attempts=2, step=0, seed=0, purpose="held out before")
    write_table(run.evaluations / "before.parquet", scored(groups, config, tokenizer))
    return run


def initial_tokenizer(run: RunDirectory, config: TrainConfig, boards: Boards) -> ChatTokenizer:
    build_initial_model(
        run.initial_model,
        game=config.game,
        turn_budget=TIER.turn_budget,
        puzzles=boards.train,
        policy=config.policy,
        max_tokens=conversation_limit(config),
        seed=0,
    )
    return ChatTokenizer(run.initial_model, read_chat_pieces(run.initial_model))


def scored(
    groups: list[list[EpisodeSpec]], config: TrainConfig, tokenizer: ChatTokenizer
) -> pa.Table:
    """Play groups with good, bad and broken answers, and score them."""

    def answer(request: GenerateRequest) -> str:
        rng = np.random.default_rng(request.seed)
        if rng.random() < 0.1:
            return "```press```"
        board = tokenizer.text(request.token_ids).rpartition("Board:\n")[2].partition("\nS")[0]
        state = GAME.decode(board)
        actions = GAME.actions(state)
        best = LIGHTS_OUT.solver.build(state).best_action(state)
        return f"```{best if rng.random() < 0.6 else actions[rng.integers(len(actions))]}```"

    policy = ScriptedPolicy(tokenizer, answer, version=max(groups[0][0].step, 1))

    async def play() -> list:
        return await asyncio.gather(
            *(
                play_episode(
                    spec,
                    tokenizer=tokenizer,
                    generate=policy,
                    sampling=training_sampling(config),
                    is_dead=LIGHTS_OUT.solver.build(GAME.decode(spec.puzzle.board)).is_dead,
                )
                for group in groups
                for spec in group
            )
        )

    rollout = to_rollout_batch(asyncio.run(play()))
    return pa.Table.from_batches([Oracle(max_bytes=2**20).score(rollout)])


def test_replay_of_the_run_finds_no_difference(run: RunDirectory) -> None:
    report = replay_run(run.path)
    assert report.differences == ()
    assert report.num_trajectories == 2 * 12 + 6
    assert report.tokenizer == str(run.initial_model)


def test_run_of_a_game_that_is_not_installed_is_refused(
    run: RunDirectory, lights_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(lights_out)])
    forget_plugins()
    with pytest.raises(ConfigError, match=r"'lights_out'.*installed"):
        replay_run(run.path)
    monkeypatch.undo()
    forget_plugins()


def test_costs_of_the_run_are_exact_and_fall_to_zero_in_won_games(run: RunDirectory) -> None:
    rows = [row for file in run.trajectory_files() for row in pq.read_table(file).to_pylist()]
    assert {row["game"] for row in rows} == {"lights_out"}
    assert {status for row in rows for status in row["cost_status"]} == {"exact"}
    assert {row["reward"] for row in rows} == {0.0, 1.0}
    for row in rows:
        assert (row["cost_to_go"][-1] == 0) == (row["reward"] == 1.0)
        assert set(map(len, row["states"])) == {len("ooooo\n" * 5) - 1}


def test_report_shows_the_boards_as_text(run: RunDirectory, boards: Boards) -> None:
    page = parse_page(write_report(run).read_text(encoding="utf-8"))
    assert page.one("h1").text == "Lights Out mini"
    board = page.games[0]["board"]
    assert "\n".join(board["rows"][1:]) in {puzzle.board for puzzle in boards.held_out}
    assert board["picture"] is None
    assert page.all("legend") == []


def test_each_cell_of_an_observation_is_one_token(
    run: RunDirectory, boards: Boards, config: TrainConfig
) -> None:
    tokenizer = ChatTokenizer(run.initial_model, read_chat_pieces(run.initial_model))
    board = boards.train[0].board
    ids = tokenizer.answer(GAME.observe(GAME.decode(board)))[:-1]
    texts = [tokenizer.text([token]) for token in ids]
    assert texts[-len(board) :] == list(board)
    assert [tokenizer.text([token]) for token in tokenizer.answer("```press 2 3```")[:-1]] == [
        "```", "press ", "2", " ", "3", "```",
    ]  # fmt: skip


def test_demonstrations_name_actions_of_the_game(
    run: RunDirectory, boards: Boards, config: TrainConfig
) -> None:
    tokenizer = ChatTokenizer(run.initial_model, read_chat_pieces(run.initial_model))
    table = demonstrations(
        boards.train,
        config.warm_start,
        tokenizer=tokenizer,
        turn_budget=TIER.turn_budget,
        ends_dead=True,
        seed=0,
    )
    rows = table.to_pylist()
    assert len(rows) == config.warm_start.steps * config.warm_start.trajectories_per_step
    answers = [
        token
        for row in rows
        for token, is_policy in zip(row["token_ids"], row["loss_mask"], strict=True)
        if is_policy
    ]
    text = tokenizer.text(answers)
    assert {GAME.parse(f"```{part}```") for part in text.split("```") if part} <= set(
        GAME.actions(GAME.decode(boards.train[0].board))
    )


def test_answers_that_do_not_fit_are_refused_before_anything_is_played(
    run: RunDirectory, boards: Boards
) -> None:
    tokenizer = ChatTokenizer(run.initial_model, read_chat_pieces(run.initial_model))
    check_answers_fit(boards.train[0], tokenizer=tokenizer, max_answer_tokens=7)
    with pytest.raises(
        ConfigError,
        match=r"rollout\.max_answer_tokens.* 7 .*lights_out.* 6\b.*```press 0 0```",
    ):
        check_answers_fit(boards.train[0], tokenizer=tokenizer, max_answer_tokens=6)
