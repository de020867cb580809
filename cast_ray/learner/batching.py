"""Rows of an Arrow table as packed tensors, and which rank computes which of them.

Letters: ``R`` rows of a table, ``N`` tokens of all its rows, ``L`` tokens of a micro-batch, ``n``
of them in the loss. Everything here is a function of its arguments, so that every rank can compute
the share of every other.

Columns with one value per token (advantages, logprobs) stay flat, ``[N]`` in row order, and are
indexed with ``PackedBatch.token_index``; the policy's results are written back the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cast_ray.errors import TrajectoryError

Rows: TypeAlias = pa.Table | pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """Complete rows packed into one sequence, without padding."""

    token_ids: Tensor
    """``[1, L]`` int64."""
    position_ids: Tensor
    """``[1, L]`` int64, counted from 0 in every row."""
    sequence_lengths: tuple[int, ...]
    """Tokens of each row; they add up to L."""
    predicts: Tensor
    """``[n]`` int64, positions whose next token is in the loss."""
    token_index: Tensor
    """``[n]`` int64, where those next tokens are in a flat column of the table."""
    trajectory: Tensor
    """``[n]`` int64, which row of the batch each belongs to."""
    rows: np.ndarray
    """Rows of the table; empty for a batch that only keeps ranks in step."""

    def to(self, device: torch.device) -> PackedBatch:
        """Return the batch with its tensors on ``device``."""
        names = ("token_ids", "position_ids", "predicts", "token_index", "trajectory")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def flat_column(table: Rows, name: str) -> np.ndarray:
    """Return a list column's values, ``[N]`` in row order; read-only, Arrow owns the memory.

    Raises:
        TrajectoryError: the table has no such column.
    """
    # flatten() honours the slice of a sliced array; .values would not.
    return _list_array(table, name).flatten().to_numpy()


def row_offsets(table: Rows, name: str = "token_ids") -> np.ndarray:
    """Return ``[R + 1]`` where each row's entries start in a flat column."""
    lengths = _list_array(table, name).value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def loss_mask(table: Rows) -> np.ndarray:
    """Return ``[N]`` bool: tokens that the policy wrote and predicts (never a row's first).

    Raises:
        TrajectoryError: ``loss_mask`` and ``token_ids`` do not have the same lengths.
    """
    offsets, mask_offsets = row_offsets(table), row_offsets(table, "loss_mask")
    if not np.array_equal(offsets, mask_offsets):
        row = int(np.flatnonzero(offsets != mask_offsets)[0]) - 1
        raise TrajectoryError(
            f"row {row} has different numbers of tokens and mask entries: not a trajectory"
        )
    mask = flat_column(table, "loss_mask").astype(bool)
    mask[offsets[:-1][np.diff(offsets) > 0]] = False
    return mask


def rows_in_loss(in_loss: np.ndarray, table: Rows, rows: np.ndarray) -> np.ndarray:
    """Return ``[N]`` bool: tokens in the loss that belong to some rows.

    Raises:
        TrajectoryError: there is none.
    """
    offsets = row_offsets(table)
    chosen = np.zeros(len(offsets) - 1, dtype=bool)
    chosen[rows] = True
    of_rows = in_loss & np.repeat(chosen, np.diff(offsets))
    if not of_rows.any():
        raise TrajectoryError(f"none of these {len(rows)} rows has a token in the loss")
    return of_rows


def split_into_mini_batches(
    groups: np.ndarray, *, num_mini_batches: int, seed: int
) -> list[np.ndarray]:
    """Return the rows of each mini-batch: whole groups, by a seeded permutation of the groups.

    Args:
        groups: ``[R]`` group of each row.
        num_mini_batches: at most the number of groups.
        seed: of the permutation; the same seed gives the same split.

    Returns:
        Row indices, ascending, one array per mini-batch; every row is in exactly one. The numbers
        of groups differ by at most 1.

    Raises:
        TrajectoryError: there are fewer groups than mini-batches.
    """
    names = np.unique(groups)
    if len(names) < num_mini_batches:
        raise TrajectoryError(
            f"{len(names)} groups cannot fill {num_mini_batches} mini-batches: "
            "lower learner.mini_batches or raise rollout.puzzles_per_step"
        )
    parts = np.array_split(np.random.default_rng(seed).permutation(names), num_mini_batches)
    return [np.flatnonzero(np.isin(groups, part)) for part in parts]


