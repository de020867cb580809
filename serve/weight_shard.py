"""Which part of a sent tensor one rank of a tensor-parallel engine holds.

A rule of vLLM's own layers, said once here so that the check (``weight_check``) compares a rank's
layer with its own share and needs no word from another rank: a rank that failed would otherwise
leave the others waiting in a collective.

Shapes: ``K`` inputs and ``N`` outputs of a whole layer.
"""

from __future__ import annotations

import torch
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from cast_ray.errors import WeightSyncError


def shares_of_linear(layer: LinearBase, name: str, sent: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return what the layer of this rank holds of each projection that is merged into it.

    Args:
        layer: on this rank.
        name: of the layer, for the error.
        sent: ``[N, K]`` weights, or ``[N]`` biases, whole, in the order of merging.

    Raises:
        WeightSyncError: the projections are merged in the file already and this rank holds only a
            part of each.
    """
    if layer.tp_size == 1 or not isinstance(layer, (ColumnParallelLinear, RowParallelLinear)):
        return sent
    if isinstance(layer, RowParallelLinear):
        # Inputs are divided; the bias is not.
        return [
            part if part.dim() == 1 else part.chunk(layer.tp_size, dim=1)[layer.tp_rank]
            for part in sent
        ]
    if len(sent) != len(layer.output_partition_sizes):
        raise WeightSyncError(
            f"{name} comes as {len(sent)} tensors and holds "
            f"{len(layer.output_partition_sizes)} projections: with tensor parallelism it cannot "
            f"be compared; set engine.tensor_parallel_size=1"
        )
    if isinstance(layer, QKVParallelLinear):
        # Fewer heads of keys and values than ranks: neighbours hold the same one.
        replicas = (1, layer.num_kv_head_replicas, layer.num_kv_head_replicas)
    else:
        replicas = (1,) * len(sent)
    return [
        part.chunk(layer.tp_size // same, dim=0)[layer.tp_rank // same]
        for part, same in zip(sent, replicas, strict=True)
    ]


def share_of_vocabulary(layer: VocabParallelEmbedding, sent: torch.Tensor) -> torch.Tensor:
    """Return the rows ``[V, K]`` of the embedding or head that this rank holds, without padding."""
    indices = layer.shard_indices
    return sent[indices.org_vocab_start_index : indices.org_vocab_end_index]
