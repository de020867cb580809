"""Reads, writes and verifies a weights file: an ordinary safetensors file, in parallel pieces.

The checksum of a file is that of its pieces' checksums, so that threads can work on several pieces
and one piece can travel alone. A writer processes blocks of a megabyte: rounded, hashed and written
while they are in the cache, so float32 weights become a bfloat16 file without a second model in
memory. From a GPU it fetches larger blocks, rounded there, while other threads hash and write. A
reader maps the file and holds a shared lock on it while the mapping lives. A writer that reuses a
file (its pages exist already, which saves a third of the time) first takes an exclusive lock, or
leaves the file alone.

The format is written here because the safetensors library holds complete files in memory. A test
shows that the library reads these files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from blake3 import blake3

PIECE_BYTES = 64 * 2**20
"""Bytes of every piece of a file but the last, unless its manifest says otherwise."""
_BLOCK_BYTES = 2**20
_FETCHED_BYTES = 16 * 2**20
"""Of one copy from a GPU, to pinned memory."""
_UNDIVIDED = 2**15
"""Most values that PyTorch copies with one thread."""
_MAX_THREADS = 8
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
    """PyTorch's name without its prefix: ``bfloat16``, ``float32``."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """PyTorch's object for the type."""
        return getattr(torch, self.dtype)

    @property
    def num_values(self) -> int:
        """The product of the shape."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """The size of the values."""
        return self.num_values * self.torch_dtype.itemsize


def tensors_in(mapping: mmap.mmap) -> dict[str, torch.Tensor]:
    """Return the tensors of a mapped safetensors file, without a copy; they keep it mapped.

    Raises:
        ValueError: it is not a safetensors file, or its tensors do not fill it exactly.
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
    """Return tensors in file order: larger elements first, then by name.

    Each then begins at a multiple of its element size.
    """
    return sorted(specs, key=lambda spec: (-spec.torch_dtype.itemsize, spec.name))


def header_of(order: Sequence[TensorSpec]) -> bytearray:
    """Return the bytes before the values: a length and padded JSON.

    Args:
        order: the tensors in file order.
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


@dataclass(frozen=True, slots=True)
class _Source:
    """Values that become one stretch of the file."""

    values: torch.Tensor
    """Flat, of any type and on any device."""
    dtype: torch.dtype
    """Their type in the file."""
    begin: int
    end: int

    @property
    def is_on_host(self) -> bool:
        return self.values.device.type == "cpu"

    def block(self, begin: int, end: int, scratch: torch.Tensor) -> memoryview:
        """Return the bytes of a part of the stretch: the values' own, or rounded into scratch."""
        size = self.dtype.itemsize
        values = self.values[(begin - self.begin) // size : (end - self.begin) // size]
        target = scratch[: end - begin].view(self.dtype)
        if not self.is_on_host:
            target.copy_(values.to(self.dtype))
        elif values.dtype == self.dtype:
            target = values
        else:
            # PyTorch splits longer copies among its own threads, which wait for each other.
            for part, rounded in zip(
                values.split(_UNDIVIDED), target.split(_UNDIVIDED), strict=True
            ):
                rounded.copy_(part)
        return target.view(torch.uint8).numpy().data


def write_file(
    aside: Path,
    tensors: Mapping[str, torch.Tensor],
    specs: Iterable[TensorSpec],
    *,
    spare: Path,
    piece_bytes: int,
    num_threads: int | None = None,
) -> tuple[int, str]:
    """Write tensors to ``aside``, each rounded to its spec's type; return size and checksum.

    Args:
        aside: where to write; the caller renames it when this returns.
        tensors: by name, one for each spec.
        specs: in any order.
        piece_bytes: of every piece but the last; a multiple of 8.
        spare: an old file to overwrite instead of creating one; need not exist.
        num_threads: how many work on pieces; None = one per core, at most 8.

    Raises:
        OSError: no space, or no permission to write.
    """
    order = in_file_order(specs)
    header = header_of(order)
    sources = [_Source(torch.frombuffer(header, dtype=torch.uint8), torch.uint8, 0, len(header))]
    for spec in order:
        begin = sources[-1].end
        values = tensors[spec.name].detach().contiguous().view(-1)
        sources.append(_Source(values, spec.torch_dtype, begin, begin + spec.num_bytes))
    num_bytes = sources[-1].end
    file = open_for_writing(aside, num_bytes, spare=spare)
    try:
        with ThreadPoolExecutor(num_threads or thread_count()) as threads:
            pieces = list(
                threads.map(
                    lambda begin: _write_piece(file, sources, begin, begin + piece_bytes),
                    range(0, num_bytes, piece_bytes),
                )
            )
    finally:
        os.close(file)
    return num_bytes, join_checksums(pieces)


def open_for_writing(aside: Path, num_bytes: int, *, spare: Path) -> int:
    """Return a descriptor of a file of ``num_bytes`` that has no reader, with all memory reserved.

    Reserved beforehand, because shared memory that runs out later causes a signal or leaves holes.
    The exclusive lock ends with the descriptor.

    Raises:
        OSError: no space, or no permission to write.
    """
    with contextlib.suppress(FileNotFoundError):
        os.rename(spare, aside)
    file = os.open(aside, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a reader still has it mapped, and keeps it
            os.close(file)
            aside.unlink()
            file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, num_bytes)
        os.posix_fallocate(file, 0, num_bytes)
    except OSError:
        os.close(file)
        raise
    return file


def map_file(path: Path) -> mmap.mmap:
    """Return a private mapping of a file; no writer of ours reuses the file while it lives.

    Raises:
        OSError: the file does not exist, or is being written.
        ValueError: it is empty.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        # The mapping keeps the open file, and with it the lock, after the descriptor is closed.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Private and writable: writing to a tensor changes a private copy, not the file.
        return mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(file)


def checksum_of(data: mmap.mmap, *, piece_bytes: int, num_threads: int | None = None) -> str:
    """Return the checksum of a file, computed by several threads."""
    with memoryview(data) as whole, ThreadPoolExecutor(num_threads or thread_count()) as threads:
        begins = range(0, len(whole), piece_bytes)
        return join_checksums(
            list(threads.map(lambda at: blake3(whole[at : at + piece_bytes]).digest(), begins))
        )


def join_checksums(pieces: Sequence[bytes]) -> str:
    """Return a file's checksum, in hex, from those of its pieces."""
    return blake3(b"".join(pieces)).hexdigest()


def thread_count() -> int:
    """Return how many threads hash and copy: more than eight get no more memory bandwidth."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def _write_piece(file: int, sources: Sequence[_Source], begin: int, end: int) -> bytes:
    """Write the bytes between two positions of the file; return their checksum."""
    is_fetched = not all(source.is_on_host for source in sources)
    size = _FETCHED_BYTES if is_fetched else _BLOCK_BYTES
    is_pinned = is_fetched and torch.cuda.is_available()
    scratch = torch.empty(size, dtype=torch.uint8, pin_memory=is_pinned)
    digest = blake3()
    for source in sources:
        stop = min(end, source.end)
        for at in range(max(begin, source.begin), stop, size):
            block = source.block(at, min(at + size, stop), scratch)
            digest.update(block)
            write_all(file, block, at)
    return digest.digest()


def write_all(file: int, data: memoryview, at: int) -> None:
    """Write all of ``data``; one call may write only a part.

    Raises:
        OSError: the file system refused it.
    """
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
