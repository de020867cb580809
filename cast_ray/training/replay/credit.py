"""A step's stored advantages against those that ``add_credit`` computes from its rows.

One wrong cost or reward moves the RMS of the whole step or the mean of its group, and it may have
become wrong before or after the advantages were computed. So they are computed twice, from the
stored and from the replayed rewards, boards and costs, and each column is compared with the result
that agrees with it in more places. Turn and token advantages are compared with what follows from
the stored columns that they are made of, so that a wrong value is reported where it is.

Outcome, step and solver advantages are compared to 1e-12, because another CPU may round asinh or a
sum differently; the others exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import credit
from cast_ray.config.train import TrainConfig
from cast_ray.errors import TrajectoryError
from cast_ray.games.costs import status_of, stored_cost
from cast_ray.rollout.trajectory import SCORED_SCHEMA
from cast_ray.training.replay.row import Mismatch, ReplayedEpisode

Found = tuple[int | None, Mismatch]
"""A mismatch and the position of its row; None = of the whole step."""

_TOLERANCE = 1e-12
_REPLAYED = ("reward", "effects", "states", "cost_to_go", "cost_status", "cost_estimates")


def replayed_columns(
    row: dict[str, Any], episode: ReplayedEpisode, exact: np.ndarray, estimates: np.ndarray
) -> dict[str, Any]:
    """Return what the replay of a row gives in place of the stored columns that credit is made of.

    Args:
        row: as stored. Any: as Arrow gives it.
        episode: the same, replayed; with another number of turns all but the reward stays stored.
        exact: ``[T + 1]`` costs of the replayed states; inf = infinite, NaN = unknown.
        estimates: ``[T + 1]`` a value network's; NaN = none was asked.
    """
    stored = {name: row[name] for name in _REPLAYED} | {"reward": episode.reward}
    if len(episode.effects) != len(row["effects"]):
        return stored
    return stored | {
        "effects": episode.effects,
        "states": episode.states,
        "cost_to_go": [stored_cost(cost) for cost in exact],
        "cost_status": [status_of(cost) for cost in exact],
        "cost_estimates": estimates,
    }


def credit_mismatches(
    stored: pa.Table,
    replayed: Sequence[dict[str, Any]],
    config: TrainConfig,
    *,
    step: int,
    group_size: int,
    is_complete: bool,
) -> Iterator[Found]:
    """Yield what differs in a step's advantages.

    Args:
        stored: ``BATCH_SCHEMA``, the well-formed rows of one step, in stored order.
        replayed: ``replayed_columns`` of each.
        config: of the run.
        step: its number.
        group_size: a smaller group has lost rows: its outcome and step advantages are not compared.
        is_complete: whether no row is missing; otherwise the RMS is unknown and solver advantages
            are not compared.
    """
    recomputed: list[pa.Table] = []
    failure: Exception | None = None
    for scored in (stored.select(SCORED_SCHEMA.names), _with_columns(stored, replayed)):
        try:
            recomputed.append(credit.add_credit(scored, config, step=step)[0])
        except (TrajectoryError, ValueError) as error:
            failure = error
    if not recomputed:
        yield None, Mismatch.of(None, "turn_advantages", failure, "finite advantages")
        return
    groups = stored["group"].to_numpy()
    is_whole = np.isin(groups, [g for g in set(groups) if (groups == g).sum() == group_size])
    yield from _per_turn("shifted_advantages", stored, recomputed, tolerance=0.0)
    yield from _combined_mismatches(stored, config)
    yield from _token_mismatches(stored)
    yield from _outcome_mismatches(stored, recomputed, is_whole)
    yield from _per_turn("step_advantages", stored, recomputed, is_compared=is_whole)
    if is_complete:
        yield from _per_turn("solver_advantages", stored, recomputed)
    else:
        what = "rows missing or broken"
        yield None, Mismatch.of(None, "solver_advantages", what, "not comparable")


def _with_columns(stored: pa.Table, replayed: Sequence[dict[str, Any]]) -> pa.Table:
    """Return ``SCORED_SCHEMA`` with the replayed columns in place of the stored ones."""
    table = stored.select(SCORED_SCHEMA.names)
    for name in _REPLAYED:
        field, index = SCORED_SCHEMA.field(name), SCORED_SCHEMA.get_field_index(name)
        table = table.set_column(
            index, field, pa.array([row[name] for row in replayed], field.type)
        )
    return table


def _combined_mismatches(stored: pa.Table, config: TrainConfig) -> Iterator[Found]:
    """Yield turn advantages that do not follow from the stored columns that they are made of."""
    is_distilled = config.distillation.mode == "reverse"
    expected = credit.combined_advantages(
        np.repeat(stored["outcome_advantage"].to_numpy(), credit.turn_counts(stored)),
        credit.flat_turns(stored, "solver_advantages"),
        credit.flat_turns(stored, "step_advantages"),
        credit.flat_turns(stored, "teacher_logprobs") if is_distilled else None,
        config.advantage,
    )
    yield from _differing_turns("turn_advantages", stored, expected, tolerance=0.0)


def _token_mismatches(stored: pa.Table) -> Iterator[Found]:
    """Yield the first token of each turn that does not carry its turn's stored advantage."""
    expected = credit.token_advantages(stored, credit.flat_turns(stored, "turn_advantages"))
    for row in range(stored.num_rows):
        starts = stored["turn_starts"][row].values.to_numpy()
        found, wanted = (
            array[row].values.to_numpy() for array in (stored["token_advantages"], expected)
        )
        wrong = np.flatnonzero(~_agree(found, wanted, 0.0))
        turns = np.searchsorted(starts, wrong, side="right") - 1
        for turn, first in zip(*np.unique(turns, return_index=True), strict=True):
            at = wrong[first]
            what = f"token_advantages[{at}]"
            yield row, Mismatch.of(int(turn) if turn >= 0 else None, what, found[at], wanted[at])


