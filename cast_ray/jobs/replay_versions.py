"""The weight versions of one stored trajectory: where they must be, and that none falls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cast_ray.jobs.replay_row import Mismatch, ScoredTrajectory
from cast_ray.trajectory import NOT_THE_POLICY


def version_mismatches(row: ScoredTrajectory) -> Iterator[Mismatch]:
    """Yield a version where no weights wrote, none where they did, and one that falls.

    Only within an answer can versions not fall: the next one may be another engine's.

    Args:
        row: well-formed.
    """
    versions = np.array(row.weight_versions)
    expected = np.zeros(len(versions), dtype=bool)
    for turn, (start, end) in enumerate(zip(row.turn_starts, row.turn_ends, strict=True)):
        expected[start:end] = True
        for fall in np.flatnonzero(np.diff(versions[start:end]) < 0)[:1]:
            token = start + int(fall) + 1
            before = f"at least {versions[token - 1]}"
            yield Mismatch.of(turn, f"weight_versions[{token}]", versions[token], before)
    for token in np.flatnonzero((versions == NOT_THE_POLICY) == expected)[:1]:
        turn = int(np.searchsorted(row.turn_starts, token, side="right")) - 1
        yield Mismatch.of(
            turn if turn >= 0 else None,
            f"weight_versions[{token}]",
            versions[token],
            "a version" if expected[token] else NOT_THE_POLICY,
        )
