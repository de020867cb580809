"""Rows of an Arrow table as padded tensors, and who computes which of them.

Letters: ``R`` rows of a table, ``N`` tokens of all its rows, ``B`` rows of a micro-batch, ``L``
tokens of its longest row. Everything here is a function of its arguments, so that every rank can
work out the share of every other without asking.

Columns with one value a token (advantages, logprobs) stay flat, ``[N]`` in row order, and are
indexed with ``TokenBatch.token_index``; what comes back from the policy goes back the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cast_ray.errors import TrajectoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Rows padded on the right to one length.

    Attention is causal, so no token sees the padding behind it, and no loss looks at it: no
    attention mask is needed, and without one PyTorch takes its fast attention kernels.
    """

    token_ids: Tensor
    """``[B, L]`` int64; 0 in the padding."""
    loss_mask: Tensor
    """``[B, L]`` bool: written by the policy and predicted by it; aligned with the token itself,
    so position 0, which nothing predicts, is never set."""
    token_index: Tensor
    """``[B, L]`` int64, where the token stands in a flat column of its table; 0 in the padding."""
    rows: np.ndarray
    """``[B]`` row of the table; empty for a batch that only keeps ranks in step."""

    @property
    def predicts(self) -> Tensor:
        """``[B, L]`` bool: the next token is in the loss, so logits are needed here."""
        shifted = torch.zeros_like(self.loss_mask)
        shifted[:, :-1] = self.loss_mask[:, 1:]
        return shifted

    def gather(self, flat: Tensor) -> Tensor:
        """Return ``[B, L]`` values of a flat ``[N]`` column at the tokens in the loss, else 0."""
        return torch.where(self.loss_mask, flat[self.token_index], 0)

    def to(self, device: torch.device) -> TokenBatch:
        """Return the batch with its tensors on ``device``."""
        return TokenBatch(
            token_ids=self.token_ids.to(device),
            loss_mask=self.loss_mask.to(device),
            token_index=self.token_index.to(device),
            rows=self.rows,
        )


def flat_column(table: pa.Table | pa.RecordBatch, name: str) -> np.ndarray:
    """Return a list column's values, ``[N]`` in row order; read-only, Arrow owns the memory.

    Raises:
        TrajectoryError: the table has no such column.
    """
    # flatten() honours the slice of a sliced array; .values would not.
    return _list_array(table, name).flatten().to_numpy()


def row_offsets(table: pa.Table | pa.RecordBatch, name: str = "token_ids") -> np.ndarray:
    """Return ``[R + 1]`` where each row's entries start in a flat column."""
    lengths = _list_array(table, name).value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def loss_mask(table: pa.Table | pa.RecordBatch) -> np.ndarray:
    """Return ``[N]`` bool: tokens that the policy wrote and predicts (never a row's first).

    Raises:
        TrajectoryError: ``loss_mask`` and ``token_ids`` do not have the same lengths.
    """
    offsets, mask_offsets = row_offsets(table), row_offsets(table, "loss_mask")
    if not np.array_equal(offsets, mask_offsets):
        row = int(np.flatnonzero(offsets != mask_offsets)[0]) - 1
        raise TrajectoryError(f"row {row} has not as many mask entries as tokens: not a trajectory")
    mask = flat_column(table, "loss_mask").astype(bool)
    mask[offsets[:-1][np.diff(offsets) > 0]] = False
    return mask


def num_loss_tokens(table: pa.Table | pa.RecordBatch, rows: np.ndarray) -> int:
    """Return how many tokens of some rows are in the loss; this is token-mean's denominator.

    Raises:
        TrajectoryError: there is none.
    """
    offsets, mask = row_offsets(table), loss_mask(table)
    num_tokens = sum(int(mask[offsets[row] : offsets[row + 1]].sum()) for row in rows)
    if num_tokens == 0:
        raise TrajectoryError(f"none of these {len(rows)} rows has a token that the policy wrote")
    return num_tokens


def split_into_mini_batches(
    groups: np.ndarray, *, num_mini_batches: int, seed: int
) -> list[np.ndarray]:
    """Return the rows of each mini-batch: whole groups, by a seeded permutation of the groups.

    Args:
        groups: ``[R]`` group of each row.
        num_mini_batches: at most the number of groups.
        seed: of the permutation; the same seed gives the same split.

    Returns:
        Row indices, ascending, one array a mini-batch; every row is in exactly one. The numbers
        of groups differ by at most 1.

    Raises:
        TrajectoryError: there are fewer groups than mini-batches.
    """
    names = np.unique(groups)
    if len(names) < num_mini_batches:
        raise TrajectoryError(
            f"{len(names)} groups cannot fill {num_mini_batches} mini-batches: "
            "lower the number of mini-batches or play more groups a step"
        )
    shuffled = np.random.default_rng(seed).permutation(names)
    parts = np.array_split(shuffled, num_mini_batches)
    return [np.flatnonzero(np.isin(groups, part)) for part in parts]


