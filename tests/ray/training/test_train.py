"""The main job, whole and real: engine, learner, actors, through the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from cast_ray.config.load import load_config
from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA, check_schema
from cast_ray.runs.metrics import read_validation
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.replay import replay_run
from tests.algorithms.test_functions import SHORT
from tests.support.listening import OPEN_TO_ALL, open_to_all, without_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

SMALL = (
    "steps=2",
    "puzzles.num_train=200",
    "puzzles.num_validation=4",
    "puzzles.num_held_out=8",
    "warm_start.steps=40",  # enough to answer in the right form: without actions there is no credit
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=4",
    "evaluation.every=1",
    "evaluation.held_out_attempts=2",
    "checkpoint_every=1",
    f"reward.function={SHORT}",  # the user's own, through all of the main job
)


def _cast_ray(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "cast-ray"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=without_cluster()
    )


@pytest.fixture(scope="module")
def open_to_network() -> set[str]:
    """Titles of the run's processes that were seen to listen at all addresses."""
    return set()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, open_to_network: set[str]) -> RunDirectory:
    """A run of two steps, resumed for a third, and the same without credit from the same start."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with ThreadPoolExecutor() as thread:
        running = thread.submit(_cast_ray, "train", *SMALL, f"run_dir={path}")
        while not running.done():
            open_to_network.update(open_to_all(os.getpid()))
            wait([running], timeout=1)
    first = running.result()
    assert first.returncode == 0, first.stdout + first.stderr
    resumed = _cast_ray("train", "--resume", f"run_dir={path}", "steps=3", "--outcome-alone")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    return RunDirectory(path)


def test_the_run_directory_holds_what_design_names(finished: RunDirectory) -> None:
    metrics = pl.read_parquet(finished.metrics)
    assert metrics["step"].to_list() == [1, 2, 3]
    summary = json.loads(finished.summary.read_text())
    assert summary["steps"] == 3
    for name in ("before", "after"):
        assert summary[name]["n"] == 16
        assert summary[name]["low"] <= summary[name]["success"] <= summary[name]["high"]
    assert (finished.model / "model.safetensors").is_file()
    assert list(finished.events.iterdir())
    assert "</html>" in finished.report.read_text()


def test_the_outcome_alone_is_trained_from_the_same_start_and_shown(
    finished: RunDirectory,
) -> None:
    other = RunDirectory(finished.outcome_alone)
    ours, alone = (json.loads(run.summary.read_text()) for run in (finished, other))
    assert (alone["algorithm"], alone["steps"]) == ("dapo", 3)
    assert alone["before"] == ours["before"]
    # Without credit the first step already learns something else from the same episodes.
    first, theirs = (pl.read_parquet(run.trajectory_files()[0]) for run in (finished, other))
    assert first["answers"].to_list() == theirs["answers"].to_list()
    assert first["turn_advantages"].to_list() != theirs["turn_advantages"].to_list()
    assert "without the solver’s credit: " in finished.report.read_text()
    assert "outcome_alone" in finished.report.read_text()


def test_nothing_of_a_run_listens_at_all_addresses_but_its_engines(
    finished: RunDirectory, open_to_network: set[str]
) -> None:
    assert open_to_network == OPEN_TO_ALL


def test_each_validation_is_kept_board_by_board(finished: RunDirectory) -> None:
    boards = pl.read_parquet(finished.puzzles / "validation.parquet")["puzzle_id"]
    rows = read_validation(finished.validation)
    assert rows["step"].unique().sort().to_list() == [0, 1, 2, 3]
    metrics = pl.read_parquet(finished.metrics)
    for (step,), of_step in rows.group_by("step"):
        assert sorted(of_step["puzzle_id"]) == sorted(boards)
        assert set(of_step["attempts"]) == {4}
        share = of_step["solved"].sum() / of_step["attempts"].sum()
        if step:
            assert metrics.filter(pl.col("step") == step)["validation_success"].item() == share


def test_every_stage_of_the_table_is_on_disk(finished: RunDirectory) -> None:
    files = finished.trajectory_files()
    assert [file.name for file in files] == [f"step-{step:05d}.parquet" for step in (1, 2, 3)]
    for file in files:
        table = pq.read_table(file)
        check_schema(table, BATCH_SCHEMA)
        assert table.num_rows == 16
    check_schema(pq.read_table(finished.evaluations / "after.parquet"), SCORED_SCHEMA)


def test_versions_are_those_of_the_step(finished: RunDirectory) -> None:
    """Version v plays step v, also after a resume; nothing stale is trained on."""
    for step, file in enumerate(finished.trajectory_files(), start=1):
        versions = pl.read_parquet(file)["weight_versions"].explode()
        assert set(versions.to_list()) == {step, -1}
    assert pl.read_parquet(finished.metrics)["staleness_max"].to_list() == [0, 0, 0]


def test_engine_and_learner_agree_at_every_step(finished: RunDirectory) -> None:
    metrics = pl.read_parquet(finished.metrics)
    assert metrics["logprob_abs_diff"].max() < 0.02  # bfloat16 engine, float32 learner
    assert metrics["layer_error"].max() < 1e-3


def test_the_weights_changed_in_every_step_and_the_model_is_the_last(
    finished: RunDirectory,
) -> None:
    assert (pl.read_parquet(finished.metrics)["grad_norm"] > 0).all()
    start, end = (
        (directory / "model.safetensors").read_bytes()
        for directory in (finished.start_model, finished.model)
    )
    assert start != end


def test_no_step_waits_for_a_compiler(finished: RunDirectory) -> None:
    metrics = pl.read_parquet(finished.metrics)
    assert metrics["kernel_compilations"].to_list() == [0, 0, 0]
    assert (metrics["oracle_misses"] > 0).any()  # and solvers were built


def test_replay_finds_no_difference(finished: RunDirectory) -> None:
    result = replay_run(finished.path)
    assert result.differences == ()
    assert result.num_trajectories == 3 * 16 + 2 * 16  # steps, and held-out games


def test_functions_of_the_users_are_kept_by_name_and_digest(finished: RunDirectory) -> None:
    (pinned,) = load_config(finished.config, []).functions.values()
    assert re.fullmatch(re.escape(SHORT) + "@[0-9a-f]{16}", pinned)


def test_a_finished_run_is_not_resumed_in_silence(finished: RunDirectory) -> None:
    again = _cast_ray("train", "--resume", f"run_dir={finished.path}")
    assert again.returncode == 2
    assert re.search(r"\b3 steps.*steps=", again.stderr)
    assert "Traceback" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["advantage.alfa=1"], "did you mean advantage.alpha?"),
        (["policy.path=/nowhere"], "policy.path=/nowhere is not a directory"),
        (["puzzles.file=/nowhere.parquet"], "/nowhere.parquet"),
        (["tier=huge"], "tier of sokoban must be one of id, unseen, mini, mini-unseen"),
        (["game=chess"], "chess"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    result = _cast_ray("train", f"run_dir={tmp_path / 'run'}", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()