def shard_rows(lengths: np.ndarray, *, world_size: int) -> list[np.ndarray]:
    """Return, for each rank, the positions of its rows: longest first to the least loaded rank.

    Args:
        lengths: ``[R]`` tokens of each row.
        world_size: number of ranks; ranks beyond the number of rows get none.

    Returns:
        Positions in ``lengths``, ascending, one array per rank.
    """
    shards: list[list[int]] = [[] for _ in range(world_size)]
    loads = np.zeros(world_size, dtype=np.int64)
    for position in np.argsort(-lengths, kind="stable"):
        rank = int(loads.argmin())
        shards[rank].append(int(position))
        loads[rank] += lengths[position]
    return [np.array(sorted(shard), dtype=np.int64) for shard in shards]


def cut_micro_batches(lengths: np.ndarray, *, tokens_per_micro_batch: int) -> list[np.ndarray]:
    """Return the positions of each micro-batch's rows.

    Longest rows first, each into the first micro-batch with room for it. A row longer than the
    budget is alone in one. Positions within a micro-batch ascend.
    """
    cuts: list[list[int]] = []
    room: list[int] = []
    for position in np.argsort(-lengths, kind="stable"):
        length = int(lengths[position])
        fits = next((i for i, left in enumerate(room) if left >= length), None)
        if fits is None:
            cuts.append([int(position)])
            room.append(tokens_per_micro_batch - length)
        else:
            cuts[fits].append(int(position))
            room[fits] -= length
    return [np.array(sorted(cut), dtype=np.int64) for cut in cuts]


def micro_batches(
    table: Rows, rows: np.ndarray, in_loss: np.ndarray, *, tokens_per_micro_batch: int
) -> list[PackedBatch]:
    """Return rows of a table as micro-batches, each within a budget of tokens.

    Args:
        table: with the columns ``token_ids`` and ``loss_mask`` of ``ROLLOUT_SCHEMA``.
        rows: row indices.
        in_loss: ``[N]`` bool, what ``loss_mask`` returned, or less.
        tokens_per_micro_batch: largest L; a longer row gets a micro-batch of its own.
    """
    offsets, token_ids = row_offsets(table), flat_column(table, "token_ids")
    lengths = np.diff(offsets)[rows]
    cuts = cut_micro_batches(lengths, tokens_per_micro_batch=tokens_per_micro_batch)
    return [_pack(rows[cut], offsets, token_ids, in_loss) for cut in cuts]


def rank_micro_batches(
    table: Rows,
    rows: np.ndarray,
    in_loss: np.ndarray,
    *,
    tokens_per_micro_batch: int,
    rank: int,
    world_size: int,
) -> list[PackedBatch]:
    """Return one rank's micro-batches, and empty ones up to the same number on every rank.

    DeepSpeed's collectives need the same number of passes on every rank. An empty batch is one
    token outside the loss: its gradient is exactly 0.
    """
    lengths = np.diff(row_offsets(table))[rows]
    shards = shard_rows(lengths, world_size=world_size)
    num_batches = max(
        len(cut_micro_batches(lengths[shard], tokens_per_micro_batch=tokens_per_micro_batch))
        for shard in shards
    )
    own = micro_batches(
        table, rows[shards[rank]], in_loss, tokens_per_micro_batch=tokens_per_micro_batch
    )
    return own + [_empty_batch() for _ in range(num_batches - len(own))]


def _list_array(table: Rows, name: str) -> pa.ListArray:
    if name not in table.schema.names:
        raise TrajectoryError(f"the table has no column {name}: it is of an earlier stage")
    column = table.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    # combine_chunks copies, even a single chunk.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _pack(
    rows: np.ndarray, offsets: np.ndarray, token_ids: np.ndarray, in_loss: np.ndarray
) -> PackedBatch:
    lengths = np.diff(offsets)[rows]
    starts = np.cumsum(lengths) - lengths
    row_of_token = np.repeat(np.arange(len(rows)), lengths)
    position = np.arange(lengths.sum()) - starts[row_of_token]
    index = offsets[rows][row_of_token] + position
    wanted = np.flatnonzero(in_loss[index])
    return PackedBatch(
        token_ids=torch.from_numpy(token_ids[index].astype(np.int64))[None],
        position_ids=torch.from_numpy(position)[None],
        sequence_lengths=tuple(lengths.tolist()),
        predicts=torch.from_numpy(wanted - 1),
        token_index=torch.from_numpy(index[wanted]),
        trajectory=torch.from_numpy(row_of_token[wanted]),
        rows=rows,
    )


def _empty_batch() -> PackedBatch:
    nothing = torch.zeros(0, dtype=torch.int64)
    return PackedBatch(
        token_ids=torch.zeros(1, 1, dtype=torch.int64),
        position_ids=torch.zeros(1, 1, dtype=torch.int64),
        sequence_lengths=(1,),
        predicts=nothing,
        token_index=nothing,
        trajectory=nothing,
        rows=np.zeros(0, dtype=np.int64),
    )
