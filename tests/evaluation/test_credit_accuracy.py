"""Accuracy of credit: the recorded runs of the repository, against loops over their rows."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from cast_ray.algorithms.credit import add_advantages
from cast_ray.cli.sweep import credit as credit_command
from cast_ray.config.learning import AdvantageConfig
from cast_ray.errors import ConfigError, RunDirectoryError
from cast_ray.evaluation.credit_accuracy import OWN_SOURCES, SOURCES, study_credit
from cast_ray.evaluation.credit_figure import credit_markdown
from cast_ray.parquet import read_table, write_table
from cast_ray.rollout.trajectory import (
    BATCH_SCHEMA,
    ROLLOUT_SCHEMA,
    costs_of,
    with_costs,
)
from cast_ray.statistics import t_interval
from solver_actors.oracle import Oracle
from tests.support.credit_tables import changed, scored

DEMO = Path(__file__).parents[2] / "serve" / "demo"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def studied() -> dict[str, pl.DataFrame]:
    return {name: study_credit(DEMO / name) for name in ("sokoban", "rush_hour")}


def overall(found: pl.DataFrame) -> dict[str, Row]:
    rows = found.filter(pl.col("distance").is_null()).to_dicts()
    return {row["source"]: row for row in rows}


def rows_of(game: str) -> list[list[Row]]:
    files = sorted((DEMO / game / "trajectories").glob("step-*.parquet"))
    return [read_table(file).to_pylist() for file in files]


def lost(before: float, after: float) -> float:
    """What a turn lost, written once more: none if best, one if it waits, all if it kills."""
    return math.inf if math.isinf(after) else after - before + 1


def plain_turns(rows: list[Row]) -> list[tuple[int, float, float, float]]:
    """(trajectory, cost before, loss, outcome advantage) of each turn, in loops."""
    found = []
    for place, row in enumerate(rows):
        costs = [
            math.inf if status == "infinite" else cost
            for cost, status in zip(row["cost_to_go"], row["cost_status"], strict=True)
        ]
        rewards = [one["reward"] for one in rows if one["group"] == row["group"]]
        spread = pstdev(rewards)
        outcome = (row["reward"] - fmean(rewards)) / (spread + 1e-6) if spread > 1e-6 else 0.0
        for turn, effect in enumerate(row["effects"]):
            if effect != "truncated" and math.isfinite(costs[turn]):
                loss = lost(costs[turn], costs[turn + 1])
                found.append((place, costs[turn], loss, outcome))
    return found


@pytest.mark.parametrize("game", ["sokoban", "rush_hour"])
def test_figures_of_the_outcome_are_those_of_plain_loops(
    studied: dict[str, pl.DataFrame], game: str
) -> None:
    steps = [plain_turns(rows) for rows in rows_of(game)]
    correlations = [
        spearmanr([-loss for *_, loss, _ in turns], [outcome for *_, outcome in turns]).statistic
        for turns in steps
    ]
    every = [turn for turns in steps for turn in turns]
    judged = [(loss == 0, credit) for _, _, loss, credit in every if loss == 0 or loss > 1]
    wrong = sum((credit < 0) if best else (credit > 0) for best, credit in judged)
    row = overall(studied[game])["outcome (GRPO, DAPO)"]
    assert row["num_turns"] == len(every)
    assert row["num_steps"] == len(steps)
    assert row["correlation"] == pytest.approx(fmean(correlations), abs=1e-9)
    assert row["wrong_sign"] == pytest.approx(wrong / len(judged))
    assert row["no_sign"] == pytest.approx(sum(c == 0 for _, c in judged) / len(judged))
    noise = []
    for turns in steps:
        by_loss: dict[float, list[float]] = {}
        for _, _, loss, credit in turns:
            by_loss.setdefault(loss, []).append(credit)
        inside = sum(len(own) * pstdev(own) ** 2 for own in by_loss.values()) / len(turns)
        noise.append(inside / pstdev([credit for *_, credit in turns]) ** 2)
    assert row["noise"] == pytest.approx(fmean(noise))


@pytest.mark.parametrize("game", ["sokoban", "rush_hour"])
def test_outcome_has_no_variance_within_a_trajectory_and_turns_have(
    studied: dict[str, pl.DataFrame], game: str
) -> None:
    rows = overall(studied[game])
    for name in ("outcome (GRPO, DAPO)", "CAST, whole trajectories, α = 1"):
        assert rows[name]["within"] == pytest.approx(0, abs=1e-12)
    shares = [rows[f"CAST, α = {alpha:g}"]["within"] for alpha in (0.01, 0.1, 0.3, 1)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.2


def test_more_weight_of_the_turns_makes_credit_more_accurate(
    studied: dict[str, pl.DataFrame],
) -> None:
    for found in studied.values():
        rows = overall(found)
        ranks = [rows[f"CAST, α = {alpha:g}"]["correlation"] for alpha in (0.01, 0.1, 0.3, 1)]
        assert ranks == sorted(ranks)
        assert rows["outcome (GRPO, DAPO)"]["correlation"] < ranks[0]
        assert rows["CAST, shuffled, α = 1"]["correlation"] < ranks[-1] / 2


def one_game(path: Path, game: str = "sokoban") -> Path:
    """Return a copy of a recorded run with its first step alone."""
    shutil.copytree(DEMO / game, path)
    for file in sorted((path / "trajectories").glob("step-*.parquet"))[1:]:
        file.unlink()
    return path


def first_file(run: Path) -> Path:
    return next((run / "trajectories").glob("step-*.parquet"))


def test_distances_are_classes_of_the_cost_before_a_turn(tmp_path: Path) -> None:
    run = one_game(tmp_path / "run", "rush_hour")
    turns = [turn[1:] for turn in plain_turns(rows_of("rush_hour")[0])]
    found = study_credit(run).filter(
        pl.col("distance") == 4, pl.col("source") == "outcome (GRPO, DAPO)"
    )
    own = [(-loss, credit) for before, loss, credit in turns if 2 < before <= 4]
    assert found["correlation"].to_list() == [pytest.approx(spearmanr(own).statistic)]


def test_run_without_exact_costs_gets_them_from_the_solver(tmp_path: Path) -> None:
    run = one_game(tmp_path / "run")
    true = study_credit(run)
    table = read_table(first_file(run))
    rollout = table.select(ROLLOUT_SCHEMA.names).combine_chunks().to_batches()[0]
    unknown = np.full(sum(map(len, table["states"].to_pylist())), np.nan)
    blind = pa.Table.from_batches([with_costs(rollout, unknown)])
    write_table(first_file(run), add_advantages(blind, AdvantageConfig(alpha=0.0))[0])
    assert study_credit(run).equals(true)


def test_value_network_is_judged_by_its_estimates(tmp_path: Path) -> None:
    run = one_game(tmp_path / "run")
    plain = study_credit(run)
    table = read_table(first_file(run))
    rollout = table.select(ROLLOUT_SCHEMA.names).combine_chunks().to_batches()[0]
    # A network that says the opposite of every cost, and the same of every lost state.
    costs = [costs_of(row) for row in table.to_pylist()]
    estimates = np.concatenate([np.where(np.isinf(one), 0.0, -one) for one in costs])
    estimated = with_costs(rollout, None, estimates=estimates)
    batch, _ = add_advantages(pa.Table.from_batches([estimated]), AdvantageConfig())
    write_table(first_file(run), batch)
    config = (run / "config.yaml").read_text()
    config = config.replace("oracle: exact", "oracle: value_net")
    config = config.replace("value_net:\n  path: ''", "value_net:\n  path: /some/network")
    (run / "config.yaml").write_text(config)
    found = study_credit(run)
    rows = overall(found)
    assert set(rows) == {*SOURCES, OWN_SOURCES["value_net"]}
    network, exact = rows[OWN_SOURCES["value_net"]], overall(plain)["CAST, α = 1"]
    assert network["correlation"] < 0 < exact["correlation"]
    assert network["wrong_sign"] > 0.8
    assert found.filter(pl.col("source") != OWN_SOURCES["value_net"]).equals(plain)


def test_hidden_mines_are_judged_by_risk_and_not_by_luck(tmp_path: Path) -> None:
    run = one_game(tmp_path / "run", "minesweeper")
    table = read_table(first_file(run))
    found = study_credit(run)
    reveals = sum(
        effect == "changed" and action.startswith("reveal")
        for row in table.to_pylist()
        for effect, action in zip(row["effects"], row["actions"], strict=True)
    )
    assert found["num_turns"][0] == reveals
    assert overall(found)["CAST, α = 1"]["correlation"] > 0.3


def test_turn_of_unknown_cost_has_no_distance(tmp_path: Path) -> None:
    """As where a large minefield's layouts were too many, but the risk of a cell is known."""
    run = one_game(tmp_path / "run", "minesweeper")
    table = read_table(first_file(run))
    costs = np.concatenate([costs_of(row) for row in table.to_pylist()])
    costs[0] = np.nan
    rollout = table.select(ROLLOUT_SCHEMA.names).combine_chunks().to_batches()[0]
    partly = pa.Table.from_batches([with_costs(rollout, costs)])
    write_table(first_file(run), add_advantages(partly, AdvantageConfig())[0])
    classes = study_credit(run)["distance"]
    assert classes.drop_nulls().is_not_nan().all()


