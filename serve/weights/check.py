"""Checks that every layer of a running engine computes with the weights that were sent.

A layer's parameters prove nothing: on CPU the engine computes with a packed copy that no attribute
exposes, and packed layers keep an empty parameter. So each layer is *used*, by the call that the
model makes, on a fixed random input of two kinds of rows:

* one-hot rows with a random sign. The product is one column of the weight, exactly, in any order
  of summation and any dtype: it must be equal bit for bit at every output.
* dense normal rows, which use the layer as a forward pass does and see every input. They agree up
  to rounding; of a large layer some outputs are compared.

An update by the optimizer changes columns and rows everywhere, so a layer that missed it shows.

With tensor parallelism, what a layer of this rank computes before results are gathered is compared
with the rank's share of the tensor (``shares_of_linear``, ``share_of_vocabulary``: a rule of vLLM's
layers). No rank asks another: one that failed would leave the others waiting in a collective.

Shapes: ``R`` probe rows, ``K`` inputs and ``N`` outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
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

MAX_ONE_HOT_ROWS = 64
"""A layer with more inputs is probed at this many, always the same ones, for all outputs."""
NUM_DENSE_ROWS = 8
MAX_DENSE_OUTPUTS = 256
"""Of a layer with more outputs this many dense products are compared, spread over all."""

ALLOWED_RELATIVE_ERROR = {torch.float32: 2e-6, torch.bfloat16: 1e-3, torch.float16: 1.5e-4}
"""Largest RMS error of the dense rows over the RMS of the product, by the dtype of the product.
At least four times the largest healthy value seen on CPU (4e-7, 2.4e-4, 1e-5 in this order): in a
layer with few outputs, one large output rounded differently weighs more. In bfloat16 an update at
learning rate 1e-5 stays below it; the one-hot rows detect every weight whose bits changed."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCheck:
    """How far one tensor in use is from the tensor that was sent."""

    name: str
    """As in the weights file."""
    relative_error: float
    allowed_error: float

    @property
    def is_right(self) -> bool:
        """Whether the error is allowed; NaN is not."""
        return self.relative_error <= self.allowed_error

    @property
    def severity(self) -> tuple[bool, float]:
        """The sort key of checks: wrong ones above right ones, then by error."""
        return not self.is_right, self.relative_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One tensor in use and the tensor that was sent, compared on their device."""

    name: str
    """As in the weights file."""
    source: str
    """The tensor of the file; a tied head is compared with the embedding's."""
    is_same: torch.Tensor
    """``[]`` bool, of what must be equal bit for bit."""
    difference: Callable[[], torch.Tensor]
    """Computes the relative error of that part, ``[]`` float64."""
    rounding: torch.Tensor | None = None
    """``[]`` float64, the relative error of what may be rounded differently."""
    allowed_rounding: float = 0.0


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
    with _whole_sums():
        found = compare_layers(model, tensors)
    # One wait for the device instead of one for each layer.
    are_same = torch.stack([one.is_same for one in found]).tolist()
    zero = torch.zeros((), dtype=torch.float64, device=found[0].is_same.device)
    rounding = torch.stack([zero if one.rounding is None else one.rounding for one in found])
    return [
        LayerCheck(name=one.name, relative_error=error, allowed_error=one.allowed_rounding)
        if is_same
        else LayerCheck(name=one.name, relative_error=one.difference().item(), allowed_error=0.0)
        for one, is_same, error in zip(found, are_same, rounding.tolist(), strict=True)
    ]


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


