"""A run of real episodes is replayed without a difference; every tampering is found, and where."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.algorithms.credit import add_credit
from cast_ray.config.load import load_config, save_config
from cast_ray.datasets.splits import Boards, PuzzleSampler, write_boards
from cast_ray.errors import RunDirectoryError, TrajectoryError
from cast_ray.games.generators import build_puzzles
from cast_ray.games.puzzles import Puzzle
from cast_ray.parquet import write_table
from cast_ray.rollout.chat_template import read_chat_pieces, store_chat_pieces
from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.replay import Difference, ReplayReport, format_replay, replay_run
from solver_actors.sokoban.table import solve_sokoban
from tests.support.played import scored_table
from tests.support.scripted import build_test_policy

PUZZLES_PER_STEP, GROUP_SIZE, STEPS = 3, 4, 2
OVERRIDES = [
    f"rollout.puzzles_per_step={PUZZLES_PER_STEP}",
    f"rollout.group_size={GROUP_SIZE}",
    # Enough for about six turns, so that some episodes end by it and some by their turns.
    "rollout.response_tokens=560",
    "rollout.max_answer_tokens=12",
    "puzzles.num_held_out=2",
    "evaluation.held_out_attempts=2",
    "learner.mini_batches=1",
    f"steps={STEPS}",
]
Row = dict[str, Any]
Place = tuple[int | None, int | None, int | None, int | None, str]


def puzzles() -> list[Puzzle]:
    return build_puzzles(
        game="sokoban",
        tier="mini",
        count=PUZZLES_PER_STEP * STEPS,
        seed=15,
        solve=lambda state: float(solve_sokoban(state).cost_to_go([state])[0]),
    )


def make_run(path: Path, *overrides: str, is_permuted: bool = False) -> RunDirectory:
    """Write the directory of a run of two steps and one evaluation.

    Args:
        path: of the directory.
        overrides: of the configuration.
        is_permuted: shuffle the credit, whatever the configuration says.
    """
    config = load_config(None, [*OVERRIDES, *overrides])
    credited = config
    if is_permuted:
        credited = replace(config, advantage=replace(config.advantage, permute_credit=True))
    run = RunDirectory.create(path, config)
    tokenizer = build_test_policy(run.start_model)
    boards = puzzles()
    write_boards(Boards(train=boards, validation=[], held_out=[]), run.puzzles)
    sampler = PuzzleSampler(boards, per_step=PUZZLES_PER_STEP, seed=config.seed)
    for step in range(1, STEPS + 1):
        drawn = sampler.draw(step)
        table = scored_table(tokenizer, drawn, config, step=step, attempts=GROUP_SIZE)
        run.write_trajectories(step, add_credit(table, credited, step=step)[0])
    pl.DataFrame({"step": [1, 2]}).write_parquet(run.metrics)
    before = scored_table(tokenizer, boards[:2], config, step=0, attempts=2)
    write_table(run.evaluations / "before.parquet", before)
    return run


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(untouched: RunDirectory, tmp_path: Path) -> RunDirectory:
    """Return a copy to tamper with."""
    return RunDirectory(Path(shutil.copytree(untouched.path, tmp_path / "run")))


def step_file(run: RunDirectory, step: int = 1) -> Path:
    return run.trajectories / f"step-{step:05d}.parquet"


def tamper(path: Path, change: Callable[[list[Row]], object]) -> None:
    rows = pq.read_table(path).to_pylist()
    schema = BATCH_SCHEMA if "step-" in path.name else SCORED_SCHEMA
    change(rows)
    write_table(path, pa.Table.from_pylist(rows, schema=schema))


def place(difference: Difference) -> Place:
    d = difference
    return d.step, d.group, d.episode, d.turn, d.what


def places(run: RunDirectory) -> list[Place]:
    return [place(difference) for difference in replay_run(run.path).differences]


def find(run: RunDirectory, is_wanted: Callable[[Row], bool]) -> Row:
    """Return the first stored row of step 1 that is wanted."""
    return next(row for row in pq.read_table(step_file(run)).to_pylist() if is_wanted(row))


def is_long(row: Row) -> bool:
    return len(row["effects"]) >= 4 and row["effects"][:4] == ["changed"] * 4


def change_row(
    run: RunDirectory, row: Row, change: Callable[[Row], object]
) -> tuple[int, int, int]:
    """Tamper with one stored row and return its place."""

    def at_place(rows: list[Row]) -> None:
        change(next(r for r in rows if all(r[n] == row[n] for n in ("group", "episode"))))

    tamper(step_file(run), at_place)
    return 1, row["group"], row["episode"]


def set_entry(name: str, index: int, value: object) -> Callable[[Row], object]:
    return lambda row: row[name].__setitem__(index, value)


# The run as it is.


def test_untouched_run_has_no_difference(untouched: RunDirectory) -> None:
    report = replay_run(untouched.path)
    assert report.differences == ()
    assert (report.num_files, report.num_trajectories) == (3, STEPS * 12 + 4)
    assert report.tokenizer == str(untouched.start_model)
    assert format_replay(report).endswith("No difference.")


def test_test_run_holds_every_kind_of_end_and_turn(untouched: RunDirectory) -> None:
    tables = pa.concat_tables([pq.read_table(step_file(untouched, step)) for step in (1, 2)])
    ends = set(tables["end_reason"].to_pylist())
    assert ends >= {"solved", "deadlock", "token_budget", "truncated"}
    effects = {effect for row in tables["effects"].to_pylist() for effect in row}
    assert effects >= {"changed", "ineffective", "invalid", "truncated"}
    assert len(set(tables["reward"].to_pylist())) == 2


def test_replay_changes_no_file(untouched: RunDirectory) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        files = untouched.path.rglob("*")
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    replay_run(untouched.path)
    assert state() == before


@pytest.mark.parametrize(
    "override",
    ["advantage.transform=identity", "advantage.normalisation=none", "advantage.std=sample",
     "advantage.alpha=0", "rollout.response_tokens=2000", "algorithm=gigpo",
     "advantage.step_weight=0.5", "algorithm=distill_reverse", "algorithm=distill_forward",
     "advantage.overlong_buffer=300", "rollout.truncated=execute"],
)  # fmt: skip
def test_run_of_other_settings_has_no_difference(tmp_path: Path, override: str) -> None:
    assert places(make_run(tmp_path / "run", override)) == []


def test_token_budget_is_replayed_to_the_last_token(
    untouched: RunDirectory, tmp_path: Path
) -> None:
    row = find(untouched, is_long)
    budget = row["turn_starts"][2] - row["turn_starts"][0]  # the second observation just fills it
    run = make_run(tmp_path / "run", f"rollout.response_tokens={budget}")
    again = find(run, lambda r: (r["group"], r["episode"]) == (row["group"], row["episode"]))
    assert (again["end_reason"], len(again["effects"])) == ("token_budget", 2)
    assert places(run) == []


def test_conversation_limit_is_replayed_to_the_last_token(
    untouched: RunDirectory, tmp_path: Path
) -> None:
    row = find(untouched, is_long)
    run = make_run(tmp_path / "run", f"engine.max_model_len={row['turn_starts'][2]}")
    again = find(run, lambda r: (r["group"], r["episode"]) == (row["group"], row["episode"]))
    assert (again["end_reason"], len(again["effects"])) == ("token_budget", 2)
    assert places(run) == []
    # The same if the limit is the model's.
    stored, model = load_config(run.config, []), run.start_model / "config.json"
    save_config(replace(stored, engine=replace(stored.engine, max_model_len=0)), run.config)
    assert {"end_reason"} <= {what for *_, what in places(run)}
    model.write_text(json.dumps({"max_position_embeddings": row["turn_starts"][2]}))
    assert places(run) == []


def test_pieces_of_the_run_are_replayed_with(run: RunDirectory) -> None:
    pieces = read_chat_pieces(run.start_model)
    (run.start_model / "chat_template.jinja").write_text("{% if %}")
    store_chat_pieces(pieces, run.path)
    assert places(run) == []
    store_chat_pieces(replace(pieces, before_system="today is another day"), run.path)
    assert {what for *_, what in places(run)} == {"token_ids[0]"}


def test_executed_answer_that_was_cut_off_is_told_from_a_skipped_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "rollout.truncated=execute", "rollout.max_answer_tokens=20")
    assert places(run) == []
    stored = load_config(run.config, [])
    save_config(replace(stored, rollout=replace(stored.rollout, truncated="skip")), run.config)
    assert {"effects", "end_reason"} <= {what.partition("[")[0] for *_, what in places(run)}


def test_settings_that_are_not_the_runs_are_noticed(run: RunDirectory) -> None:
    stored = load_config(run.config, [])
    save_config(replace(stored, advantage=replace(stored.advantage, std="sample")), run.config)
    assert {what for *_, what in places(run)} == {"outcome_advantage"}


def test_without_a_tokenizer_the_rest_is_still_replayed(run: RunDirectory) -> None:
    shutil.rmtree(run.start_model)
    report = replay_run(run.path)
    assert (report.differences, report.tokenizer) == ((), "")
    assert "No tokenizer" in format_replay(report)


# One thing changed at a time.


def test_changed_reward_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["reward"] == 0)
    at = change_row(run, row, lambda row: row.update(reward=1.0))
    assert places(run) == [(*at, None, "reward")]


def test_infinite_reward_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["reward"] == 0)
    at = change_row(run, row, lambda row: row.update(reward=np.inf))
    with np.errstate(invalid="ignore"):
        assert places(run) == [(*at, None, "reward")]


def test_changed_end_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["end_reason"] == "token_budget")
    at = change_row(run, row, lambda row: row.update(end_reason="turn_budget"))
    assert places(run) == [(*at, None, "end_reason")]


def test_changed_action_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    other = "Up" if row["actions"][2] != "Up" else "Down"
    at = change_row(run, row, set_entry("actions", 2, other))
    (difference,) = replay_run(run.path).differences
    assert place(difference) == (*at, 2, "actions")
    assert (difference.stored, difference.replayed) == (other, row["actions"][2])


def test_changed_effect_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("effects", 1, "ineffective"))
    assert places(run) == [(*at, 1, "effects")]


def test_changed_answer_is_reported_with_all_that_follows(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("answers", 1, "I wait"))
    found = places(run)
    assert {(*at, 1, "answers"), (*at, 1, "actions"), (*at, 1, "effects")} <= set(found)
    assert (*at, 1, "states[2]") in found
    assert {spot[:3] for spot in found} == {at}


def test_changed_state_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    at = change_row(run, row, set_entry("states", 2, row["states"][0]))
    assert places(run) == [(*at, 1, "states[2]")]


def test_changed_cost_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: is_long(row) and row["cost_status"][3] == "exact")
    at = change_row(run, row, set_entry("cost_to_go", 3, row["cost_to_go"][3] + 1))
    (difference,) = replay_run(run.path).differences
    assert place(difference) == (*at, 2, "cost_to_go[3]")
    stored, true = row["cost_to_go"][3] + 1, row["cost_to_go"][3]
    assert (difference.stored, difference.replayed) == (f"exact {stored}", f"exact {true}")


def test_dead_state_called_unknown_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["end_reason"] == "deadlock")
    at = change_row(run, row, set_entry("cost_status", -1, "unknown"))
    last = len(row["effects"])
    assert places(run) == [(*at, last - 1, f"cost_to_go[{last}]")]


def test_changed_puzzle_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["group"] == 1 and row["episode"] == 1)
    other = find(run, lambda row: row["group"] == 0)
    at = change_row(run, row, lambda row: row.update(puzzle=other["puzzle"]))
    assert {(*at, None, "puzzle"), (*at, None, "puzzle_id")} <= set(places(run))


def test_broken_puzzle_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: row["group"] == 1 and row["episode"] == 1)
    at = change_row(run, row, lambda row: row.update(puzzle="P?"))
    assert (*at, None, "puzzle") in places(run)


def test_changed_budget_or_tier_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), lambda row: row.update(turn_budget=30, tier="id"))
    assert {(*at, None, "turn_budget"), (*at, None, "tier")} <= set(places(run))


def test_changed_turn_seed_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("turn_seeds", 1, 5))
    assert places(run) == [(*at, 1, "turn_seeds")]


def test_two_swapped_turns_are_reported(run: RunDirectory) -> None:
    """Swap whatever belongs to two turns of different actions, tokens included."""
    row = find(run, lambda row: is_long(row) and row["actions"][1] != row["actions"][2])

    def swap(row: Row) -> None:
        for name, values in row.items():
            is_per_turn = isinstance(values, list) and len(values) == len(row["effects"])
            if is_per_turn and name not in ("turn_starts", "turn_ends"):
                values[1], values[2] = values[2], values[1]
        first = slice(row["turn_starts"][1], row["turn_ends"][1])
        second = slice(row["turn_starts"][2], row["turn_ends"][2])
        ids = row["token_ids"]
        ids[first], ids[second] = ids[second], ids[first]

    at = change_row(run, row, swap)
    found = places(run)
    assert {(*at, 1, "turn_seeds"), (*at, 2, "turn_seeds")} <= set(found)
    assert any(spot[3] == 1 and spot[4].startswith("states") for spot in found)


@pytest.mark.parametrize("name", ["actions", "answers"])
def test_two_swapped_entries_are_each_reported(run: RunDirectory, name: str) -> None:
    row = find(run, lambda row: is_long(row) and row["actions"][1] != row["actions"][2])
    first, second = row[name][1:3]
    change_row(run, row, set_entry(name, 1, second))
    at = change_row(run, row, set_entry(name, 2, first))
    assert {(*at, 1, name), (*at, 2, name)} <= set(places(run))


# Tokens.


def test_changed_token_of_an_answer_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    at = change_row(run, row, set_entry("token_ids", row["turn_starts"][2], 100))
    assert places(run) == [(*at, 2, "answers")]


def test_changed_token_of_an_observation_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    token = row["turn_ends"][1] + 5
    at = change_row(run, row, set_entry("token_ids", token, 100))
    assert places(run) == [(*at, 1, f"token_ids[{token}]")]


def test_changed_token_of_the_prompt_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("token_ids", 3, 100))
    assert places(run) == [(*at, None, "token_ids[3]")]


def test_lost_end_of_turn_token_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    at = change_row(run, row, set_entry("token_ids", row["turn_ends"][1] - 1, 100))
    assert (*at, 1, "effects") in places(run)


def test_end_of_turn_within_an_answer_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    end_of_turn = row["token_ids"][row["turn_ends"][0] - 1]
    at = change_row(run, row, set_entry("token_ids", row["turn_starts"][1], end_of_turn))
    assert (*at, 1, "token_ids") in places(run)


def test_token_after_the_end_is_reported(run: RunDirectory) -> None:
    def append(row: Row) -> None:
        for name in ("token_ids", "loss_mask", "rollout_logprobs", "token_advantages"):
            row[name].append(0)
        row["weight_versions"].append(-1)

    row = find(run, is_long)
    at = change_row(run, row, append)
    last, end = len(row["effects"]) - 1, row["turn_ends"][-1]
    assert places(run) == [(*at, last, f"token_ids[{end}]")]


def test_moved_span_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    end = row["turn_ends"][1]
    at = change_row(run, row, set_entry("turn_ends", 1, end + 1))
    assert (*at, 1, f"loss_mask[{end}]") in places(run)


@pytest.mark.parametrize(
    ("name", "value"), [("loss_mask", 1), ("rollout_logprobs", -1.0), ("weight_versions", 1)]
)
def test_policy_mark_on_an_observation_is_reported(
    run: RunDirectory, name: str, value: float
) -> None:
    row = find(run, is_long)
    token = row["turn_ends"][0] + 1
    at = change_row(run, row, set_entry(name, token, value))
    assert places(run) == [(*at, 0, f"{name}[{token}]")]


def test_a_token_of_the_policy_without_a_version_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    token = row["turn_starts"][1]
    at = change_row(run, row, set_entry("weight_versions", token, -1))
    assert (*at, 1, f"weight_versions[{token}]") in places(run)


def test_a_version_that_falls_within_an_answer_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    token = row["turn_starts"][2]
    at = change_row(run, row, set_entry("weight_versions", token, row["step"] + 1))
    assert (*at, 2, f"weight_versions[{token + 1}]") in places(run)


# What was to be played.


def test_token_of_weights_that_came_later_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    start, end = row["turn_starts"][1], row["turn_ends"][1]

    def of_the_future(row: Row) -> None:
        row["weight_versions"][start:end] = [2] * (end - start)

    at = change_row(run, row, of_the_future)
    assert places(run) == [(*at, None, f"weight_versions[{start}]")]


def test_token_of_weights_older_than_the_bound_is_reported(run: RunDirectory) -> None:
    def of_the_past(rows: list[Row]) -> None:
        row = rows[0]
        row["weight_versions"] = [min(version, 1) for version in row["weight_versions"]]

    tamper(step_file(run, 2), of_the_past)
    assert [(step, what.partition("[")[0]) for step, _, _, _, what in places(run)] == [
        (2, "weight_versions")
    ]


def test_seed_that_was_not_issued_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), lambda row: row.update(seed=row["seed"] + 1))
    assert (*at, None, "seed") in places(run)


def test_group_of_another_steps_puzzle_is_reported(run: RunDirectory) -> None:
    """Skipped puzzles and repeated ones come up as groups that are not what was drawn."""
    other = pq.read_table(step_file(run, 2)).to_pylist()[:GROUP_SIZE]

    def swap(rows: list[Row]) -> None:
        for row, stranger in zip(rows, other, strict=False):
            row.update(puzzle_id=stranger["puzzle_id"])

    tamper(step_file(run), swap)
    found = {spot for spot in places(run) if spot[4] == "puzzle_id" and spot[3] is None}
    assert found == {(1, 0, episode, None, "puzzle_id") for episode in range(GROUP_SIZE)}


# Advantages.


def test_changed_shifted_advantage_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("shifted_advantages", 1, 5.0))
    assert places(run) == [(*at, 1, "shifted_advantages")]


def test_changed_solver_advantage_is_reported_with_the_turn_it_enters(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("solver_advantages", 1, 5.0))
    assert places(run) == [(*at, 1, "turn_advantages"), (*at, 1, "solver_advantages")]


def test_changed_turn_advantage_is_reported_with_its_tokens(run: RunDirectory) -> None:
    row = find(run, is_long)
    at = change_row(run, row, set_entry("turn_advantages", 2, 5.0))
    start = row["turn_starts"][2]
    assert places(run) == [(*at, 2, "turn_advantages"), (*at, 2, f"token_advantages[{start}]")]


def test_smallest_change_of_a_token_advantage_is_reported(run: RunDirectory) -> None:
    row = find(run, lambda row: is_long(row) and row["turn_advantages"][1] != 0)
    token = row["turn_ends"][1] - 1
    value = float(np.nextafter(np.float32(row["token_advantages"][token]), np.float32(9)))
    at = change_row(run, row, set_entry("token_advantages", token, value))
    assert places(run) == [(*at, 1, f"token_advantages[{token}]")]


def test_changed_outcome_advantage_is_reported(run: RunDirectory) -> None:
    row = find(run, is_long)
    at = change_row(run, row, lambda row: row.update(outcome_advantage=0.125))
    found = places(run)
    assert found[-1] == (*at, None, "outcome_advantage")
    turns = [spot for spot in found if spot[4] == "turn_advantages"]
    assert len(turns) == len(row["effects"])


def test_settings_of_another_overlong_buffer_are_noticed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "advantage.overlong_buffer=300")
    stored = load_config(run.config, [])
    other = replace(stored.advantage, overlong_buffer=200)
    save_config(replace(stored, advantage=other), run.config)
    assert {what for *_, what in places(run)} == {"outcome_advantage"}


def test_changed_step_advantage_is_reported_with_the_turn_it_enters(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "algorithm=gigpo")
    at = change_row(run, find(run, is_long), set_entry("step_advantages", 1, 5.0))
    assert places(run) == [(*at, 1, "turn_advantages"), (*at, 1, "step_advantages")]


def test_step_advantage_without_weight_is_zero(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("step_advantages", 1, 5.0))
    assert places(run) == [(*at, 1, "step_advantages")]


def test_settings_of_another_step_discount_are_noticed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "algorithm=gigpo")
    stored = load_config(run.config, [])
    save_config(replace(stored, advantage=replace(stored.advantage, step_discount=0.5)), run.config)
    assert {what for *_, what in places(run)} == {"step_advantages"}


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("runs") / "distilled"
    return make_run(path, "algorithm=distill_reverse", "distillation.temperature=2")


@pytest.fixture
def distilled_run(distilled: RunDirectory, tmp_path: Path) -> RunDirectory:
    """Return a copy to tamper with."""
    return RunDirectory(Path(shutil.copytree(distilled.path, tmp_path / "distilled")))


def test_changed_teacher_logprob_is_reported_with_the_turn_it_enters(
    distilled_run: RunDirectory,
) -> None:
    run = distilled_run
    at = change_row(run, find(run, is_long), set_entry("teacher_logprobs", 1, -5.0))
    assert places(run) == [(*at, 1, "teacher_logprobs"), (*at, 1, "turn_advantages")]


def test_infinite_teacher_logprob_is_reported(distilled_run: RunDirectory) -> None:
    run = distilled_run
    at = change_row(run, find(run, is_long), set_entry("teacher_logprobs", 1, -np.inf))
    assert places(run) == [(*at, 1, "teacher_logprobs"), (1, None, None, None, "turn_advantages")]


@pytest.mark.parametrize(("name", "value"), [("teacher_logprobs", None), ("teacher_actions", "")])
def test_teacher_made_unknown_is_reported(
    distilled_run: RunDirectory, name: str, value: str | None
) -> None:
    run = distilled_run
    at = change_row(run, find(run, is_long), set_entry(name, 1, value))
    assert (*at, 1, name) in places(run)


def test_other_action_of_the_teacher_is_reported(distilled_run: RunDirectory) -> None:
    run = distilled_run
    row = find(run, is_long)
    other = "Up" if row["teacher_actions"][2] != "Up" else "Down"
    at = change_row(run, row, set_entry("teacher_actions", 2, other))
    assert places(run) == [(*at, 2, "teacher_actions")]


def test_teacher_of_a_run_without_one_is_reported(run: RunDirectory) -> None:
    at = change_row(run, find(run, is_long), set_entry("teacher_actions", 2, "Up"))
    assert places(run) == [(*at, 2, "teacher_actions")]


def test_teacher_of_an_evaluation_is_replayed(distilled_run: RunDirectory) -> None:
    def change(rows: list[Row]) -> None:
        rows[1]["teacher_logprobs"][0] = -9.0

    tamper(distilled_run.evaluations / "before.parquet", change)
    assert places(distilled_run) == [(0, 0, 1, 0, "teacher_logprobs")]


def test_another_temperature_is_noticed(distilled_run: RunDirectory) -> None:
    run = distilled_run
    stored = load_config(run.config, [])
    other = replace(stored.distillation, temperature=0.5)
    save_config(replace(stored, distillation=other), run.config)
    assert "teacher_logprobs" in {what for *_, what in places(run)}


def test_permuted_control_has_no_difference_and_its_values_are_known(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "advantage.permute_credit=true")
    assert places(run) == []

    def change(row: Row) -> None:
        row["solver_advantages"][0] += 0.5

    at = change_row(run, find(run, is_long), change)
    assert places(run) == [(*at, 0, "turn_advantages"), (*at, 0, "solver_advantages")]


def test_permuted_credit_is_no_true_credit(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", is_permuted=True)
    assert {what for *_, what in places(run)} == {"solver_advantages"}


# What is missing.


def test_missing_row_is_reported_by_name(run: RunDirectory) -> None:
    tamper(step_file(run), lambda rows: rows.pop(5))
    assert places(run) == [
        (1, 1, 1, None, "row"),
        (1, None, None, None, "solver_advantages"),
    ]


def renumber_last_group(run: RunDirectory, group: int) -> None:
    """Give the last group of step 1 another number, as if those between had been dropped."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            if row["group"] == PUZZLES_PER_STEP - 1:
                row["group"] = group

    tamper(step_file(run), change)


