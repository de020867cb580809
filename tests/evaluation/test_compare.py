"""A comparison of made-up runs: what it says of them, that it can be drawn again, and refusals."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.config.load import load_config, save_config
from cast_ray.envs.text_env import SOLVED
from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.experiments.collect import run_values
from cast_ray.evaluation.experiments.compare import compare
from cast_ray.runs.metrics import keep_validation, write_metrics
from cast_ray.runs.model_files import model_digest
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from tests.support.figures import figures_in
from tests.support.made_up_run import (
    new_run,
    play,
    scored,
    scripted,
    step_row,
    write_evaluation,
    write_step,
)
from tests.support.odd_names import ODD_NAME

BOARD = "######\n#P_X_O\n######"
DETOUR = ("Right", "Left", "Right", "Right", "Right")
"""Two wasted moves of five: a regret of 2 once, 0 four times."""
VALIDATED = {"CAST": (0.25, 0.75, 1.0), "outcome only": (0.25, 0.5, 0.75)}


def made_run(path: Path, *, arm: str, seed: int) -> RunDirectory:
    run, oracle = new_run(path, seed=seed), Oracle(max_bytes=2**20)
    answers = [f"```\n{move}\n```" for move in DETOUR]
    table = scored([play(BOARD, scripted(answers), turn_budget=8, oracle=oracle)], oracle)
    for step in (1, 2):
        write_step(run, step, table)
    write_evaluation(run, "after", table)
    won = {"success": 0.5 if arm == "CAST" else 0.25, "ineffective_fraction": 0.1 * (seed + 1)}
    won["invalid_fraction"] = 0.05
    timed = {"seconds_total": 10.0, "seconds_solver": 0.5}
    rows = [step_row(1, **timed, **won), step_row(2, **timed, success=0.75, lost_fraction=0.2)]
    # After a resume: nobody knows any more what its play took.
    rows.append(step_row(3, seconds_total=1.0, seconds_solver=math.nan, is_replayed=True))
    write_metrics(run.metrics, rows)
    for step, share in enumerate(VALIDATED[arm]):
        won = round(4 * share)
        ends = [SOLVED] * won + ["turn_budget"] * (4 - won)
        two = pl.DataFrame({"puzzle_id": ["a"] * 4 + ["b"] * 4, "end_reason": ends * 2})
        keep_validation(run.validation, step, two.to_arrow())
    shares = {"success": 0.3, "low": 0.2, "high": 0.4, "n": 8}
    after = 0.5 + 0.1 * seed + (0.2 if arm == "CAST" else 0.0)
    run.write_summary(
        {
            "steps": 2,
            "seconds": 60.0,
            "before": shares,
            "after": shares | {"success": after},
            "code": "0.1.0 (code 12345678)",
        }
    )
    return run


def made_sweep(folder: Path, *, arms: Sequence[str] = tuple(VALIDATED)) -> Path:
    for arm in arms:
        for seed in (0, 1):
            name = f"arm={arm}_seed={seed}".replace(" ", "_")
            made_run(folder / "trials" / name, arm=arm, seed=seed)
    grid = {"arm": list(arms), "seed": ["0", "1"]}
    (folder / "sweep.json").write_text(json.dumps({"grid": grid, "fixed": []}))
    return folder


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of Markdown tables, row by row."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_sweep(tmp_path_factory.mktemp("sweeps") / ODD_NAME)


def test_every_figure_is_that_of_the_runs(sweep: Path, tmp_path: Path) -> None:
    text = compare([sweep], baseline="outcome only", out=tmp_path)
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    assert runs["arm"].to_list() == ["CAST", "CAST", "outcome only", "outcome only"]
    assert runs["after"].to_list() == pytest.approx([0.7, 0.8, 0.5, 0.6])
    assert runs["regret"].to_list() == pytest.approx([2 / 5] * 4)
    assert runs["solver_of_step"].to_list() == pytest.approx([1 / 20] * 4)
    assert runs["seconds_step"].to_list() == [10.0] * 4
    assert runs["steps"].to_list() == [3] * 4
    assert runs["values"].to_list() == ["advantage.alpha=0.5"] * 4
    assert runs["code"].to_list() == ["0.1.0 (code 12345678)"] * 4
    curves = pl.read_parquet(tmp_path / "curves.parquet")
    means = curves.group_by("arm", "step", maintain_order=True).agg(
        share=pl.col("solved").sum() / pl.col("attempts").sum()
    )
    for arm, expected in VALIDATED.items():
        assert means.filter(pl.col("arm") == arm)["share"].to_list() == list(expected)
    rows = rows_of(text)
    # Three steps are no four quarters.
    assert ["CAST", "50%, 75%, 0%", "0%, 20%, 0%", "20%, 0%, 0%"] in rows
    assert ["outcome only", "25%, 75%, 0%", "0%, 20%, 0%", "20%, 0%, 0%"] in rows
    # Smoothed: CAST 0.25, 0.45, 0.67; the outcome alone 0.25, 0.35, 0.51, reached after two steps.
    race = [row[1:] for row in rows if row and all(arm in row[0] for arm in VALIDATED)]
    assert race[0] == ["51.0%", "2", "2", "1.00", "1.00 to 1.00"]
    assert list(map(figures_in, race[1])) == ["67.0%", "2", "", "", ""]
    # The outcome alone climbs from 0.25 by 0.1 and 0.16.
    assert ["25%", "50%", "75%", "90%", "100%"] in [row[1:] for row in rows]
    assert ["CAST", "1", "1", "1", "2", "2"] in rows
    assert ["outcome only", "1", "2", "2", "2", "2"] in rows
    assert (tmp_path / "comparison.md").read_text() == text


@pytest.mark.parametrize(
    "given",
    [
        ["algorithm=gspo", "learner.lr=4e-4"],
        ["algorithm=dapo", "advantage.alpha=1"],
        ["policy.path=/models/one"],
        ["policy.path=/models/one", "warm_start.steps=500"],
        ["resources.preset=one_node_8_gpus", "resources.engines=1"],
    ],
)
def test_recorded_values_lead_to_the_same_configuration(given: list[str], tmp_path: Path) -> None:
    config, run = load_config(None, given), RunDirectory(tmp_path)
    save_config(config, run.config)
    values = run_values(run, RunDirectory(tmp_path / "none"))
    assert load_config(None, shlex.split(values)) == config


def test_regret_in_minesweeper_is_the_risk_above_that_of_the_safest_cell(tmp_path: Path) -> None:
    """The open 1 tells that the mine is beside it: the first reveal is safe, the second is not."""
    folder, oracle = made_sweep(tmp_path / "sweep"), Oracle(max_bytes=2**20)
    answers = [f"```\nreveal 0 {col}\n```" for col in (2, 1)]
    game = play("1+..", scripted(answers), turn_budget=8, oracle=oracle, game_name="minesweeper")
    for trial in (folder / "trials").iterdir():
        write_evaluation(RunDirectory(trial), "after", scored([game], oracle))
    compare([folder], baseline="outcome only", out=tmp_path)
    assert pl.read_parquet(tmp_path / "runs.parquet")["regret"].to_list() == [0.5] * 4


def test_tables_alone_give_the_same_bytes_again(sweep: Path, tmp_path: Path) -> None:
    first = tmp_path / ODD_NAME
    compare([sweep], baseline="outcome only", out=first)
    compare([first], baseline="outcome only", out=tmp_path / "again")
    names = sorted(path.name for path in (first).iterdir())
    tables = ["curves.parquet", "runs.parquet", "training.parquet"]
    assert names == ["comparison.md", "comparison.svg", *tables]
    for name in names:
        again = tmp_path / "again" / name
        assert (first / name).read_bytes() == again.read_bytes(), name


def made_evaluation(folder: Path) -> Path:
    """Two boards of each tier, two attempts at each, by two runs of each arm."""
    won = {
        ("CAST", "mini"): (2, 1),
        ("CAST", "mini-unseen"): (1, 0),
        ("outcome only", "mini"): (1, 1),
    }
    rows = [
        {"model": arm, "run": run, "game": "sokoban", "tier": tier, "puzzle_id": board, "n": n}
        for arm in VALIDATED
        for tier in ("mini", "mini-unseen")
        for run in (0, 1)
        for board, n in zip("ab", won.get((arm, tier), (0, 0)), strict=True)
    ]
    attempts = [
        {key: row[key] for key in row if key != "n"} | {"is_success": attempt < row["n"]}
        for row in rows
        for attempt in range(2)
    ]
    folder.mkdir()
    pl.DataFrame(attempts).write_parquet(folder / "attempts.parquet")
    return folder


def test_tiers_are_those_of_the_evaluation_and_are_kept(sweep: Path, tmp_path: Path) -> None:
    evaluation = made_evaluation(tmp_path / ODD_NAME)
    text = compare([sweep], baseline="CAST", out=tmp_path / "out", evaluation=evaluation)
    rows = rows_of(text)
    assert ["sokoban:mini", "sokoban:mini-unseen"] in [row[1:] for row in rows]
    assert ["CAST", "75.0% (50.0 to 100.0)", "25.0% (0.0 to 50.0)"] in rows
    assert ["outcome only", "50.0% (50.0 to 50.0)", "0.0% (0.0 to 0.0)"] in rows
    assert compare([tmp_path / "out"], baseline="CAST", out=tmp_path / "again") == text
    with pytest.raises(RunDirectoryError, match=r"no attempts\.parquet"):
        compare([sweep], baseline="CAST", out=tmp_path / "out", evaluation=tmp_path)


def test_recorded_runs_and_new_ones_become_one_comparison(tmp_path: Path) -> None:
    """What a sweep says in one piece, its halves say together, one of them recorded."""
    whole = made_sweep(tmp_path / "whole")
    halves = [made_sweep(tmp_path / arm, arms=[arm]) for arm in VALIDATED]
    compare(halves[:1], baseline="CAST", out=tmp_path / "recorded")
    given = [tmp_path / "recorded", halves[1]]
    assert compare(given, baseline="CAST", out=tmp_path / "both") == compare(
        [whole], baseline="CAST", out=tmp_path / "out"
    )
    for name in ("runs.parquet", "training.parquet", "comparison.svg"):
        assert (tmp_path / "both" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    refused = CliRunner().invoke(app, ["compare", *map(str, given), "--baseline", "CAST"])
    assert "--out" in str(refused.exception)


def test_arms_that_began_elsewhere_are_named_by_seed(tmp_path: Path) -> None:
    """One arm's runs taught their start models, the other's were given these; at seed 1 another."""
    sweep = made_sweep(tmp_path / "sweep")
    assert "start models" not in compare([sweep], baseline="CAST", out=tmp_path / "unknown")
    for seed in (0, 1):
        taught = RunDirectory(sweep / "trials" / f"arm=CAST_seed={seed}")
        write_model(taught.start_model, value=seed)
        given = RunDirectory(sweep / "trials" / f"arm=outcome_only_seed={seed}")
        config = load_config(given.config, ["warm_start.steps=0"], is_stored=True)
        save_config(config, given.config)
        digests = {"policy.path": model_digest(taught.start_model)}
        given.models.write_text(json.dumps(digests))
        if seed == 0:
            assert "start models" not in compare([sweep], baseline="CAST", out=tmp_path / "one")
    assert "start models" not in compare([sweep], baseline="CAST", out=tmp_path / "both")
    write_model(taught.start_model, value=2)
    text = compare([sweep], baseline="CAST", out=tmp_path / "out")
    assert text.endswith("\n\n**Not only the values differ: other start models at seed 1.**\n")
    assert compare([tmp_path / "out"], baseline="CAST", out=tmp_path / "again") == text


def write_model(folder: Path, *, value: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_file({"weight": np.array([value])}, folder / "model.safetensors")


def test_arms_that_are_not_wanted_are_left_out(sweep: Path, tmp_path: Path) -> None:
    evaluation = made_evaluation(tmp_path / "evaluation")
    compare([sweep], baseline="CAST", out=tmp_path / "all", evaluation=evaluation)
    text = compare([tmp_path / "all"], baseline="CAST", out=tmp_path / "one", only=["CAST"])
    assert "outcome only" not in text and "75.0% (50.0 to 100.0)" in text
    turned = ["outcome only", "CAST"]
    compare([sweep], baseline="CAST", out=tmp_path / "turned", only=turned)
    found = pl.read_parquet(tmp_path / "turned" / "runs.parquet")["arm"]
    assert found.unique(maintain_order=True).to_list() == turned
    with pytest.raises(ConfigError, match=r"'cast'.* CAST, outcome only"):
        compare([sweep], baseline="CAST", out=tmp_path / "none", only=["cast"])
    arguments = ["compare", str(tmp_path / "all"), "--baseline", "CAST", "--only", "CAST"]
    refused = CliRunner().invoke(app, arguments)
    assert "--out" in str(refused.exception)


def test_a_ceiling_is_shown_and_kept(sweep: Path, tmp_path: Path) -> None:
    run = made_run(tmp_path / "taught", arm="CAST", seed=3)
    shares = {"success": 0.675, "low": 0.6, "high": 0.7, "n": 8}
    better = shares | {"success": 0.695}
    run.write_summary({"steps": 0, "seconds": 1.0, "before": shares, "after": better})
    text = compare([sweep], baseline="CAST", out=tmp_path / "out", ceiling=run.path)
    assert "68.5%" in [row[4] for row in rows_of(text) if len(row) > 4]
    assert "good play" in (tmp_path / "out" / "comparison.svg").read_text()
    assert compare([tmp_path / "out"], baseline="CAST", out=tmp_path / "again") == text
    trained = made_run(tmp_path / "trained", arm="CAST", seed=4)
    with pytest.raises(ConfigError, match=r"2 steps.* steps=0"):
        compare([sweep], baseline="CAST", out=tmp_path / "out", ceiling=trained.path)


def test_a_run_that_has_not_ended_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = made_sweep(tmp_path / "sweep")
    (folder / "trials" / "arm=CAST_seed=1" / "summary.json").unlink()
    compare([folder], baseline="CAST", out=tmp_path / "out")
    assert len(pl.read_parquet(tmp_path / "out" / "runs.parquet")) == 3
    assert "arm=CAST_seed=1 is left out: it has no summary.json" in caplog.text


def test_a_run_without_held_out_results_is_named(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path / "sweep")
    summary = next(iter(sorted(folder.glob("trials/*/summary.json"))))
    found = json.loads(summary.read_text())
    summary.write_text(json.dumps({**found, "before": None}))
    with pytest.raises(RunDirectoryError, match=f"{summary.parent.name} has no held-out results"):
        compare([folder], baseline="DAPO", out=tmp_path / "out")


def test_a_seed_that_was_not_swept_is_the_runs_own(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    made_run(folder / "trials" / "arm=CAST", arm="CAST", seed=7)
    (folder / "sweep.json").write_text(json.dumps({"grid": {"arm": ["CAST"]}, "fixed": ["seed=7"]}))
    compare([folder], baseline="CAST", out=tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "runs.parquet")["seed"].to_list() == [7]


def test_what_cannot_be_compared_is_said(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'DAPO'.* CAST, outcome only"):
        compare([sweep], baseline="DAPO", out=tmp_path)
    with pytest.raises(ConfigError, match=r"CAST, seed 0 "):
        compare([sweep, sweep], baseline="CAST", out=tmp_path)
    with pytest.raises(RunDirectoryError, match=r"neither a sweep .*sweep\.json"):
        compare([tmp_path], baseline="CAST", out=tmp_path)


def test_the_command_says_it(sweep: Path, tmp_path: Path) -> None:
    given = ["compare", str(sweep), "--baseline", "outcome only", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "comparison.md").read_text() in done.output
