"""Pictures and tables of recorded runs are what their committed figures say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cast_ray.jobs.sweep_plan import plan_sweep, read_arms
from cast_ray.jobs.sweep_results import write_results

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
ORACLES = pl.read_parquet(EVIDENCE / "rush_hour_oracles.parquet")
PAGE = (ROOT / "docs" / "value_network.md").read_text()
ARM_ROWS = {
    "exact solver": "the exact solver",
    "value network": "the value network",
    "outcome only": "the outcome alone (`algorithm=dapo`)",
}


def test_the_picture_is_drawn_from_the_figures_byte_for_byte(tmp_path: Path) -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("cast-ray sweep"))
    given = [word for word in line.split()[4:] if "=" in word]
    arms = read_arms(ROOT / "configs" / "arms" / "rush_hour_oracles.yaml")
    plan = plan_sweep(None, given, arms=arms)
    assert [trial.name for trial in plan.trials] == ORACLES["name"].to_list()
    write_results(plan.trials, ORACLES, tmp_path)
    drawn = (tmp_path / "results.svg").read_bytes()
    assert drawn == (EVIDENCE / "rush_hour_oracles.svg").read_bytes()


@pytest.mark.parametrize("arm", ARM_ROWS)
def test_the_table_holds_the_recorded_figures(arm: str) -> None:
    rows = ORACLES.filter(pl.col("arm") == arm).sort("seed")
    assert rows["seed"].to_list() == ["0", "1", "2"]
    training = np.mean(rows["success"].to_list())
    validation = np.array([[y for y in one if y is not None] for one in rows["validation_success"]])
    after = 100 * rows["after"].to_numpy()
    cells = [
        ARM_ROWS[arm],
        f"{training:.1%}",
        ", ".join(f"{100 * y:.1f}" for y in validation.mean(axis=0)[[2, 5, 9]]) + "%",
        ", ".join(f"{y:.1f}" for y in after.round(1)) + "%",
        f"{after.mean():.1f}%",
    ]
    assert f"| {' | '.join(cells)} |" in PAGE