def test_group_numbers_of_dynamic_sampling_may_leave_some_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "rollout.dynamic_sampling=1")
    assert places(run) == []
    renumber_last_group(run, 2 * PUZZLES_PER_STEP - 1)
    assert {what for *_, what in places(run)} == {"puzzle_id", "seed"}  # no row is missing


def test_group_number_that_no_draw_can_have_is_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "rollout.dynamic_sampling=1")
    group = 2 * PUZZLES_PER_STEP
    renumber_last_group(run, group)
    found = [spot for spot in places(run) if spot[4] == "row"]
    surplus = [(1, group, episode, None, "row") for episode in range(GROUP_SIZE)]
    assert found == [(1, None, None, None, "row"), *surplus]


def test_group_number_left_out_is_reported_without_dynamic_sampling(run: RunDirectory) -> None:
    renumber_last_group(run, PUZZLES_PER_STEP)
    assert (1, PUZZLES_PER_STEP - 1, 0, None, "row") in places(run)


def test_row_there_twice_is_reported(run: RunDirectory) -> None:
    tamper(step_file(run), lambda rows: rows.append({**rows[5], "attempt": 1}))
    difference = replay_run(run.path).differences[0]
    assert place(difference) == (1, 1, 1, None, "row")
    assert (difference.stored, difference.replayed) == ("2 times", "once")


