"""Played games as plain text, for trackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.functions import short_name
from cast_ray.games.costs import EXACT


def game_texts(batch: pa.Table) -> list[str]:
    """Return the first of the best and the first of the worst episodes of a step, as texts.

    Args:
        batch: ``BATCH_SCHEMA``.
    """
    rewards = batch["reward"].to_numpy()
    chosen = dict.fromkeys([int(np.argmax(rewards)), int(np.argmin(rewards))])
    return ["\n".join(_lines(row)) for row in batch.take(list(chosen)).to_pylist()]


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield an episode's lines. Any: values of a row."""
    num_turns = len(row["answers"])
    yield (
        f"{short_name(row['game'])} {row['tier']}, puzzle {row['puzzle_id']}: {row['end_reason']} "
        f"after {num_turns} turns, reward {row['reward']:.3g}"
    )
    for turn in range(num_turns):
        yield f"\n{row['states'][turn]}\n"
        yield f"turn {turn + 1}: {row['answers'][turn]}"
        costs = f"cost {_cost(row, turn)} to {_cost(row, turn + 1)}"
        yield f"({row['effects'][turn]}, {costs}, advantage {row['turn_advantages'][turn]:+.3f})"
    yield f"\n{row['states'][num_turns]}"


def _cost(row: Mapping[str, Any], place: int) -> str:
    status = row["cost_status"][place]
    return str(row["cost_to_go"][place]) if status == EXACT else status
