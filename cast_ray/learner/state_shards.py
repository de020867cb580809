"""Many tensors as safetensors files of bounded size, written and read one tensor at a time.

A directory may hold several *kinds* of tensors under the same names; each kind has separate files.
Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

SHARD_BYTES = 2 * 2**30
"""Largest size of a file, unless a single tensor is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a file."""

    path: Path
    name: str
    shape: tuple[int, ...]

    def read(self) -> Tensor:
        """Return the tensor, on the CPU."""
        with safe_open(self.path, framework="pt") as file:
            return file.get_tensor(self.name)


def write_shards(
    tensors: Iterable[tuple[str, Tensor]],
    directory: Path,
    *,
    kind: str,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write named tensors as ``<kind>-00001.safetensors`` and so on.

    Args:
        tensors: consumed one by one; at most one file's worth is in memory.
        directory: exists.
        kind: of the tensors; file names start with it.
        shard_bytes: of one file.
    """
    held: dict[str, Tensor] = {}
    num_files, num_bytes = 0, 0
    for name, tensor in tensors:
        if held and num_bytes + tensor.nbytes > shard_bytes:
            num_files += 1
            save_file(held, _shard(directory, kind, num_files))
            held, num_bytes = {}, 0
        held[name] = tensor.detach().cpu().contiguous()
        num_bytes += tensor.nbytes
    save_file(held, _shard(directory, kind, num_files + 1))


def stored_tensors(directory: Path, *, kind: str) -> dict[str, StoredTensor]:
    """Return all tensors of a kind by name."""
    found = {}
    for path in sorted(directory.glob(f"{kind}-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            shapes = [tuple(file.get_slice(name).get_shape()) for name in names]
        for name, shape in zip(names, shapes, strict=True):
            found[name] = StoredTensor(path=path, name=name, shape=shape)
    return found


def _shard(directory: Path, kind: str, number: int) -> Path:
    return directory / f"{kind}-{number:05d}.safetensors"