def test_missing_group_is_reported_row_by_row(run: RunDirectory) -> None:
    tamper(step_file(run), lambda rows: rows.__delitem__(slice(4, 8)))
    missing = [spot for spot in places(run) if spot[4] == "row"]
    assert missing == [(1, 1, episode, None, "row") for episode in range(GROUP_SIZE)]


def test_row_of_another_step_is_reported(run: RunDirectory) -> None:
    tamper(step_file(run), lambda rows: rows[5].update(step=9))
    assert {(1, 1, 1, None, "row"), (9, 1, 1, None, "row")} <= set(places(run))


def test_missing_file_is_reported(run: RunDirectory) -> None:
    step_file(run, 2).unlink()
    (difference,) = replay_run(run.path).differences
    assert difference.file == "trajectories/step-00002.parquet"
    assert (difference.step, difference.what, difference.stored) == (2, "file", "missing")


def test_gap_between_files_is_reported_without_metrics(run: RunDirectory) -> None:
    run.metrics.unlink()
    step_file(run, 2).rename(step_file(run, 3))
    assert (2, None, None, None, "file") in places(run)


def test_file_that_is_cut_off_is_reported_and_the_rest_replayed(run: RunDirectory) -> None:
    path = step_file(run)
    path.write_bytes(path.read_bytes()[:1000])
    report = replay_run(run.path)
    assert [place(d) for d in report.differences] == [(1, None, None, None, "file")]
    assert report.num_files == 2


