"""Packed batches against plain lists; splits by their properties."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.errors import TrajectoryError
from cast_ray.learner import batching
from cast_ray.learner.batching import PackedBatch
from cast_ray.rollout.trajectory import BATCH_SCHEMA

COLUMNS = ("token_ids", "loss_mask", "rollout_logprobs", "token_advantages")
SCHEMA = pa.schema([BATCH_SCHEMA.field(name) for name in COLUMNS])

Row = tuple[list[int], list[int]]
"""Token ids and loss mask."""


def table_of(*rows: Row) -> pa.Table:
    """A table whose logprobs are minus, and whose advantages are a tenth of, the token ids."""
    token_ids, masks = [row[0] for row in rows], [row[1] for row in rows]
    logprobs = [[-float(i) for i in ids] for ids in token_ids]
    advantages = [[i / 10 for i in ids] for ids in token_ids]
    return pa.table([token_ids, masks, logprobs, advantages], schema=SCHEMA)


THREE_ROWS = table_of(
    ([11, 12, 13], [0, 1, 1]), ([21, 22, 23, 24, 25], [1, 0, 1, 0, 1]), ([31], [1])
)


def pack(table: pa.Table, *rows: int, budget: int = 1000) -> list[PackedBatch]:
    in_loss = batching.loss_mask(table)
    chosen = np.array(rows, dtype=np.int64)
    return batching.micro_batches(table, chosen, in_loss, tokens_per_micro_batch=budget)


# --- one batch ------------------------------------------------------------------------------------


def test_rows_stand_behind_each_other_without_padding() -> None:
    [batch] = pack(THREE_ROWS, 0, 1, 2)

    assert batch.token_ids.tolist() == [[11, 12, 13, 21, 22, 23, 24, 25, 31]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 2, 3, 4, 0]]
    assert batch.sequence_lengths == (3, 5, 1)
    assert batch.rows.tolist() == [0, 1, 2]


def test_tokens_in_the_loss_are_predicted_one_position_before_them() -> None:
    [batch] = pack(THREE_ROWS, 0, 1, 2)

    # 12 and 13; 23 and 25; 21 and 31 are the first of their rows.
    assert batch.predicts.tolist() == [0, 1, 4, 6]
    assert batch.token_index.tolist() == [1, 2, 5, 7]
    assert batch.trajectory.tolist() == [0, 0, 1, 1]


def test_rows_left_out_leave_no_trace_but_in_the_index_of_the_flat_columns() -> None:
    [batch] = pack(THREE_ROWS, 1)

    assert batch.token_ids.tolist() == [[21, 22, 23, 24, 25]]
    assert batch.predicts.tolist() == [1, 3]
    assert batch.token_index.tolist() == [5, 7]
    assert batch.trajectory.tolist() == [0, 0]


def test_first_token_of_a_row_is_never_in_the_loss() -> None:
    assert batching.loss_mask(THREE_ROWS).astype(int).tolist() == [0, 1, 1, 0, 0, 1, 0, 1, 0]


def test_empty_rows_are_nowhere_in_the_mask() -> None:
    table = table_of(([], []), ([1, 2], [1, 1]), ([], []), ([], []), ([3, 4], [1, 1]), ([], []))

    assert batching.loss_mask(table).tolist() == [False, True, False, True]


def test_tokens_that_the_caller_leaves_out_of_the_loss_are_not_predicted() -> None:
    in_loss = batching.loss_mask(THREE_ROWS)
    in_loss[2] = False

    [batch] = batching.micro_batches(
        THREE_ROWS, np.array([0, 1]), in_loss, tokens_per_micro_batch=10
    )

    assert batch.token_index.tolist() == [1, 5, 7]


def test_tensors_have_the_types_that_torch_indexes_with() -> None:
    [batch] = pack(THREE_ROWS, 0)

    assert {
        tensor.dtype
        for tensor in (
            batch.token_ids,
            batch.position_ids,
            batch.predicts,
            batch.token_index,
            batch.trajectory,
        )
    } == {torch.int64}


def test_moved_batch_keeps_what_is_no_tensor() -> None:
    [batch] = pack(THREE_ROWS, 0, 2)

    moved = batch.to(torch.device("meta"))

    assert moved.predicts.device.type == moved.trajectory.device.type == "meta"
    assert (moved.sequence_lengths, moved.rows.tolist()) == ((3, 1), [0, 2])


# --- any batches, against plain lists -------------------------------------------------------------


@dataclass
class Expected:
    """What a micro-batch of some rows must hold, worked out token by token."""

    token_ids: list[int]
    positions: list[int]
    predicts: list[int]
    token_index: list[int]
    trajectory: list[int]

    def __init__(self, rows: list[Row], chosen: list[int]) -> None:
        self.token_ids, self.positions, self.predicts = [], [], []
        self.token_index, self.trajectory = [], []
        starts = [0, *itertools.accumulate(len(ids) for ids, _ in rows)]
        for number, row in enumerate(chosen):
            ids, mask = rows[row]
            for place in range(len(ids)):
                if mask[place] and place > 0:
                    self.predicts.append(len(self.token_ids) - 1)
                    self.token_index.append(starts[row] + place)
                    self.trajectory.append(number)
                self.token_ids.append(ids[place])
                self.positions.append(place)


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, 999, n).tolist(), (rng.random(n) < 0.5).astype(int).tolist())
        for n in lengths
    ]


def in_chunks(table: pa.Table, *cuts: int) -> pa.Table:
    """The same table in chunks that were each cut out of a longer one."""
    bounds = [0, *sorted(cuts), table.num_rows]
    return pa.concat_tables([table.slice(a, b - a) for a, b in itertools.pairwise(bounds)])


@settings(derandomize=True)
@given(rows=tables(), budget=st.integers(1, 40), data=st.data())
def test_micro_batches_hold_what_plain_lists_say(
    rows: list[Row], budget: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.permutations(range(len(rows))))
    chosen = chosen[: data.draw(st.integers(1, len(rows)))]
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=2))

    batches = pack(in_chunks(table_of(*rows), *cuts), *chosen, budget=budget)

    found = [row for batch in batches for row in batch.rows.tolist()]
    assert sorted(found) == sorted(chosen)
    assert all(b.token_ids.shape[1] <= budget or len(b.rows) == 1 for b in batches)
    found_lists = [
        (
            *(batch.token_ids.tolist()[0], batch.position_ids.tolist()[0]),
            *(batch.predicts.tolist(), batch.token_index.tolist(), batch.trajectory.tolist()),
            list(batch.sequence_lengths),
        )
        for batch in batches
    ]
    expected = [(Expected(rows, batch.rows.tolist()), batch.rows) for batch in batches]
    assert found_lists == [
        (
            *(e.token_ids, e.positions),
            *(e.predicts, e.token_index, e.trajectory),
            [len(rows[row][0]) for row in batch_rows],
        )
        for e, batch_rows in expected
    ]


@settings(derandomize=True)
@given(rows=tables(), data=st.data())
def test_a_slice_of_a_table_is_a_table(rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    sliced, own = table_of(*rows).slice(start), table_of(*rows[start:])

    assert batching.row_offsets(sliced).tolist() == batching.row_offsets(own).tolist()
    assert batching.loss_mask(sliced).tolist() == batching.loss_mask(own).tolist()
    flat = batching.flat_column(sliced, "token_advantages")
    assert flat.tolist() == batching.flat_column(own, "token_advantages").tolist()
    every = range(len(rows) - start)
    assert pack(sliced, *every)[0].token_ids.tolist() == pack(own, *every)[0].token_ids.tolist()


def test_a_record_batch_is_as_good_as_a_table() -> None:
    [record_batch] = THREE_ROWS.slice(1).to_batches()

    assert batching.loss_mask(record_batch).astype(int).tolist() == [0, 0, 1, 0, 1, 0]
    assert batching.flat_column(record_batch, "token_ids").tolist() == [21, 22, 23, 24, 25, 31]


def test_a_table_without_rows_has_no_tokens() -> None:
    nothing = THREE_ROWS.slice(0, 0)

    assert batching.row_offsets(nothing).tolist() == [0]
    assert batching.loss_mask(nothing).tolist() == []
    assert pack(nothing) == []


# --- what is refused ------------------------------------------------------------------------------


def test_missing_column_names_the_column() -> None:
    with pytest.raises(TrajectoryError, match="token_advantages"):
        batching.flat_column(THREE_ROWS.drop(["token_advantages"]), "token_advantages")


def test_mask_of_another_length_names_the_row() -> None:
    table = THREE_ROWS.select(["token_ids"]).append_column(
        "loss_mask", pa.array([[0, 1, 1], [1, 0, 1, 0], [1]], pa.list_(pa.uint8()))
    )

    with pytest.raises(TrajectoryError, match="row 1 "):
        batching.loss_mask(table)


def test_tokens_in_the_loss_of_some_rows_are_those_of_no_other() -> None:
    in_loss = batching.loss_mask(THREE_ROWS)

    of_rows = batching.rows_in_loss(in_loss, THREE_ROWS, np.array([1, 2]))

    assert of_rows.astype(int).tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0]
    assert in_loss.sum() == 4


def test_rows_without_a_token_in_the_loss_are_refused() -> None:
    with pytest.raises(TrajectoryError, match="1 rows"):
        batching.rows_in_loss(batching.loss_mask(THREE_ROWS), THREE_ROWS, np.array([2]))


# --- who gets what --------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@settings(derandomize=True)
@given(lengths=LENGTHS, budget=st.integers(1, 120))
def test_cuts_hold_every_row_once_and_stay_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    cuts = batching.cut_micro_batches(np.array(lengths), tokens_per_micro_batch=budget)

    assert sorted(np.concatenate(cuts).tolist()) == list(range(len(lengths)))
    sizes = [sum(lengths[i] for i in cut) for cut in cuts]
    assert max([s for s, cut in zip(sizes, cuts, strict=True) if len(cut) > 1], default=0) <= budget
    # First fit: no two of them could have been one.
    assert sum(sorted(sizes)[:2]) > budget or len(sizes) == 1


@settings(derandomize=True)
@given(lengths=LENGTHS, world_size=st.integers(1, 5))
def test_shards_hold_every_row_once_and_differ_by_at_most_one_row_of_tokens(
    lengths: list[int], world_size: int
) -> None:
    shards = batching.shard_rows(np.array(lengths), world_size=world_size)

    assert sorted(np.concatenate(shards).tolist()) == list(range(len(lengths)))
    loads = [sum(lengths[i] for i in shard) for shard in shards]
    assert max(loads) - min(loads) <= max(lengths)
    # Dealing rows out in turn would keep that too: no rank could do without its shortest row and
    # still have more to do than another.
    without_shortest = [
        sum(own) - min(own) for own in ([lengths[i] for i in s] for s in shards) if own
    ]
    assert max(without_shortest) <= min(loads)


@settings(derandomize=True)
@given(rows=tables(), budget=st.integers(1, 40), world_size=st.integers(1, 5))
def test_ranks_run_as_many_batches_and_share_the_rows_among_them(
    rows: list[Row], budget: int, world_size: int
) -> None:
    table = table_of(*rows)
    ranks = [
        batching.rank_micro_batches(
            table,
            np.arange(len(rows)),
            batching.loss_mask(table),
            tokens_per_micro_batch=budget,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]

    assert len({len(batches) for batches in ranks}) == 1
    every = [batch for batches in ranks for batch in batches]
    assert sorted(row for batch in every for row in batch.rows) == list(range(len(rows)))
    in_loss = sorted(i for batch in every for i in batch.token_index.tolist())
    assert in_loss == np.flatnonzero(batching.loss_mask(table)).tolist()


def test_rank_without_rows_gets_a_batch_of_one_token_in_no_loss() -> None:
    [batch] = batching.rank_micro_batches(
        THREE_ROWS,
        np.array([0]),
        batching.loss_mask(THREE_ROWS),
        tokens_per_micro_batch=3,
        rank=1,
        world_size=2,
    )

    assert (batch.sequence_lengths, batch.token_ids.shape) == ((1,), (1, 1))
    assert len(batch.predicts) == len(batch.token_index) == len(batch.rows) == 0


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
    with pytest.raises(TrajectoryError, match=r"5 groups.*6"):
        batching.split_into_mini_batches(GROUPS, num_mini_batches=6, seed=0)


# --- no copies ------------------------------------------------------------------------------------


def as_torch(values: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Arrow's memory is read-only
        return torch.from_numpy(values)


@pytest.fixture
def memory_mapped(tmp_path: Path) -> pa.Table:
    """A table of one chunk in a file that Arrow mapped, and so cannot write to."""
    path = tmp_path / "table.arrow"
    with pa.ipc.new_file(path, SCHEMA) as writer:
        writer.write_table(THREE_ROWS)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@pytest.mark.parametrize("name", ["token_advantages", "rollout_logprobs", "loss_mask"])
def test_flat_column_shares_arrow_s_memory_all_the_way_to_torch(
    memory_mapped: pa.Table, name: str
) -> None:
    values = batching.flat_column(memory_mapped, name)

    [chunk] = memory_mapped.column(name).chunks
    assert np.shares_memory(values, chunk.values.to_numpy())
    assert as_torch(values).data_ptr() == chunk.values.buffers()[1].address
    assert not values.flags.writeable


def test_flat_column_of_a_slice_shares_memory_too(memory_mapped: pa.Table) -> None:
    values = batching.flat_column(memory_mapped.slice(1), "token_advantages")

    [chunk] = memory_mapped.column("token_advantages").chunks
    assert np.shares_memory(values, chunk.values.to_numpy())
    assert values.tolist() == pytest.approx([2.1, 2.2, 2.3, 2.4, 2.5, 3.1])


def test_mask_is_a_copy_that_may_be_written_to() -> None:
    before = batching.flat_column(THREE_ROWS, "loss_mask").tolist()

    batching.loss_mask(THREE_ROWS)[:] = False

    assert batching.flat_column(THREE_ROWS, "loss_mask").tolist() == before
