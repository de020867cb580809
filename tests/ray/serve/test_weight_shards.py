"""Each rank's share of every kind of layer, with vLLM's own loaders as the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

WHOLE_ON_EACH_RANK = ("model.router.weight", "model.router.bias", "model.down_proj.bias")
ONE_HEAD_FOR_BOTH = tuple(
    f"model.one.{part}_proj.{field}" for part in "kv" for field in ("weight", "bias")
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """By rank: the tensors found wrong, by which value of which sent tensor was changed."""
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    identity = uuid.uuid4().hex
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.rank_layers", str(rank), str(meeting)],
            stdout=subprocess.PIPE,
            text=True,
            # What vLLM's workers name their shared memory by; left behind, it is there next time.
            env={**os.environ, "VLLM_DIST_IDENT": identity},
        )
        for rank in range(2)
    ]
    try:
        return [json.loads(rank.communicate(timeout=240)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for left in Path("/dev/shm").glob(f"*{identity}*"):
            left.unlink()


def test_every_share_is_what_vllms_own_loader_takes(found: list[dict[str, list[str]]]) -> None:
    assert len(found[0]) == 1 + 2 * (2 + 2 * 6 + 4 + 2 + 2 + 2)
    assert found[0][""] == found[1][""] == []


def test_a_value_that_differs_is_named_by_the_ranks_that_hold_it_and_by_no_other(
    found: list[dict[str, list[str]]],
) -> None:
    for change in found[0]:
        if not change:
            continue
        name, _, place = change.partition("[")
        on_both = name in WHOLE_ON_EACH_RANK + ONE_HEAD_FOR_BOTH
        holders = {0, 1} if on_both else {0 if place == "0]" else 1}
        for rank in range(2):
            assert found[rank][change] == ([name] if rank in holders else []), change
