"""Single flipped bits in every kind of file; ``python -m tests.damage RUN`` flips 3,000 in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage.flips import counts
from tests.damage.kinds import KINDS, Kind
from tests.damage.reading import Reading

FLIPS = 40


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_flipped_bit_is_refused_or_harmless(kind: Kind, folder: Path, reading: Reading) -> None:
    path = next(iter(sorted(folder.glob(kind.pattern))))
    found = counts(kind, path, reading, flips=FLIPS)
    assert found.total() == FLIPS
    assert not found["raised"] and not found["aborted"], found
    if kind.is_sealed:
        assert not found["silent"] and found["refused"], found