def test_credit_apart_from_luck_is_a_source_of_its_own_and_less_noisy(tmp_path: Path) -> None:
    run = one_game(tmp_path / "run", "minesweeper")
    plain = study_credit(run)
    rollout = read_table(first_file(run)).select(ROLLOUT_SCHEMA.names).combine_chunks()
    scored_anew = Oracle(max_bytes=2**24, expected="cost").score(rollout.to_batches()[0])
    batch, _ = add_advantages(pa.Table.from_batches([scored_anew]), AdvantageConfig())
    write_table(first_file(run), batch)
    config = (run / "config.yaml").read_text().replace("oracle: exact", "oracle: expected")
    (run / "config.yaml").write_text(config)
    found = study_credit(run)
    expected = OWN_SOURCES["expected"]
    # All others are still computed from the true costs.
    assert found.filter(pl.col("source") != expected).equals(plain)
    row, true = overall(found)[expected], overall(plain)["CAST, α = 1"]
    assert row["noise"] < true["noise"]
    assert row["correlation"] > true["correlation"]


def made_run(path: Path, table: pa.Table) -> Path:
    run = one_game(path)
    write_table(first_file(run), add_advantages(table, AdvantageConfig())[0])
    return run


def test_credit_that_is_the_loss_itself_has_neither_noise_nor_errors(tmp_path: Path) -> None:
    # No group has an outcome to compare, so all credit is the solver's.
    rng = np.random.default_rng(3)
    rows = [
        (changed(4, group=group, episode=0, reward=0.0), [float(c) for c in rng.integers(1, 9, 5)])
        for group in range(30)
    ]
    row = overall(study_credit(made_run(tmp_path / "run", scored(*rows))))["CAST, α = 0.1"]
    assert row["correlation"] == pytest.approx(1)
    assert row["noise"] == pytest.approx(0, abs=1e-12)
    assert (row["wrong_sign"], row["no_sign"]) == (0, 0)


