"""The safetensors format: where in a file each tensor lies.

Written by ourselves, because the library takes and gives whole files in memory; its own reader
takes what is laid out here, which a test proves.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

_ALIGNMENT = 8
"""The largest element size; the header is padded to it, as the format demands."""

_FORMAT_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_TORCH_NAMES = {name: torch_name for torch_name, name in _FORMAT_NAMES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a weights file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As PyTorch spells it without the prefix: ``bfloat16``, ``float32``."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type as PyTorch's object."""
        return getattr(torch, self.dtype)

    @property
    def num_values(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """What the values take."""
        return self.num_values * self.torch_dtype.itemsize


def tensors_in(mapping: mmap.mmap) -> dict[str, torch.Tensor]:
    """Return the tensors of a mapped safetensors file, without a copy; they keep it mapped.

    Raises:
        ValueError: it is no such file, or its tensors do not fill it exactly.
    """
    length = int.from_bytes(mapping[:8], "little")
    if not 0 < length <= len(mapping) - 8:
        raise ValueError(f"a header of {length} bytes in a file of {len(mapping)}")
    begin = 8 + length
    entries = {
        name: entry
        for name, entry in json.loads(mapping[8:begin]).items()
        if name != "__metadata__"
    }
    tensors: dict[str, torch.Tensor] = {}
    end = begin
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        spec = TensorSpec(
            name=name, shape=tuple(entry["shape"]), dtype=_TORCH_NAMES[entry["dtype"]]
        )
        offsets = [end - begin, end - begin + spec.num_bytes]
        if entry["data_offsets"] != offsets or begin + offsets[1] > len(mapping):
            raise ValueError(f"{name} lies at {entry['data_offsets']}, not at {offsets}")
        # An empty tensor has no bytes that PyTorch could point at.
        flat = (
            torch.frombuffer(mapping, dtype=spec.torch_dtype, offset=end, count=spec.num_values)
            if spec.num_bytes
            else torch.empty(0, dtype=spec.torch_dtype)
        )
        tensors[name] = flat.view(spec.shape)
        end += spec.num_bytes
    if end != len(mapping):
        raise ValueError(f"the tensors end at byte {end} of {len(mapping)}")
    return tensors


def in_file_order(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Return tensors as they lie in a file: those with larger elements first, then by name.

    Each then begins at a multiple of its element size.
    """
    return sorted(specs, key=lambda spec: (-spec.torch_dtype.itemsize, spec.name))


def header_of(order: Sequence[TensorSpec]) -> bytearray:
    """Return what stands before the values: a length and JSON, padded with spaces.

    Args:
        order: the tensors as they lie in the file.
    """
    entries, end = {}, 0
    for spec in order:
        offsets = [end, end := end + spec.num_bytes]
        entries[spec.name] = {
            "dtype": _FORMAT_NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return bytearray(len(text).to_bytes(8, "little") + text)
