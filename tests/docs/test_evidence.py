"""Pictures and tables of recorded runs are what their committed figures say."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_ind

from cast_ray.evaluation.experiments.arms import WAYPOINTS, Arm, arms_of, climbs, gap, race
from cast_ray.evaluation.experiments.compare import compare
from cast_ray.evaluation.experiments.repeat import next_seed, plan_repetition
from cast_ray.evaluation.experiments.sweep_plan import plan_sweep, read_arms
from cast_ray.evaluation.experiments.sweep_results import write_results
from cast_ray.runs.directories import check_whole
from cast_ray.statistics import Estimate, mean_estimate, t_interval

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
ORACLES = pl.read_parquet(EVIDENCE / "rush_hour_oracles.parquet")
PAGE = (ROOT / "docs" / "value_network.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
COMPARISONS = sorted(path.parent.name for path in EVIDENCE.glob("*/runs.parquet"))
ARMS = ("exact solver", "value network", "outcome only")


def test_the_picture_is_drawn_from_the_figures_byte_for_byte(tmp_path: Path) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("cast-ray sweep"))
    given = [word for word in line.split()[4:] if "=" in word]
    arms = read_arms(ROOT / "configs" / "arms" / "rush_hour_oracles.yaml")
    plan = plan_sweep(None, given, arms=arms)
    assert [trial.name for trial in plan.trials] == ORACLES["name"].to_list()
    write_results(plan.trials, ORACLES, tmp_path)
    drawn = (tmp_path / "results.svg").read_bytes()
    assert drawn == (EVIDENCE / "rush_hour_oracles.svg").read_bytes()


@pytest.mark.parametrize("arm", ARMS)
def test_the_table_holds_the_recorded_figures(arm: str) -> None:
    rows = ORACLES.filter(pl.col("arm") == arm).sort("seed")
    assert rows["seed"].to_list() == ["0", "1", "2"]
    training = np.mean(rows["success"].to_list())
    validation = np.array([[y for y in one if y is not None] for one in rows["validation_success"]])
    after = 100 * rows["after"].to_numpy()
    cells = [
        f"{training:.1%}",
        ", ".join(f"{100 * y:.1f}" for y in validation.mean(axis=0)[[2, 5, 9]]) + "%",
        ", ".join(f"{y:.1f}" for y in after.round(1)) + "%",
        f"{after.mean():.1f}%",
    ]
    assert f" | {' | '.join(cells)} |\n" in PAGE


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_made_from_its_tables_byte_for_byte(name: str, tmp_path: Path) -> None:
    """By the command that stands on the page, which links to the tables."""
    (command,) = re.findall(rf"cast-ray compare docs/evidence/{name} --baseline (.+)", RESULTS)
    (baseline,) = shlex.split(command)
    folder = EVIDENCE / name
    compare([folder], baseline=baseline, out=tmp_path)
    kept = {path.name for path in folder.iterdir() if path.is_file()}
    needed = {"comparison.md", "comparison.svg", "curves.parquet", "runs.parquet"}
    assert needed <= kept <= needed | {"training.parquet", "tiers.parquet", "ceiling.parquet"}
    for file in kept:
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes(), file
    assert f"(evidence/{name}/comparison.md)" in RESULTS


def points(found: Estimate) -> str:
    """Return a difference in percentage points with its interval, as the pages write it."""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(
        *(100 * at for at in (found.value, found.low, found.high))
    )


def areas(arm: Arm) -> np.ndarray:
    """Return ``[S]`` areas under the validation curves."""
    span = arm.steps[-1] - arm.steps[0]
    return np.trapezoid(arm.solved.mean(axis=2), arm.steps, axis=1) / span


def area_differences(name: str) -> list[float]:
    """Return by seed the area of CAST above DAPO under the validation curve."""
    arms = {a.name: a for a in arms_of(pl.read_parquet(EVIDENCE / name / "curves.parquet"))}
    cast, dapo = arms["CAST"], arms["DAPO"]
    assert cast.seeds == dapo.seeds
    return list(areas(cast) - areas(dapo))


def test_third_prediction_is_judged_by_the_recorded_curves() -> None:
    long, short = area_differences("horizon"), area_differences("horizon_8")
    low, high = ttest_ind(long, short, equal_var=False).confidence_interval()
    found = Estimate(
        value=float(np.mean(long) - np.mean(short)), low=low, high=high, n=len(long) + len(short)
    )
    assert points(found) in (ROOT / "docs" / "horizon.md").read_text()


def test_fourth_prediction_is_judged_by_the_recorded_curves() -> None:
    curves = pl.read_parquet(EVIDENCE / "horizon_strong" / "curves.parquet")
    arms = {a.name: a for a in arms_of(curves.filter(pl.col("seed") < 2))}
    names = ("whole trajectories", "shuffled credit", "CAST")
    whole, shuffled, turns = (areas(arms[name]) - areas(arms["DAPO"]) for name in names)
    assert len(whole) == len(shuffled) == len(turns) == 2
    assert whole.mean() < turns.mean() / 2 and shuffled.mean() < turns.mean() / 2
    theirs, drawn, ours = (
        " and ".join(f"{100 * one:+.1f}" for one in by_seed) for by_seed in (whole, shuffled, turns)
    )
    text = (ROOT / "docs" / "horizon.md").read_text()
    assert f"held, two seeds | from the strong start {theirs} points, CAST {ours};" in text
    assert f"shuffled among the turns ({drawn} points above DAPO)" in text


SUMMARY = (
    "rush_hour",
    "sokoban",
    "sokoban_algorithms",
    "horizon",
    "horizon_8",
    "horizon_strong",
    "minesweeper",
    "minesweeper_idle",
)
"""Comparisons with a row in the summary of docs/results.md."""


def recorded_means(name: str) -> list[str]:
    """Return what is solved at the start, by CAST and by DAPO, as the pages write it."""
    runs = pl.read_parquet(EVIDENCE / name / "runs.parquet")
    cast, dapo = (runs.filter(pl.col("arm") == arm) for arm in ("CAST", "DAPO"))
    before = pl.concat([cast["before"], dapo["before"]])
    means = [before.mean(), cast["after"].mean(), dapo["after"].mean()]
    return [f"{float(str(mean)):.1%}" for mean in means]


def test_the_readme_has_the_recorded_means() -> None:
    runs = pl.read_parquet(EVIDENCE / "sokoban" / "runs.parquet")
    cast = runs.filter(pl.col("arm") == "CAST")
    facts = [*recorded_means("sokoban"), f"{cast['steps'][0]}, {cast.height}"]
    arms = {a.name: a for a in arms_of(pl.read_parquet(EVIDENCE / "sokoban" / "curves.parquet"))}
    area = gap(arms["CAST"], arms["DAPO"]).area
    readme = (ROOT / "README.md").read_text()
    assert f" | {' | '.join(facts)} |\n" in readme
    points, low, high = (f"{100 * at:.1f}" for at in (area.value, area.low, area.high))
    assert f"{points} points above DAPO's (95% interval {low} to {high})" in readme


@pytest.mark.parametrize("name", SUMMARY)
def test_the_summary_has_the_recorded_steps(name: str) -> None:
    arms = {a.name: a for a in arms_of(pl.read_parquet(EVIDENCE / name / "curves.parquet"))}
    cast, dapo = arms["CAST"], arms["DAPO"]

    def words(*steps: float, digits: int = 0) -> list[str]:
        return ["not reached" if math.isinf(s) else f"{s:.{digits}f}" for s in steps]

    ways = [way.steps for way in climbs([cast, dapo], dapo)]
    found = race(cast, dapo).ratio
    ratio, low, high = words(found.value, found.low, found.high, digits=2)
    expected = [
        ", ".join(recorded_means(name)),
        points(gap(cast, dapo).area),
        *(", ".join(words(*(way[WAYPOINTS.index(s)] for way in ways))) for s in (0.5, 0.75, 1.0)),
        f"{ratio} ({low} to {high})",
    ]
    assert f" | {' | '.join(expected)} |\n" in RESULTS


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_arm_of_several_seeds_can_be_run_again(name: str) -> None:
    runs = pl.read_parquet(EVIDENCE / name / "runs.parquet")
    runs = runs.filter(pl.len().over("arm") > 1)
    for arm in runs["arm"].unique(maintain_order=True):
        seed = next_seed(EVIDENCE / name, arm=arm)
        (trial,) = plan_repetition(EVIDENCE / name, arm=arm, seed=seed).trials
        assert trial.config.steps == runs.filter(pl.col("arm") == arm)["steps"][0]


@pytest.mark.parametrize("name", COMPARISONS)
def test_all_runs_of_a_comparison_begin_alike(name: str) -> None:
    """From one kept model, or from one that is taught by the same values."""
    runs = pl.read_parquet(EVIDENCE / name / "runs.parquet")
    start = r"(?:warm_start\.|policy\.path=)\S+"
    (begun,) = {tuple(sorted(re.findall(start, values))) for values in runs["values"]}
    if "warm_start.steps=0" in begun:
        (path,) = (one.removeprefix("policy.path=") for one in begun if "path" in one)
        assert (ROOT / path).is_dir()


def test_a_start_model_that_is_kept_is_the_one_that_was_written() -> None:
    kept = sorted(EVIDENCE.glob("*/start_model"))
    assert kept
    for model in kept:
        check_whole(model)


def test_table_of_the_pretrained_model_holds_the_recorded_figures() -> None:
    table = pl.read_parquet(EVIDENCE / "smollm2.parquet").sort("puzzle_id")
    solved = {
        str(arm): (of_arm["solved"] / of_arm["attempts"]).to_numpy()
        for (arm,), of_arm in table.group_by("arm", maintain_order=True)
    }
    attempts = dict(table.group_by("arm").agg(pl.col("attempts").sum()).iter_rows())
    for arm, rates in solved.items():
        rate, gain = mean_estimate(rates, seed=0), mean_estimate(rates - solved["start"], seed=0)
        cells = [arm, str(attempts[arm]), f"{rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%})"]
        if arm != "start":
            cells.append(points(gain))
        assert f"| {' | '.join(cells)} |" in RESULTS


def test_table_of_mine_rates_holds_the_recorded_figures() -> None:
    steps = pl.read_parquet(EVIDENCE / "minesweeper_mines.parquet").filter(
        4 * (pl.col("step") - 1) // pl.col("step").max() == 3  # the last quarter
    )
    of_run = steps.group_by("arm", "seed", maintain_order=True).agg(
        mines=pl.col("mines").sum() / pl.col("reveals").sum(),
        excess=(pl.col("excess") * pl.col("reveals")).sum() / pl.col("reveals").sum(),
        idle=1 - pl.col("reveals").sum() / pl.col("turns").sum(),
    )
    runs = {str(arm): own.sort("seed") for (arm,), own in of_run.group_by("arm")}
    assert all(own["seed"].to_list() == [0, 1, 2, 3] for own in runs.values())
    alone = runs["price alone"]
    for arm, own in runs.items():
        cells = [arm]
        for measure in ("mines", "excess"):
            difference = t_interval((own[measure] - alone[measure]).to_list())
            cells += [f"{own[measure].mean():.1%}", points(difference)]
        if arm == "price alone":
            cells[2::2] = ["", ""]
        row = " | ".join([*cells, f"{own['idle'].mean():.0%}"])
        assert f"| {row} |".replace("  ", " ") in RESULTS