def test_what_cannot_be_studied_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError):
        study_credit(tmp_path / "nothing")
    run = one_game(tmp_path / "empty")
    first_file(run).unlink()
    with pytest.raises(ConfigError, match="no turn of a training game has a known loss"):
        study_credit(run)
    bench = one_game(tmp_path / "bench")
    text = (bench / "config.yaml").read_text()
    values = {"game: sokoban": "game: alfworld", "oracle: exact": "oracle: none"}
    for old, new in {**values, "  alpha: 1.0": "  alpha: 0.0"}.items():
        text = text.replace(old, new)
    (bench / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match="no exact solver knows alfworld"):
        study_credit(bench)
    mixed = one_game(tmp_path / "mixed")
    rows = read_table(first_file(mixed)).to_pylist()
    rows[0]["game"] = "rush_hour"
    write_table(first_file(mixed), pa.Table.from_pylist(rows, schema=BATCH_SCHEMA))
    with pytest.raises(ConfigError, match="its games are mixed: rush_hour, sokoban"):
        study_credit(mixed)
    damaged = one_game(tmp_path / "damaged")
    first_file(damaged).write_bytes(first_file(damaged).read_bytes()[:-40])
    with pytest.raises(ConfigError, match=r"damaged.*step-"):
        study_credit(damaged)


def test_command_leaves_out_what_it_cannot_study_and_draws_again_from_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, empty = one_game(tmp_path / "run"), one_game(tmp_path / "empty")
    first_file(empty).unlink()
    credit_command([str(run), str(empty)], out=tmp_path / "out")
    said = capsys.readouterr()
    assert "| CAST, α = 0.1 " in said.out
    assert "left out: " in said.err
    assert "empty" in said.err
    credit_command([str(tmp_path / "out")], out=tmp_path / "again")
    for name in ("credit.svg", "credit.md"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    with pytest.raises(ConfigError, match="no turn of a training game"):
        credit_command([str(empty)])


def test_table_says_what_is_unknown(studied: dict[str, pl.DataFrame]) -> None:
    lines = credit_markdown(
        studied["sokoban"].with_columns(low=pl.lit(math.nan), noise=pl.lit(math.nan))
    ).splitlines()
    [row] = [line for line in lines if line.startswith("| GiGPO")]
    assert row.count("—") == 2


def test_t_interval_is_the_textbooks() -> None:
    # Three values 1, 2, 3: mean 2, standard error 1 / sqrt(3), t(0.975, 2) = 4.302653.
    found = t_interval([1.0, math.nan, 2.0, 3.0])
    assert (found.value, found.n) == (2.0, 3)
    assert found.high - found.value == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert math.isnan(t_interval([4.0]).low)
    assert t_interval([4.0]).value == 4.0
    assert math.isnan(t_interval([]).value)