def _outcome_mismatches(
    stored: pa.Table, recomputed: Sequence[pa.Table], is_compared: np.ndarray
) -> Iterator[Found]:
    what = "outcome_advantage"
    found, *candidates = (table[what].to_numpy() for table in (stored, *recomputed))
    expected = _closest(found, candidates, _TOLERANCE)
    for row in np.flatnonzero(~_agree(found, expected, _TOLERANCE) & is_compared):
        yield int(row), Mismatch.of(None, what, found[row], expected[row])


def _per_turn(
    what: str,
    stored: pa.Table,
    recomputed: Sequence[pa.Table],
    *,
    tolerance: float = _TOLERANCE,
    is_compared: np.ndarray | None = None,
) -> Iterator[Found]:
    """Yield the turns of a column that differ; ``is_compared`` says of which rows."""
    found, *candidates = (credit.flat_turns(table, what) for table in (stored, *recomputed))
    expected = _closest(found, candidates, tolerance)
    for row, mismatch in _differing_turns(what, stored, expected, tolerance=tolerance):
        if is_compared is None or is_compared[row]:
            yield row, mismatch


def _differing_turns(
    what: str, stored: pa.Table, expected: np.ndarray, *, tolerance: float
) -> Iterator[tuple[int, Mismatch]]:
    found = credit.flat_turns(stored, what)
    ends = np.cumsum(credit.turn_counts(stored))
    for at in np.flatnonzero(~_agree(found, expected, tolerance)):
        row = int(np.searchsorted(ends, at, side="right"))
        turn = int(at - (ends[row - 1] if row else 0))
        yield row, Mismatch.of(turn, what, found[at], expected[at])


def _agree(stored: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    return np.isclose(stored, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _closest(stored: np.ndarray, candidates: Sequence[np.ndarray], tolerance: float) -> np.ndarray:
    """Return the candidate that agrees with the stored values in most places."""
    return max(candidates, key=lambda each: int(_agree(stored, each, tolerance).sum()))
