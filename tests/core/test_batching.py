"""Batches against plain Python lists; splits by their properties."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray import batching
from cast_ray.errors import TrajectoryError
from cast_ray.trajectory import ROLLOUT_SCHEMA

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def table_of(*rows: tuple[list[int], list[int]]) -> pa.Table:
    """A table of (token_ids, loss_mask) rows."""
    schema = pa.schema([ROLLOUT_SCHEMA.field("token_ids"), ROLLOUT_SCHEMA.field("loss_mask")])
    return pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=schema)


THREE_ROWS = table_of(
    ([11, 12, 13], [0, 1, 1]), ([21, 22, 23, 24, 25], [1, 0, 1, 0, 1]), ([31], [1])
)


def test_micro_batch_holds_rows_longest_first_padded_on_the_right() -> None:
    [batch] = batching.micro_batches(THREE_ROWS, np.array([0, 1, 2]), tokens_per_micro_batch=15)

    assert batch.rows.tolist() == [1, 0, 2]
    assert batch.token_ids.tolist() == [
        [21, 22, 23, 24, 25],
        [11, 12, 13, 0, 0],
        [31, 0, 0, 0, 0],
    ]


def test_first_token_of_a_row_is_never_in_the_loss() -> None:
    [batch] = batching.micro_batches(THREE_ROWS, np.array([1, 2]), tokens_per_micro_batch=10)

    assert batch.loss_mask.int().tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 0, 0]]
    assert batching.loss_mask(THREE_ROWS).astype(int).tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 0]


def test_logits_are_wanted_one_position_before_each_token_in_the_loss() -> None:
    [batch] = batching.micro_batches(THREE_ROWS, np.array([1, 0]), tokens_per_micro_batch=10)

    assert batch.predicts.int().tolist() == [[0, 1, 0, 1, 0], [1, 1, 0, 0, 0]]


def test_flat_values_are_gathered_to_and_put_back_from_their_tokens() -> None:
    flat = torch.arange(9.0) + 100
    [batch] = batching.micro_batches(THREE_ROWS, np.array([0, 1]), tokens_per_micro_batch=10)

    gathered = batch.gather(flat)
    back = torch.zeros(9)
    back[batch.token_index[batch.loss_mask]] = gathered[batch.loss_mask]

    assert gathered.tolist() == [[0, 0, 105, 0, 107], [0, 101, 102, 0, 0]]
    assert back.tolist() == [0, 101, 102, 0, 0, 105, 0, 107, 0]


def test_slices_and_chunks_of_a_table_give_their_own_rows() -> None:
    chunked = pa.concat_tables([THREE_ROWS.slice(2), THREE_ROWS.slice(0, 2)])

    sliced = batching.micro_batches(THREE_ROWS.slice(1), np.array([0]), tokens_per_micro_batch=5)
    joined = batching.micro_batches(chunked, np.array([2]), tokens_per_micro_batch=5)

    assert sliced[0].token_ids.tolist() == joined[0].token_ids.tolist() == [[21, 22, 23, 24, 25]]
    assert joined[0].token_index.tolist() == [[4, 5, 6, 7, 8]]


def test_row_longer_than_the_budget_stands_alone() -> None:
    batches = batching.micro_batches(THREE_ROWS, np.array([0, 1, 2]), tokens_per_micro_batch=4)

    assert [batch.rows.tolist() for batch in batches] == [[1], [0], [2]]


def test_missing_column_names_the_column() -> None:
    with pytest.raises(TrajectoryError, match="token_advantages"):
        batching.flat_column(THREE_ROWS, "token_advantages")


def test_mask_of_another_length_names_the_row() -> None:
    with pytest.raises(TrajectoryError, match="row 1 "):
        batching.loss_mask(table_of(([1, 2], [0, 1]), ([1, 2], [0])))


def test_loss_tokens_of_some_rows_are_counted_without_their_first() -> None:
    assert batching.num_loss_tokens(THREE_ROWS, np.array([0, 1])) == 4


def test_rows_without_a_token_in_the_loss_are_refused() -> None:
    with pytest.raises(TrajectoryError, match="none of these 1 rows"):
        batching.num_loss_tokens(THREE_ROWS, np.array([2]))


@settings(derandomize=True, deadline=None)
@given(lengths=LENGTHS, budget=st.integers(1, 120))
def test_micro_batches_hold_every_row_once_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    cuts = batching.cut_micro_batches(np.array(lengths), tokens_per_micro_batch=budget)

    assert sorted(np.concatenate(cuts).tolist()) == list(range(len(lengths)))
    padded = [len(cut) * max(lengths[i] for i in cut) for cut in cuts]
    assert all(size <= budget or len(cut) == 1 for size, cut in zip(padded, cuts, strict=True))


@settings(derandomize=True, deadline=None)
@given(lengths=LENGTHS, world_size=st.integers(1, 5))
def test_shards_hold_every_row_once_and_differ_by_at_most_one_row_of_tokens(
    lengths: list[int], world_size: int
) -> None:
    shards = batching.shard_rows(np.array(lengths), world_size=world_size)

    assert sorted(np.concatenate(shards).tolist()) == list(range(len(lengths)))
    loads = [sum(lengths[i] for i in shard) for shard in shards]
    assert max(loads) - min(loads) <= max(lengths)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_every_rank_gets_the_same_number_of_batches_and_all_rows_are_somewhere(
    world_size: int,
) -> None:
    ranks = [
        batching.rank_micro_batches(
            THREE_ROWS,
            np.array([0, 1, 2]),
            tokens_per_micro_batch=3,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]

    assert len({len(batches) for batches in ranks}) == 1
    rows = [row for batches in ranks for batch in batches for row in batch.rows]
    assert sorted(rows) == [0, 1, 2]


def test_batch_that_fills_up_a_rank_has_no_token_in_the_loss() -> None:
    batches = batching.rank_micro_batches(
        THREE_ROWS, np.array([2]), tokens_per_micro_batch=3, rank=1, world_size=2
    )

    assert [batch.loss_mask.any().item() for batch in batches] == [False]


GROUPS = np.repeat([7, 3, 9, 4, 8], [2, 3, 1, 2, 2])


def test_mini_batches_are_whole_groups_and_hold_every_row_once() -> None:
    parts = batching.split_into_mini_batches(GROUPS, num_mini_batches=2, seed=5)

    assert sorted(np.concatenate(parts).tolist()) == list(range(len(GROUPS)))
    owners = [set(GROUPS[part].tolist()) for part in parts]
    assert owners[0].isdisjoint(owners[1])
    assert [len(owner) for owner in owners] == [3, 2]


def test_mini_batches_follow_from_the_seed_alone() -> None:
    first, again = (
        batching.split_into_mini_batches(GROUPS, num_mini_batches=2, seed=5) for _ in range(2)
    )
    others = [
        batching.split_into_mini_batches(GROUPS, num_mini_batches=2, seed=seed)
        for seed in range(10)
    ]

    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert len({tuple(parts[0].tolist()) for parts in others}) > 1


def test_more_mini_batches_than_groups_is_refused() -> None:
    with pytest.raises(TrajectoryError, match="5 groups cannot fill 6"):
        batching.split_into_mini_batches(GROUPS, num_mini_batches=6, seed=0)
