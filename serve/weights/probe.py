"""The fixed random input of a layer, and the comparison of what it computes from it; no vLLM.

Two kinds of rows:

* one-hot rows with a random sign. The product is one column of the weight, exactly, in any order
  of summation and any dtype: it must be equal bit for bit at every output.
* dense normal rows, which use the layer as a forward pass does and see every input. They agree up
  to rounding; of a large layer some outputs are compared.

An update by the optimizer changes columns and rows everywhere, so a layer that missed it shows.

Shapes: ``R`` probe rows, ``K`` inputs and ``N`` outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

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


def settled(found: Sequence[Comparison]) -> list[LayerCheck]:
    """Return the results of comparisons, with one wait for the device instead of one each."""
    are_same = torch.stack([one.is_same for one in found]).tolist()
    zero = torch.zeros((), dtype=torch.float64, device=found[0].is_same.device)
    rounding = torch.stack([zero if one.rounding is None else one.rounding for one in found])
    return [
        LayerCheck(name=one.name, relative_error=error, allowed_error=one.allowed_rounding)
        if is_same
        else LayerCheck(name=one.name, relative_error=one.difference().item(), allowed_error=0.0)
        for one, is_same, error in zip(found, are_same, rounding.tolist(), strict=True)
    ]


@contextmanager
def whole_sums() -> Iterator[None]:
    """Have CUDA sum products of bfloat16 in float32 throughout, as the allowed errors assume."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = before


@dataclass(frozen=True, slots=True)
class Probe:
    """The fixed random input of all layers with ``K`` inputs."""

    rows: torch.Tensor
    """``[R, K]`` float32, every value exact in bfloat16: one-hot rows, then dense rows."""
    inputs: torch.Tensor
    """Which input each one-hot row looks at."""
    signs: torch.Tensor
    """``[len(inputs), 1]``, +1 or -1."""


@cache
def probe_of(size: int, device: torch.device) -> Probe:
    """Return the probe of all layers with ``size`` inputs."""
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randperm(size, generator=generator)[:MAX_ONE_HOT_ROWS]
    signs = torch.randint(0, 2, (len(inputs), 1), generator=generator) * 2.0 - 1.0
    one_hot = torch.zeros(len(inputs), size).scatter_(1, inputs[:, None], signs)
    dense = torch.randn(NUM_DENSE_ROWS, size, generator=generator).bfloat16().float()
    rows = torch.cat([one_hot, dense])
    return Probe(rows.to(device), inputs.to(device), signs.to(device))


def compare_product(
    name: str, source: str, probe: Probe, output: torch.Tensor, weight: torch.Tensor
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


def compare_equal(name: str, use: Callable[[], torch.Tensor], sent: torch.Tensor) -> Comparison:
    """Compare what a layer holds, from ``use``, with the tensor that was sent."""
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
