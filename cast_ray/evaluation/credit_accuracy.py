"""Which source of credit is accurate? Each one's advantages on logged games, against true losses.

The loss of a turn is what it cost by an exact solver. In games without hidden state it is the moves
that it wasted, infinite if no win is left. Elsewhere it is how much likelier the action was to lose
the game than the safest one.

Letters: ``B`` turns of a step, ``R`` trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from scipy.stats import rankdata

from cast_ray.algorithms.credit import add_advantages
from cast_ray.algorithms.tables import flat_turns, turn_counts
from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, DamagedFileError, TrajectoryError
from cast_ray.games.game import Effect
from cast_ray.games.turn_quality import has_regret
from cast_ray.rollout.trajectory import (
    BATCH_SCHEMA,
    ROLLOUT_SCHEMA,
    SCORED_SCHEMA,
    costs_of,
    with_costs,
)
from cast_ray.runs.run_directory import RunDirectory, read_batch
from cast_ray.statistics import t_interval
from solver_actors.oracle import Oracle
from solver_actors.registry import has_solver
from solver_actors.scoring import Scorer

Array = np.ndarray

_ALPHAS = (0.01, 0.1, 0.3, 1.0)
_OUTCOME = AdvantageConfig(alpha=0.0)
_ONE = AdvantageConfig(alpha=1.0)
SOURCES: Mapping[str, AdvantageConfig] = {
    "outcome (GRPO, DAPO)": _OUTCOME,
    "GiGPO": replace(_OUTCOME, step_weight=1.0),
    **{f"CAST, α = {alpha:g}": replace(_ONE, alpha=alpha) for alpha in _ALPHAS},
    "CAST, whole trajectories, α = 1": replace(_ONE, level="trajectory_sum"),
    "CAST, shuffled, α = 1": replace(_ONE, permute_credit=True),
}
"""Advantages by name, all from the same games and costs."""
OWN_SOURCES = {"value_net": "value network, α = 1", "expected": "CAST, expected, α = 1"}
"""By ``oracle``: what its own estimates give, besides the exact costs."""

_CACHE_BYTES = 256 * 1024 * 1024
_MOST_LEVELS = 20
_FEWEST_TURNS = 10
_SIDES = (slice(None, -1), slice(1, None))
"""Of the costs of an episode: before its turns, and after them."""
DISTANCES = (1, 2, 4, 8, 16)
"""Upper ends of the classes of cost before a turn; above the last is one more."""


def study_credit(path: Path, *, progress: Callable[[str], None] = lambda _: None) -> pl.DataFrame:
    """Return how accurate each source of credit is on a run's training games.

    Args:
        path: of the run directory; nothing is written to it.
        progress: called with a line before each step.

    Returns:
        A row per source, and one per source and class of distance (with a correlation alone):

        - ``run``, ``game``, ``num_steps``, ``num_turns`` (those with a known loss), ``source``
        - ``distance``: upper end of the class of costs before a turn, infinite for the last; null
          in the rows of all turns
        - ``correlation``: Spearman's, between credit and minus the loss, the mean over steps; 1 =
          the better turn always earns more. ``low``, ``high``: its 95% t-interval over steps
        - ``wrong_sign``: of the best and the bad turns, the share that is best and blamed or bad
          and praised. Bad = further from the goal afterwards, or a risk that could be avoided
        - ``no_sign``: of the same, the share whose credit is 0
        - ``noise``: share of the credit's variance that the loss does not explain
        - ``within``: share of its variance that is inside trajectories

    Raises:
        RunDirectoryError: there is no run.
        ConfigError: no exact solver knows its game, its games are mixed, or it has logged no turn
            with a known loss.
    """
    run = RunDirectory.existing(path)
    config = load_config(run.config, [], is_stored=True)
    if not has_solver(config.game):
        raise ConfigError(f"{path}: no exact solver knows {config.game}, so no loss is known")
    judge = _Judge(config.game, own_source=OWN_SOURCES.get(config.oracle, ""))
    steps: list[pl.DataFrame] = []
    files = run.trajectory_files()
    for number, file in enumerate(files, 1):
        progress(f"{path}: {file.name}, {number} of {len(files)}")
        try:
            steps.append(judge.judged(read_batch(file, BATCH_SCHEMA)))
        except (DamagedFileError, TrajectoryError) as error:
            raise ConfigError(f"{path}: {error}") from None
    turns = pl.concat(steps) if steps else pl.DataFrame()
    if turns.is_empty():
        raise ConfigError(f"{path}: no turn of a training game has a known loss; train a step")
    measured = pl.concat(
        [
            _over_all(turns, counts_moves=has_regret(config.game)),
            _by_distance(turns),
        ],
        how="diagonal",
    )
    return measured.select(
        pl.lit(path.resolve().name).alias("run"),
        pl.lit(config.game).alias("game"),
        pl.lit(turns["step"].n_unique()).alias("num_steps"),
        pl.lit(turns.height // turns["source"].n_unique()).alias("num_turns"),
        pl.all(),
    )


class _Judge:
    """Computes credit and losses of the turns of one run."""

    def __init__(self, game: str, *, own_source: str) -> None:
        self._counts_moves = has_regret(game)
        self._own_source = own_source
        self._scorer = Scorer(Oracle(max_bytes=_CACHE_BYTES))

    def judged(self, batch: pa.Table) -> pl.DataFrame:
        """Return a row per source and turn of known loss: credit, loss and where it was."""
        games = set(batch["game"].to_pylist())
        if len(games) > 1:
            raise TrajectoryError(f"its games are mixed: {', '.join(sorted(games))}")
        estimated = batch.select(SCORED_SCHEMA.names)
        scored, costs = self._with_exact_costs(estimated)
        num_turns = turn_counts(scored)
        before, after = (np.concatenate([one[part] for one in costs]) for part in _SIDES)
        loss = self._losses(scored, before, after)
        known = ~np.isnan(loss)
        place = pl.DataFrame(
            {
                "step": np.repeat(scored["step"].to_numpy(), num_turns)[known],
                "trajectory": np.repeat(np.arange(scored.num_rows), num_turns)[known],
                "before": before[known],
                "loss": loss[known],
            }
        )
        return pl.concat(
            place.with_columns(source=pl.lit(name), credit=pl.Series(credit[known]))
            for name, credit in self._credits(scored, estimated)
        )

    def _credits(self, scored: pa.Table, estimated: pa.Table) -> Iterator[tuple[str, Array]]:
        for name, advantage in SOURCES.items():
            yield name, self._turn_advantages(scored, advantage)
        if self._own_source:
            yield self._own_source, self._turn_advantages(estimated, _ONE)

    def _turn_advantages(self, scored: pa.Table, advantage: AdvantageConfig) -> Array:
        # The paper's values in all else; a user's functions are not called.
        batch, _ = add_advantages(scored, advantage, rng=np.random.default_rng(0))
        return flat_turns(batch, "turn_advantages")

    def _with_exact_costs(self, scored: pa.Table) -> tuple[pa.Table, list[Array]]:
        """Return the table without estimates, and ``[T + 1]`` the exact costs of each row.

        They are as stored; where the run had none, they are the solver's.
        """
        rows = scored.select(["cost_to_go", "cost_status", "game", "states"]).to_pylist()
        costs = [costs_of(row) for row in rows]
        if not any(np.isfinite(one).any() for one in costs):
            costs = [np.array(self._scorer.costs(row["game"], row["states"])) for row in rows]
        rollout = scored.select(ROLLOUT_SCHEMA.names).combine_chunks().to_batches()
        return pa.Table.from_batches([with_costs(rollout[0], np.concatenate(costs))]), costs

    def _losses(self, scored: pa.Table, before: Array, after: Array) -> Array:
        """Return ``[B]`` what each turn cost; NaN where that is unknown or not defined."""
        if self._counts_moves:
            effects = flat_turns(scored, "effects")
            is_known = np.isfinite(before) & ~np.isnan(after) & (effects != Effect.TRUNCATED)
            with np.errstate(invalid="ignore"):
                return np.where(is_known, after - before + 1, np.nan)
        columns = ["game", "states", "actions", "effects"]
        excess = [
            risk
            for row in scored.select(columns).to_pylist()
            for risk in self._scorer.risks(*(row[name] for name in columns)).excess
        ]
        return np.array(excess, dtype=np.float64)


def _over_all(turns: pl.DataFrame, *, counts_moves: bool) -> pl.DataFrame:
    rows = []
    for (source,), own in turns.group_by("source", maintain_order=True):
        steps = own.partition_by("step")
        correlation = t_interval([_rank_correlation(one) for one in steps])
        loss, credit = own["loss"].to_numpy(), own["credit"].to_numpy()
        # A move that only waits loses one; one that leads away loses more.
        is_best, is_bad = loss == 0, loss > (1 if counts_moves else 0)
        wrong = (is_best & (credit < 0)) | (is_bad & (credit > 0))
        judged = is_best | is_bad
        rows.append(
            {
                "source": source,
                "distance": None,
                "correlation": correlation.value,
                "low": max(correlation.low, -1.0),
                "high": min(correlation.high, 1.0),
                "wrong_sign": _share(wrong, judged),
                "no_sign": _share(judged & (credit == 0), judged),
                "noise": t_interval([_unexplained(one) for one in steps]).value,
                "within": t_interval([_within(one) for one in steps]).value,
            }
        )
    return pl.DataFrame(rows, schema_overrides={"distance": pl.Float64})


def _by_distance(turns: pl.DataFrame) -> pl.DataFrame:
    turns = turns.filter(pl.col("before").is_not_nan())
    ends = np.array([*DISTANCES, math.inf])
    place = np.searchsorted(ends, turns["before"].to_numpy(), side="left")
    classed = turns.with_columns(distance=pl.Series(ends[place]))
    rows = [
        {
            "source": source,
            "distance": distance,
            "correlation": t_interval(
                [_rank_correlation(step) for step in own.partition_by("step")]
            ).value,
        }
        for (source, distance), own in classed.group_by("source", "distance", maintain_order=True)
    ]
    return pl.DataFrame(rows).sort("distance", maintain_order=True)


def _rank_correlation(turns: pl.DataFrame) -> float:
    """Return Spearman's correlation of credit and minus the loss.

    0 where all credit is the same, which says nothing; NaN where all losses are, or few turns.
    """
    loss, credit = turns["loss"].to_numpy(), turns["credit"].to_numpy()
    if len(loss) < _FEWEST_TURNS or np.all(loss == loss[0]):
        return math.nan
    if np.ptp(credit) < 1e-12:
        return 0.0
    return float(np.corrcoef(rankdata(-loss), rankdata(credit))[0, 1])


def _unexplained(turns: pl.DataFrame) -> float:
    """Return the share of the credit's variance inside levels of equal loss (1 - eta squared)."""
    ranks = rankdata(turns["loss"].to_numpy(), method="dense")
    level = ranks if ranks.max() <= _MOST_LEVELS else ranks * _MOST_LEVELS // (ranks.max() + 1)
    return _variance_inside(turns["credit"].to_numpy(), level)


def _within(turns: pl.DataFrame) -> float:
    return _variance_inside(turns["credit"].to_numpy(), turns["trajectory"].to_numpy())


def _variance_inside(values: Array, group: Array) -> float:
    """Return the share of the variance that is inside groups; NaN where there is none."""
    _, place = np.unique(group, return_inverse=True)
    means = np.bincount(place, values) / np.bincount(place)
    total = values.var()
    return float(((values - means[place]) ** 2).mean() / total) if total > 1e-24 else math.nan


def _share(part: Array, whole: Array) -> float:
    return float(part.sum() / whole.sum()) if whole.any() else math.nan
