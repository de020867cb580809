"""Fake tensors on a device ``cuda``, on a build of torch without CUDA.

``FakeTensorMode`` computes shapes, types and devices, and refuses products of two devices. Torch's
Python bindings of some methods ask for a CUDA driver before that mode sees them: these go straight
to the operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten


class _WithoutDriver(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.copy_:
            return aten.copy_.default(args[0], args[1])
        if func is torch.Tensor.to:
            wanted = [*args[1:], *kwargs.values()]
            device, dtype = args[0].device, args[0].dtype
            for one in wanted:
                if isinstance(one, torch.Tensor):
                    device, dtype = one.device, one.dtype
                elif isinstance(one, torch.dtype):
                    dtype = one
                elif isinstance(one, (torch.device, str)):
                    device = CUDA if torch.device(one).type == "cuda" else torch.device(one)
            return aten._to_copy.default(args[0], dtype=dtype, device=device)
        if func is torch.Tensor.__getitem__ and args[0].is_cuda:
            return _indexed(*args)
        return func(*args, **kwargs)


def _indexed(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """Return what plain indexing returns, for slices, numbers and tensors of numbers."""
    dim = 0
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, slice):
            tensor = aten.slice.Tensor(tensor, dim, one.start, one.stop, one.step or 1)
            dim += 1
        elif isinstance(one, int):
            tensor = aten.select.int(tensor, dim, one)
        elif one is None:
            tensor, dim = tensor.unsqueeze(dim), dim + 1
        else:
            tensor = aten.index_select.default(tensor, dim, one)
            dim += 1
    return tensor


@contextmanager
def fake_cuda() -> Iterator[torch.device]:
    """Make all tensors of the block fake; those that are created without a device are on CPU."""
    with FakeTensorMode(allow_non_fake_inputs=True), _WithoutDriver():
        yield CUDA
