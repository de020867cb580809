"""Columns of a table in Ray's object store: read where they lie."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
import ray
import torch

from cast_ray.learner.batching import flat_column, loss_mask, micro_batches
from cast_ray.rollout.trajectory import BATCH_SCHEMA

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

# Long enough not to travel inside the message.
LENGTHS = (300_000, 1, 200_000)
COLUMNS = ("token_ids", "loss_mask", "rollout_logprobs", "token_advantages")


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    schema = pa.schema([BATCH_SCHEMA.field(name) for name in COLUMNS])
    rows = [[rng.integers(0, 2, size=length) for length in LENGTHS] for _ in COLUMNS]
    return pa.table([pa.array(column) for column in rows], names=COLUMNS).cast(schema)


@pytest.mark.parametrize("name", ["token_advantages", "rollout_logprobs", "loss_mask"])
def test_a_flat_column_is_the_object_store_s_own_memory(name: str) -> None:
    stored = ray.put(table())
    # Two readers of one object meet at the same address; copies would lie apart.
    first, second = (flat_column(ray.get(stored, timeout=60), name) for _ in range(2))

    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only
        assert torch.from_numpy(first).data_ptr() == second.ctypes.data


def test_packing_a_stored_table_writes_nothing_to_it() -> None:
    stored = ray.put(table())
    received = ray.get(stored, timeout=60)

    in_loss = loss_mask(received)
    in_loss[:] = True
    micro_batches(received, np.array([0, 2]), in_loss, tokens_per_micro_batch=500_000)

    assert ray.get(stored, timeout=60).equals(table())