def test_file_with_other_columns_is_reported(run: RunDirectory) -> None:
    write_table(step_file(run), pq.read_table(step_file(run)).drop_columns(["reward"]))
    (difference,) = replay_run(run.path).differences
    assert "missing columns ['reward']" in difference.stored


@pytest.mark.parametrize(
    ("name", "value"),
    [("answers", ["one"]), ("states", []), ("loss_mask", [1]), ("cost_status", ["new"]),
     ("turn_starts", [9, 3]), ("solver_advantages", [0.0])],
)  # fmt: skip
def test_row_that_contradicts_itself_is_reported(
    run: RunDirectory, name: str, value: list[Any]
) -> None:
    at = change_row(run, find(run, is_long), lambda row: row.update({name: value}))
    found = places(run)
    assert (*at, None, name) in found
    assert (1, None, None, None, "solver_advantages") in found


def test_changed_cost_in_an_evaluation_is_reported(run: RunDirectory) -> None:
    def change(rows: list[Row]) -> None:
        rows[1]["cost_to_go"][0] += 1

    tamper(run.evaluations / "before.parquet", change)
    assert places(run) == [(0, 0, 1, None, "cost_to_go[0]")]


def test_missing_row_of_an_evaluation_is_reported(run: RunDirectory) -> None:
    tamper(run.evaluations / "before.parquet", lambda rows: rows.pop())
    assert places(run) == [(0, 1, 1, None, "row")]


