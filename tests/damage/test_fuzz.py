"""Whatever a file says, its readers return a value or refuse it in one sentence that names it.

``make fuzz`` does the same with new seeds, for ten minutes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.damage.kinds import KINDS, Kind
from tests.damage.mutations import mutated
from tests.damage.reading import Outcome, Reading

NUM_EXAMPLES = int(os.environ.get("FUZZ", "0"))
"""Of each kind of file; 0 = the same few each time."""
MAX_MESSAGE = 10_000
UNNAMED = ("board", "states")
"""Kinds whose messages name the place in the file: who reads it adds the file."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_content_of_a_file_surprises_its_readers(
    kind: Kind, folder: Path, reading: Reading
) -> None:
    path = next(iter(sorted(folder.glob(kind.pattern))))
    sound = path.read_bytes()

    @settings(
        max_examples=NUM_EXAMPLES or (6 if kind.others else 20),
        derandomize=not NUM_EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        report_multiple_bugs=False,
    )
    @given(content=mutated(kind.form, sound))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        expect(kind, reading.read(kind.name, path, is_deep=True), path)

    try:
        expect(kind, reading.read(kind.name, path, is_deep=True), path)
        check()
    finally:
        path.write_bytes(sound)


FOUND = (
    ("own configuration", b"learner: {lr: 1" + b"0" * 400 + b"}"),
    ("own configuration", b"tracking: {}"),
    ("tier", b"[" * 3000),
    ("arms", b"[" * 3000),
    ("cluster file", b"\xff"),
    ("cluster file", b"a: \0"),
    ("recoveries", b"{\n"),
    ("recoveries", b'{"what": "engine 0"}\n'),
    ("summary", b'{"before": {"success": 1}}'),
    ("summary", b"[]"),
    ("journal", b"[" * 3000 + b"\n\n"),
    ("checkpoint: marker", b'{"files": {"learner.json": {"num_bytes": Infinity, "crc32": 0}}}'),
    ("model: marker", b"[]"),
    ("sweep", b"[]"),
    ("origin of a copy", b"[]"),
    ("tracking", b"{}"),
    ("sent weights: manifest", b"{}"),
    ("log of a value network", b"{}\n"),
    ("any model: configuration", b'{"model_type": ["qwen3"]}'),
)
"""What once ended in a traceback."""


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_once_ended_in_a_traceback_is_refused(
    name: str, content: bytes, folder: Path, reading: Reading
) -> None:
    kind = KINDS[name]
    path = next(iter(sorted(folder.glob(kind.pattern))))
    sound = path.read_bytes()
    path.write_bytes(content)
    try:
        found = reading.read(name, path)
    finally:
        path.write_bytes(sound)
    expect(kind, found, path)
    assert found.end == "refused"


def expect(kind: Kind, found: Outcome, path: Path) -> None:
    assert found.end in ("read", "refused"), found.said
    if found.end == "refused":
        assert "\n" not in found.said and 0 < len(found.said) <= MAX_MESSAGE, found.said
        is_named = any(part in found.said for part in (path.name, path.parent.name))
        assert is_named or kind.name.startswith(UNNAMED), found.said