@contextmanager
def _whole_sums() -> Iterator[None]:
    """Have CUDA sum products of bfloat16 in float32 throughout, as the allowed errors assume."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = before


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
        sent = _find(tensors, source).to(module.params_dtype)
        held = share_of_vocabulary(module, sent)
        probe = _probe(held.shape[1], held.device)
        logits = module.quant_method.apply(module, probe.rows.to(held.dtype), None)
        yield _product(own, source, probe, logits[:, : len(held)], held)
    elif isinstance(module, VocabParallelEmbedding):
        source = f"{name}.weight"
        held = share_of_vocabulary(module, _find(tensors, source))
        rows = torch.arange(len(held), device=module.get_parameter("weight").device)
        yield _equal(source, lambda: module.quant_method.embedding(module, rows), held)
    else:
        for field, parameter in module.named_parameters(recurse=False):
            source = f"{name}.{field}"
            yield _equal(source, lambda it=parameter: it, _find(tensors, source))


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
    probe = _probe(sent[0].shape[1], sent[0].device)
    # The call that the layer's own forward makes. The bias is compared separately: added to a
    # product, it would round the exact rows.
    output = layer.quant_method.apply(layer, probe.rows.to(sent[0].dtype), None)
    pieces = output.split([len(weight) for weight in sent], dim=1)
    for part, weight, piece in zip(parts, sent, pieces, strict=True):
        yield _product(f"{part}.weight", f"{part}.weight", probe, piece, weight)
    if layer.bias is not None:
        whole = [_find(tensors, f"{part}.bias").to(layer.params_dtype) for part in parts]
        sent = shares_of_linear(layer, name, whole)
        found = layer.get_parameter("bias").split([len(bias) for bias in sent])
        for part, bias, expected in zip(parts, found, sent, strict=True):
            yield _equal(f"{part}.bias", lambda it=bias: it, expected)


@dataclass(frozen=True, slots=True)
class _Probe:
    """The fixed random input of all layers with ``K`` inputs."""

    rows: torch.Tensor
    """``[R, K]`` float32, every value exact in bfloat16: one-hot rows, then dense rows."""
    inputs: torch.Tensor
    """Which input each one-hot row looks at."""
    signs: torch.Tensor
    """``[len(inputs), 1]``, +1 or -1."""


@cache
def _probe(size: int, device: torch.device) -> _Probe:
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randperm(size, generator=generator)[:MAX_ONE_HOT_ROWS]
    signs = torch.randint(0, 2, (len(inputs), 1), generator=generator) * 2.0 - 1.0
    one_hot = torch.zeros(len(inputs), size).scatter_(1, inputs[:, None], signs)
    dense = torch.randn(NUM_DENSE_ROWS, size, generator=generator).bfloat16().float()
    rows = torch.cat([one_hot, dense])
    return _Probe(rows.to(device), inputs.to(device), signs.to(device))


def _product(
    name: str, source: str, probe: _Probe, output: torch.Tensor, weight: torch.Tensor
) -> Comparison:
    """Compare the output ``[R, N]`` of a layer that should hold ``weight`` ``[N, K]``."""
    exact, dense = output.split([len(probe.inputs), NUM_DENSE_ROWS])
    columns = (probe.signs.to(weight.dtype) * weight[:, probe.inputs].T).to(exact.dtype)
    # Rounded as the engine rounds; only the order of summation may differ.
    exact_enough = torch.float64 if weight.dtype == torch.float32 else torch.float32
    rows = probe.rows[-NUM_DENSE_ROWS:].to(weight.dtype).to(exact_enough)
    every = -(-len(weight) // MAX_DENSE_OUTPUTS)
    product = rows @ weight[::every].to(exact_enough).T
    return Comparison(
        name=name,
        source=source,
        is_same=torch.eq(exact, columns).all(),
        difference=lambda: _relative_error(exact, columns),
        rounding=_relative_error(dense[:, ::every], product.to(dense.dtype)),
        allowed_rounding=ALLOWED_RELATIVE_ERROR[dense.dtype],
    )


def _equal(name: str, use: Callable[[], torch.Tensor], sent: torch.Tensor) -> Comparison:
    found = use()
    sent = sent.to(found.dtype)
    # What was looked up is not kept: an embedding is large.
    return Comparison(
        name=name,
        source=name,
        is_same=torch.eq(found, sent).all(),
        difference=lambda: _relative_error(use(), sent),
    )


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    difference = (found.double() - expected.double()).norm()
    # 0 where both are 0: a layer may hold nothing but zeros.
    return torch.where(difference == 0, 0.0, difference / expected.double().norm())


def _find(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in tensors:
        raise WeightSyncError(
            f"the weights sent lack {name}, which the engine uses; learner and engine must have "
            f"the same architecture"
        )
    return tensors[name]
