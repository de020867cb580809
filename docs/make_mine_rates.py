"""Measure each training step of a Minesweeper sweep: reveals, mines, and the exact risk.

Example, which rewrites docs/evidence/minesweeper_mines.parquet::

    python -m docs.make_mine_rates sweeps/minesweeper_idle
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl

from cast_ray.envs.text_env import LOST
from cast_ray.evaluation.experiments.collect import finished_runs
from cast_ray.games.game import Effect
from cast_ray.parquet import read_frame
from solver_actors.oracle import Oracle
from solver_actors.scoring import Scorer

_COLUMNS = ["game", "states", "actions", "effects", "end_reason"]


def mine_rates(sweep: Path) -> pl.DataFrame:
    """Return one row per arm, seed and training step.

    ``turns``, ``reveals`` (turns that opened a cell), ``mines`` (reveals that lost the game), and
    ``excess``: mean exact probability of a mine in the revealed cell above the safest cell's, from
    what was open before.
    """
    scorer = Scorer(Oracle(max_bytes=2**28))  # arms of one seed play the same boards
    return pl.DataFrame(
        [
            {"arm": arm, "seed": seed, "step": step, **_counted(read_frame(file, _COLUMNS), scorer)}
            for arm, seed, run in finished_runs(sweep)
            for step, file in enumerate(run.trajectory_files(), start=1)
        ]
    )


def _counted(played: pl.DataFrame, scorer: Scorer) -> dict[str, Any]:
    excess: list[float] = []
    for row in played.iter_rows(named=True):
        risks = scorer.risks(row["game"], row["states"], row["actions"], row["effects"])
        excess += [risk for risk in risks.excess if risk is not None]
    effects = played["effects"].explode()
    return {
        "turns": len(effects),
        "reveals": (effects == Effect.CHANGED.value).sum(),
        "mines": (played["end_reason"] == LOST).sum(),
        "excess": sum(excess) / len(excess),
    }


if __name__ == "__main__":
    target = Path(__file__).parent / "evidence" / "minesweeper_mines.parquet"
    mine_rates(Path(sys.argv[1])).write_parquet(target)
