"""Checks that every layer of a running engine computes with the weights that were sent.

A layer's parameters prove nothing: on CPU the engine computes with a packed copy that no attribute
exposes, and packed layers keep an empty parameter. So each layer is *used*, by the call that the
model makes, on a fixed random input (``serve.weights.probe``).

With tensor parallelism, what a layer of this rank computes before results are gathered is compared
with the rank's share of the tensor (``shares_of_linear``, ``share_of_vocabulary``: a rule of vLLM's
layers). No rank asks another: one that failed would leave the others waiting in a collective.

Shapes: ``K`` inputs and ``N`` outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)

from cast_ray.errors import WeightSyncError
from serve.weights.probe import (
    Comparison,
    LayerCheck,
    compare_equal,
    compare_product,
    probe_of,
    settled,
    whole_sums,
)


def shares_of_linear(layer: LinearBase, name: str, sent: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return this rank's share of each projection that is merged into a layer.

    Args:
        layer: on this rank.
        name: of the layer, for the error.
        sent: the complete ``[N, K]`` weights or ``[N]`` biases, in the order of merging.

    Raises:
        WeightSyncError: the projections are merged in the file, and this rank holds only a part of
            each.
    """
    if layer.tp_size == 1 or not isinstance(layer, (ColumnParallelLinear, RowParallelLinear)):
        return sent
    if isinstance(layer, RowParallelLinear):
        # Inputs are split; the bias is not.
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
        # With fewer key and value heads than ranks, neighbouring ranks hold the same head.
        replicas = (1, layer.num_kv_head_replicas, layer.num_kv_head_replicas)
    else:
        replicas = (1,) * len(sent)
    return [
        part.chunk(layer.tp_size // same, dim=0)[layer.tp_rank // same]
        for part, same in zip(sent, replicas, strict=True)
    ]


def share_of_vocabulary(layer: VocabParallelEmbedding, sent: torch.Tensor) -> torch.Tensor:
    """Return the rows ``[V, K]`` of the embedding or head on this rank, without padding."""
    indices = layer.shard_indices
    return sent[indices.org_vocab_start_index : indices.org_vocab_end_index]


@torch.no_grad()
def check_layers(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> list[LayerCheck]:
    """Compare every layer of a vLLM model with the tensors that were sent.

    Args:
        model: vLLM's model on one worker, with its weights loaded.
        tensors: the complete weights on the same device, named as in the Hugging Face checkpoint.

    Returns:
        One entry per tensor and use: a tied embedding is checked as embedding and as head.

    Raises:
        WeightSyncError: a layer has no tensor in the file, or a tensor no layer.
    """
    with whole_sums():
        found = compare_layers(model, tensors)
    return settled(found)


def compare_layers(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> list[Comparison]:
    """Do the work of ``check_layers`` without waiting for the device. Raises as it does."""
    found = [
        one
        for name, module in model.named_modules()
        for one in _compare_module(model, name, module, tensors)
    ]
    if unused := set(tensors) - {one.source for one in found}:
        raise WeightSyncError(
            f"no layer of the engine uses {sorted(unused)[:3]} of the weights sent; learner and "
            f"engine must have the same architecture"
        )
    return found


def _compare_module(
    model: torch.nn.Module, name: str, module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> Iterator[Comparison]:
    """Yield the comparison of each tensor that one module uses."""
    if isinstance(module, LinearBase):
        yield from _compare_linear(model, name, module, tensors)
    elif isinstance(module, ParallelLMHead):
        # A tied head has no tensor of its own; the error must still say which layer is wrong.
        own = f"{name}.weight"
        source = own if own in tensors else "model.embed_tokens.weight"
        held = share_of_vocabulary(module, _find(tensors, source).to(module.params_dtype))
        probe = probe_of(held.shape[1], held.device)
        logits = module.quant_method.apply(module, probe.rows.to(held.dtype), None)
        yield compare_product(own, source, probe, logits[:, : len(held)], held)
    elif isinstance(module, VocabParallelEmbedding):
        source = f"{name}.weight"
        held = share_of_vocabulary(module, _find(tensors, source))
        rows = torch.arange(len(held), device=module.get_parameter("weight").device)
        yield compare_equal(source, lambda: module.quant_method.embedding(module, rows), held)
    else:
        for field, parameter in module.named_parameters(recurse=False):
            source = f"{name}.{field}"
            yield compare_equal(source, lambda it=parameter: it, _find(tensors, source))


def _compare_linear(
    model: Any,  # Any: vLLM's models add attributes to a module's
    name: str,
    layer: LinearBase,
    tensors: Mapping[str, torch.Tensor],
) -> Iterator[Comparison]:
    """Compare a linear layer, each projection that the engine has merged into it separately."""
    prefix, _, leaf = name.rpartition(".")
    parts = [f"{prefix}.{part}" for part in model.packed_modules_mapping.get(leaf, [leaf])]
    whole = [_find(tensors, f"{part}.weight").to(layer.params_dtype) for part in parts]
    sent = shares_of_linear(layer, name, whole)
    probe = probe_of(sent[0].shape[1], sent[0].device)
    # The call that the layer's own forward makes. The bias is compared separately: added to a
    # product, it would round the exact rows.
    output = layer.quant_method.apply(layer, probe.rows.to(sent[0].dtype), None)
    pieces = output.split([len(weight) for weight in sent], dim=1)
    for part, weight, piece in zip(parts, sent, pieces, strict=True):
        yield compare_product(f"{part}.weight", f"{part}.weight", probe, piece, weight)
    if layer.bias is not None:
        whole = [_find(tensors, f"{part}.bias").to(layer.params_dtype) for part in parts]
        sent = shares_of_linear(layer, name, whole)
        found = layer.get_parameter("bias").split([len(bias) for bias in sent])
        for part, bias, expected in zip(parts, found, sent, strict=True):
            yield compare_equal(f"{part}.bias", lambda it=bias: it, expected)


def _find(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in tensors:
        raise WeightSyncError(
            f"the weights sent lack {name}, which the engine uses; learner and engine must have "
            f"the same architecture"
        )
    return tensors[name]
