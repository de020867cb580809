"""The main job, unchanged, trains a game that another package adds: engine, learner, actors."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import polars as pl
import pyarrow.parquet as pq
import pytest

from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA, check_schema
from cast_ray.runs.run_directory import RunDirectory
from tests.support import installed
from tests.support.session import Session

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    installed.install(installed.LIGHTS_OUT, folder)
    return folder


@pytest.fixture(scope="module")
def finished(site: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("runs") / "run"
    done = installed.cast_ray_with(site, "train", *installed.LIGHTS_OUT_RUN, f"run_dir={path}")
    assert done.returncode == 0, done.stdout + done.stderr
    return RunDirectory(path)


def test_both_steps_are_trained_with_verified_weights(finished: RunDirectory) -> None:
    metrics = pl.read_parquet(finished.metrics)
    assert metrics["step"].to_list() == [1, 2]
    assert (metrics["grad_norm"] > 0).all()
    assert metrics["layer_error"].max() < 1e-3
    assert metrics["logprob_abs_diff"].max() < 0.02  # bfloat16 engine, float32 learner
    assert metrics["unknown_costs"].to_list() == [0, 0]
    assert (finished.model / "model.safetensors").is_file()


def test_every_state_has_its_exact_cost_and_some_turns_earn_credit(finished: RunDirectory) -> None:
    files = finished.trajectory_files()
    assert len(files) == 2
    for file in files:
        check_schema(pq.read_table(file), BATCH_SCHEMA)
        rows = pl.read_parquet(file)
        assert len(rows) == 16
        assert set(rows["game"]) == {"lights_out"}
        assert set(rows["cost_status"].explode()) == {"exact"}
        assert "changed" in set(rows["effects"].explode())
        assert rows["shifted_advantages"].explode().abs().max() >= 1
        for costs, reward in rows.select("cost_to_go", "reward").iter_rows():
            assert (costs[-1] == 0) == (reward == 1.0)
    check_schema(pq.read_table(finished.evaluations / "after.parquet"), SCORED_SCHEMA)


def test_report_and_replay_know_the_game(finished: RunDirectory, site: Path) -> None:
    assert "Lights Out" in finished.report.read_text()
    replayed = installed.cast_ray_with(site, "replay", str(finished.path))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "No difference." in replayed.stdout
    assert f"{2 * 16 + 2 * 8} trajectories" in replayed.stdout


def test_where_the_package_is_not_installed_the_run_is_refused_in_one_line(
    finished: RunDirectory, tmp_path: Path
) -> None:
    refused = installed.cast_ray_with(tmp_path, "replay", str(finished.path))
    assert refused.returncode == 2
    assert re.search(r"'lights_out'.*installed", refused.stderr)
    assert "Traceback" not in refused.stderr


def test_copy_of_sokoban_trains_replays_and_is_evaluated_and_served(tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed.install(installed.BOX_PUSH, site)
    session = Session(tmp_path, site, installed.BOX_PUSH)
    values = [value for value in installed.LIGHTS_OUT_RUN if not value.startswith("game=")]
    session.run("cast-ray", "train", "game=box_push", *values, "run_dir=run")
    said = session.run("cast-ray", "replay", "run", "--updates")
    assert "No difference." in said and "no byte differs" in said
    limits = ("--limit", "4", "--attempts", "1")
    said = session.run("cast-ray", "eval", "--model", "run", "--games", "box_push:mini", *limits)
    assert "Box Push" in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<h1>Box Push" in page
    assert page.count("data:image/svg+xml;base64,") > 4
    with session.running(["cast-ray", "serve", "run"]) as address:
        board = {"game": "box_push", "tier": "mini", "seed": 3}
        answer = httpx.post(f"http://{address}/api/move", json=board, timeout=120)
    assert answer.raise_for_status().json()["analysis"]["cost"] > 0
