"""The bytes of a weights file: laid out, written once and proved, each in pieces side by side.

The file is an ordinary safetensors file. Its checksum is that of the checksums of its pieces, so
that threads can work on several pieces and one piece can travel alone. A writer goes through a
block of a megabyte at a time: rounded, hashed and written while it is in the cache, so a model of
float32 weights becomes a file of bfloat16 without a second model in memory.

A reader maps the file and holds a shared lock on it for as long as the mapping lives. A writer that
wants to reuse the file (its pages are already there, which is worth a third of the time) first
takes an exclusive lock, or leaves the file alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from blake3 import blake3

from cast_ray.weight_format import TensorSpec, header_of, in_file_order

PIECE_BYTES = 64 * 2**20
"""Every piece of a file but the last has so many bytes, unless its manifest says otherwise."""
_BLOCK_BYTES = 2**20
_UNDIVIDED = 2**15
"""Values that PyTorch copies with one thread."""
_MAX_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSeconds:
    """Where the time of a writing went, added up over threads."""

    packing: float
    """Rounding to the type that is sent; nothing where it is that already."""
    checksum: float
    writing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What ``write_file`` put down."""

    num_bytes: int
    checksum: str
    seconds: WriteSeconds


@dataclass(frozen=True, slots=True)
class _Source:
    """Values on their way to one stretch of the file."""

    values: torch.Tensor
    """Flat, of any type and on any device."""
    dtype: torch.dtype
    """What they become."""
    begin: int
    end: int

    def block(self, begin: int, end: int, scratch: bytearray) -> memoryview:
        """Return the bytes for a part of the stretch: the values' own, or rounded to scratch."""
        size = self.dtype.itemsize
        values = self.values[(begin - self.begin) // size : (end - self.begin) // size]
        if values.dtype == self.dtype and values.device.type == "cpu":
            return values.view(torch.uint8).numpy().data
        rounded = torch.frombuffer(scratch, dtype=self.dtype, count=len(values))
        # PyTorch divides longer copies among threads of its own, which wait for each other.
        for part, target in zip(values.split(_UNDIVIDED), rounded.split(_UNDIVIDED), strict=True):
            target.copy_(part)
        return memoryview(scratch)[: end - begin]


def write_file(
    aside: Path,
    tensors: Mapping[str, torch.Tensor],
    specs: Iterable[TensorSpec],
    *,
    spare: Path,
    piece_bytes: int,
    num_threads: int | None = None,
) -> WrittenFile:
    """Write tensors, each rounded to its spec's type, to ``aside``.

    Args:
        aside: where to write; the caller renames it when this returns.
        tensors: by name, one for each spec.
        specs: in any order.
        piece_bytes: of every piece but the last; a multiple of 8.
        spare: an old file that may be overwritten instead of a new one made; need not exist.
        num_threads: how many work on pieces; None = one a core, at most 8.

    Raises:
        OSError: no room, or no right to write.
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
    seconds = [seconds for _, seconds in pieces]
    return WrittenFile(
        num_bytes=num_bytes,
        checksum=join_checksums([checksum for checksum, _ in pieces]),
        seconds=WriteSeconds(
            packing=sum(part.packing for part in seconds),
            checksum=sum(part.checksum for part in seconds),
            writing=sum(part.writing for part in seconds),
        ),
    )


def open_for_writing(aside: Path, num_bytes: int, *, spare: Path) -> int:
    """Return a descriptor of a file of ``num_bytes`` that nobody reads, its memory all reserved.

    Reserved beforehand, because shared memory that runs out later would show as a signal or leave
    holes. The exclusive lock ends with the descriptor.

    Raises:
        OSError: no room, or no right to write.
    """
    with contextlib.suppress(FileNotFoundError):
        os.rename(spare, aside)
    file = os.open(aside, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody still has it mapped, and keeps it
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
    """Return a private mapping of a whole file; no writer of ours reuses the file while it lives.

    Raises:
        OSError: there is no such file, or it is being written to.
        ValueError: it is empty.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        # The mapping keeps the open file, and with it the lock, after the descriptor is closed.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Private and writable: who writes to a tensor changes a copy of its own, not the file.
        return mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(file)


def checksum_of(data: mmap.mmap, *, piece_bytes: int, num_threads: int | None = None) -> str:
    """Return the checksum of a whole file, by several threads."""
    with memoryview(data) as whole, ThreadPoolExecutor(num_threads or thread_count()) as threads:
        begins = range(0, len(whole), piece_bytes)
        return join_checksums(
            list(threads.map(lambda at: blake3(whole[at : at + piece_bytes]).digest(), begins))
        )


def join_checksums(pieces: Sequence[bytes]) -> str:
    """Return a file's checksum from those of its pieces, in hex."""
    return blake3(b"".join(pieces)).hexdigest()


def thread_count() -> int:
    """Return how many threads hash and copy: more than eight find no more memory bandwidth."""
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)))


def _write_piece(
    file: int, sources: Sequence[_Source], begin: int, end: int
) -> tuple[bytes, WriteSeconds]:
    """Write what of the sources lies between two places; return the checksum of it."""
    scratch = bytearray(_BLOCK_BYTES)
    digest = blake3()
    packing = checksum = writing = 0.0
    for source in sources:
        stop = min(end, source.end)
        for at in range(max(begin, source.begin), stop, _BLOCK_BYTES):
            started = time.perf_counter()
            block = source.block(at, min(at + _BLOCK_BYTES, stop), scratch)
            packed = time.perf_counter()
            digest.update(block)
            hashed = time.perf_counter()
            write_all(file, block, at)
            packing += packed - started
            checksum += hashed - packed
            writing += time.perf_counter() - hashed
    seconds = WriteSeconds(packing=packing, checksum=checksum, writing=writing)
    return digest.digest(), seconds


def write_all(file: int, data: memoryview, at: int) -> None:
    """Write all of ``data``; one call may take only a part.

    Raises:
        OSError: the file system refused it.
    """
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
