"""Publishes weights for the engines: versioned files, and manifests to verify them.

The learner publishes and every engine reads; the two share only this file. The manifest travels
separately (as an argument of the update), so that a damaged or replaced file cannot vouch for
itself. Engines on other hosts, and restarted engines, find it next to the file.

Not for checkpoints: the files usually are in shared memory and vanish with the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from cast_ray.errors import WeightSyncError
from cast_ray.files import (
    checked,
    faults_named,
    parse_json,
    refusals_named,
    write_text,
    written_aside,
)
from cast_ray.weights.file import (
    PIECE_BYTES,
    TensorSpec,
    checksum_of,
    map_file,
    tensors_in,
    write_file,
)

VERSIONS_KEPT = 2
"""On each host: the newest, and the one that an engine may still be reading."""
SPARE = ".spare"
"""The file of an old version, kept because overwriting it is faster than creating a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightManifest:
    """The exact contents of a weights file."""

    version: int
    """Counts the published versions; larger is newer."""
    path: str
    """Of the file, on the host where this manifest is used."""
    num_bytes: int
    checksum: str
    """BLAKE3 of the BLAKE3 digests of the file's pieces, in hex."""
    piece_bytes: int
    """Of every piece but the last."""
    tensors: tuple[TensorSpec, ...]
    """In the order of their names."""

    def to_json(self) -> str:
        """Return the text that ``from_json`` reads back to an equal manifest."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> WeightManifest:
        """Return the manifest of a text written by ``to_json``; ValueError for another."""
        return checked(cls, parse_json(text))

    def __post_init__(self) -> None:
        if self.piece_bytes < 1:
            raise ValueError(f"piece_bytes must be >= 1, got {self.piece_bytes}")


def publish_weights(
    state: Mapping[str, torch.Tensor],
    *,
    directory: str | Path,
    version: int,
    dtype: str | None = None,
    keep: int = VERSIONS_KEPT,
    piece_bytes: int = PIECE_BYTES,
    num_threads: int | None = None,
) -> WeightManifest:
    """Write tensors as ``weights-<version>.safetensors`` and return their manifest.

    The file and its manifest (``.json`` next to it) appear atomically, the manifest last. Tensors
    must not share memory: leave out a tied head, which the embedding represents.

    Args:
        state: by Hugging Face name, on any device.
        directory: created if necessary, for this user alone.
        version: of these weights.
        dtype: to which every tensor is rounded; None = unchanged.
        keep: how many versions stay, this one included.
        piece_bytes: unit of work of a thread or a transfer.
        num_threads: how many write; None = one per core, at most 8.

    Raises:
        EnvironmentSetupError: the directory is not writable, or has no space.
    """
    folder = make_private(directory)
    path = folder / f"weights-{version}.safetensors"
    specs = tuple(_specs(state, dtype))
    # No fsync: the file lives in memory, and a reader in another process sees the rename at once.
    with written_aside(path) as aside:
        num_bytes, checksum = write_file(
            aside,
            state,
            specs,
            spare=folder / SPARE,
            piece_bytes=piece_bytes,
            num_threads=num_threads,
        )
    manifest = WeightManifest(
        version=version,
        path=str(path),
        num_bytes=num_bytes,
        checksum=checksum,
        piece_bytes=piece_bytes,
        tensors=specs,
    )
    announce(manifest, keep=keep)
    return manifest


def read_weights(
    manifest: WeightManifest, *, num_threads: int | None = None
) -> dict[str, torch.Tensor]:
    """Return the tensors of a weights file, after verifying that it is what was published.

    They are views of the file, which stays mapped and is not reused while one of them lives. So the
    verified bytes are the ones in use, unless a foreign process of this user writes to the file: a
    copy would prevent that, and cost as much again as the checksum. Writing to a tensor changes a
    private copy.

    Raises:
        WeightSyncError: the file is missing, or size, checksum or tensors differ from the manifest.
    """
    path = Path(manifest.path)
    try:
        # Before mapping: an empty file cannot be mapped.
        if (num_bytes := path.stat().st_size) != manifest.num_bytes:
            raise mismatch(manifest, "size in bytes", num_bytes, manifest.num_bytes)
        mapping = map_file(path)
    except (OSError, ValueError) as error:  # ValueError: no file can have that name
        raise WeightSyncError(
            f"cannot read weights {manifest.path[:300]}: {error!s:.300}; publish version "
            f"{manifest.version} again"
        ) from error
    checksum = checksum_of(mapping, piece_bytes=manifest.piece_bytes, num_threads=num_threads)
    if checksum != manifest.checksum:
        raise mismatch(manifest, "checksum", checksum, manifest.checksum)
    try:
        tensors = tensors_in(mapping)
    except (ValueError, KeyError) as error:
        raise mismatch(manifest, "format", str(error), "safetensors") from error
    if (specs := tuple(_specs(tensors, None))) != manifest.tensors:
        wrong = sorted({spec.name for spec in set(specs) ^ set(manifest.tensors)})
        raise mismatch(manifest, "tensors", wrong, "those of the manifest")
    return tensors


def latest_manifest(directory: str | Path) -> WeightManifest | None:
    """Return the manifest of the newest version in a directory; None if there is none.

    Raises:
        DamagedFileError: it is damaged.
    """
    while True:
        newest = max(_manifest_paths(directory), key=_version_of, default=None)
        if newest is None:
            return None
        try:
            text = newest.read_bytes()
        except FileNotFoundError:  # removed since, because there is a newer one: look again
            continue
        with faults_named(newest):
            return WeightManifest.from_json(text)


def announce(manifest: WeightManifest, *, keep: int) -> None:
    """Write the manifest next to a complete file, and remove old versions.

    Raises:
        EnvironmentSetupError: the directory is not writable.
    """
    path = Path(manifest.path)
    write_text(path.with_suffix(".json"), manifest.to_json())
    remove_old_versions(path.parent, keep)


def remove_old_versions(directory: str | Path, keep: int) -> None:
    """Delete all but the newest ``keep`` versions, manifest first. ``keep`` must be at least 1.

    One of their files stays as the spare that the next version overwrites.
    """
    if keep < 1:
        raise ValueError(f"keep must be >= 1, got {keep}")
    paths = sorted(_manifest_paths(directory), key=_version_of)
    for path in paths[:-keep]:
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # another process of this host did it
            os.replace(path.with_suffix(".safetensors"), Path(directory) / SPARE)


def make_private(directory: str | Path) -> Path:
    """Create a folder that only this user can read, unless it exists, and return it.

    Raises:
        EnvironmentSetupError: it cannot be created.
    """
    folder = Path(directory)
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def mismatch(
    manifest: WeightManifest, what: str, found: object, expected: object
) -> WeightSyncError:
    """Return the error of a file that differs from its manifest."""
    return WeightSyncError(
        f"weights {manifest.path} (version {manifest.version}): {what} is {found}, expected "
        f"{expected}; the file was damaged or replaced, publish it again"
    )


def _manifest_paths(directory: str | Path) -> list[Path]:
    return list(Path(directory).glob("weights-*.json"))


def _version_of(path: Path) -> int:
    return int(path.stem.removeprefix("weights-"))


def _specs(tensors: Mapping[str, torch.Tensor], dtype: str | None) -> Iterable[TensorSpec]:
    for name, tensor in sorted(tensors.items()):
        own = str(tensor.dtype).removeprefix("torch.")
        yield TensorSpec(name=name, shape=tuple(tensor.shape), dtype=dtype or own)
