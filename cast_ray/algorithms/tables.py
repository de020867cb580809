"""What a step's table of trajectories says, as arrays: counts of turns, numbers of turns, rewards.

Letters: ``R`` trajectories have ``B`` turns in row order; ``L`` tokens of one conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cast_ray.errors import CallbackError
from cast_ray.functions import find_function
from cast_ray.rollout.trajectory import ScoredTrajectory

Array = NDArray[np.float64]


def token_advantages(table: pa.Table, per_turn: Array) -> pa.ListArray:
    """Return ``[L]`` per row: each turn's advantage on the tokens of its span, 0 elsewhere."""
    lengths = table["token_ids"].combine_chunks().value_lengths().to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    row_starts = np.repeat(offsets[:-1], turn_counts(table))
    tokens = np.zeros(offsets[-1], dtype=np.float32)
    starts, ends = (row_starts + flat_turns(table, name) for name in ("turn_starts", "turn_ends"))
    for start, end, value in zip(starts, ends, per_turn, strict=True):
        tokens[start:end] = value
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))


def turn_counts(table: pa.Table) -> np.ndarray:
    """Return ``[R]`` turns of each trajectory."""
    return table["effects"].combine_chunks().value_lengths().to_numpy().astype(np.int64)


def flat_turns(table: pa.Table, name: str) -> np.ndarray:
    """Return ``[B]`` a numeric column with one value per turn, in row order; a null becomes NaN."""
    return table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)


def num_response_tokens(table: pa.Table) -> np.ndarray:
    """Return ``[R]`` tokens of each trajectory after its opening prompt, observations included."""
    first_turns = [starts[0] for starts in table["turn_starts"].to_pylist()]
    lengths = table["token_ids"].combine_chunks().value_lengths().to_numpy()
    return lengths - np.array(first_turns, dtype=np.int64)


def rewards_of(scored: pa.Table, function: str) -> Array:
    """Return ``[R]`` what each trajectory is worth by ``reward.function``; empty = its reward.

    Raises:
        CallbackError: the function failed, or returned what is no finite number.
    """
    if not function:
        return scored["reward"].to_numpy().astype(np.float64)
    reward = find_function("reward.function", function, 1)
    rows = scored.select([field.name for field in fields(ScoredTrajectory)]).to_pylist()
    values = [reward(ScoredTrajectory(**row)) for row in rows]
    return checked_numbers(values, f"reward.function={function}", {"trajectory": len(rows)})


def checked_numbers(found: Any, name: str, lengths: Mapping[str, int]) -> Array:
    """Return what a user's function returned as a new array ``[n]``.

    Args:
        found: Any: by the function.
        name: of key and function, for messages.
        lengths: the values allowed for n, by what each one counts.
    """
    try:
        values = np.array(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CallbackError(f"{name} returned no numbers: {error}") from None
    if values.shape not in [(length,) for length in lengths.values()]:
        allowed = " or ".join(f"[{length}], one per {what}" for what, length in lengths.items())
        raise CallbackError(f"{name} must return the shape {allowed}; got {list(values.shape)}")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise CallbackError(
            f"{name} must return finite numbers; number {bad[0]} is {values[bad[0]]}"
        )
    return values


def as_lists(flat: Array, num_turns: np.ndarray) -> pa.Array:
    """Return ``[R]`` lists, one per trajectory, from one value per turn; NaN becomes null."""
    offsets = np.concatenate([[0], np.cumsum(num_turns)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, from_pandas=True))