# The report.


def test_report_names_the_place_in_words(run: RunDirectory) -> None:
    row = find(run, lambda row: row["reward"] == 0)
    at = change_row(run, row, lambda row: row.update(reward=1.0))
    text = format_replay(replay_run(run.path))
    assert "\n1 difference:\n" in text
    place = rf"step-00001\.parquet.* step 1\b.*group {at[1]}\b.*episode {at[2]}\b.*reward"
    assert re.search(rf"{place}.* 1\.0.* 0\.0$", text, re.MULTILINE)


def test_long_report_is_cut_off_with_a_count() -> None:
    one = Difference(
        file="f", step=1, group=0, episode=0, turn=2, what="actions", stored="a", replayed="b"
    )
    report = ReplayReport(
        num_files=1, num_trajectories=1, num_turns=1, tokenizer="", differences=(one,) * 100
    )
    text = format_replay(report)
    assert "100 differences:" in text
    assert text.endswith("… and 60 more")


def test_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        replay_run(tmp_path)


def test_metrics_that_cannot_be_read_are_refused(run: RunDirectory) -> None:
    run.metrics.write_text("nothing")
    with pytest.raises(TrajectoryError, match=r"metrics\.parquet"):
        replay_run(run.path)


def other(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case str():
            return f"{value}x"
        case list():
            return [other(value[0]), *value[1:]] if value else [1]
        case None:
            return 1.0
        case _:
            return 1 if math.isnan(value) else value + 1


MEASURED = {"attempt", "seconds_generation", "seconds_environment"}
"""What happened once; only the file's digest holds it."""


@pytest.mark.parametrize("name", [name for name in BATCH_SCHEMA.names if name not in MEASURED])
def test_a_change_of_any_column_is_noticed(run: RunDirectory, name: str) -> None:
    tamper(step_file(run), lambda rows: rows[0].update({name: other(rows[0][name])}))
    assert places(run)