def shard_rows(lengths: np.ndarray, *, world_size: int) -> list[np.ndarray]:
    """Return, for each rank, the positions of its rows: longest first to the least loaded rank.

    Args:
        lengths: ``[R]`` tokens of each row.
        world_size: number of ranks; ranks beyond the number of rows get none.

    Returns:
        Positions in ``lengths``, ascending, one array a rank.
    """
    shards: list[list[int]] = [[] for _ in range(world_size)]
    loads = np.zeros(world_size, dtype=np.int64)
    for position in np.argsort(-lengths, kind="stable"):
        rank = int(loads.argmin())
        shards[rank].append(int(position))
        loads[rank] += lengths[position]
    return [np.array(sorted(shard), dtype=np.int64) for shard in shards]


def cut_micro_batches(lengths: np.ndarray, *, tokens_per_micro_batch: int) -> list[np.ndarray]:
    """Return the positions of each micro-batch's rows, longest rows first.

    Sorting by length keeps the padding small; a micro-batch's padded size is within the budget,
    unless a single row is longer, which then stands alone.
    """
    order = np.argsort(-lengths, kind="stable")
    cuts: list[np.ndarray] = []
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        num_rows = max(tokens_per_micro_batch // longest, 1)
        cuts.append(order[start : start + num_rows])
        start += num_rows
    return cuts


def micro_batches(
    table: pa.Table | pa.RecordBatch, rows: np.ndarray, *, tokens_per_micro_batch: int
) -> list[TokenBatch]:
    """Return rows of a table as micro-batches, each within a budget of padded tokens.

    Args:
        table: with the columns ``token_ids`` and ``loss_mask`` of ``ROLLOUT_SCHEMA``.
        rows: row indices.
        tokens_per_micro_batch: largest ``B * L``; a longer row gets a micro-batch of its own.
    """
    offsets, token_ids, mask = row_offsets(table), flat_column(table, "token_ids"), loss_mask(table)
    lengths = np.diff(offsets)[rows]
    cuts = cut_micro_batches(lengths, tokens_per_micro_batch=tokens_per_micro_batch)
    return [_pad(rows[cut], offsets, token_ids, mask) for cut in cuts]


def rank_micro_batches(
    table: pa.Table | pa.RecordBatch,
    rows: np.ndarray,
    *,
    tokens_per_micro_batch: int,
    rank: int,
    world_size: int,
) -> list[TokenBatch]:
    """Return one rank's micro-batches, filled up with empty ones to the same number on every rank.

    DeepSpeed's collectives need every rank to run as many passes as the others. An empty batch is
    one token that is in no loss: its gradient is exactly 0.
    """
    lengths = np.diff(row_offsets(table))[rows]
    shards = shard_rows(lengths, world_size=world_size)
    num_batches = max(
        len(cut_micro_batches(lengths[shard], tokens_per_micro_batch=tokens_per_micro_batch))
        for shard in shards
    )
    own = micro_batches(table, rows[shards[rank]], tokens_per_micro_batch=tokens_per_micro_batch)
    return own + [_empty_batch() for _ in range(num_batches - len(own))]


def _list_array(table: pa.Table | pa.RecordBatch, name: str) -> pa.ListArray:
    if name not in table.schema.names:
        raise TrajectoryError(f"the table has no column {name}: it is of an earlier stage")
    column = table.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    # combine_chunks copies, even a single chunk.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _pad(
    rows: np.ndarray, offsets: np.ndarray, token_ids: np.ndarray, mask: np.ndarray
) -> TokenBatch:
    starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
    position = np.arange(max(int(lengths.max()), 1))
    is_token = position < lengths[:, None]
    index = np.where(is_token, starts[:, None] + position, 0)
    return TokenBatch(
        token_ids=torch.from_numpy(np.where(is_token, token_ids[index], 0).astype(np.int64)),
        loss_mask=torch.from_numpy(is_token & mask[index]),
        token_index=torch.from_numpy(index),
        rows=rows,
    )


def _empty_batch() -> TokenBatch:
    return TokenBatch(
        token_ids=torch.zeros(1, 1, dtype=torch.int64),
        loss_mask=torch.zeros(1, 1, dtype=torch.bool),
        token_index=torch.zeros(1, 1, dtype=torch.int64),
        rows=np.zeros(0, dtype=np.int64),
    )
