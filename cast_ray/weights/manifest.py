"""Weights on their way to the engines: one versioned file, and the manifest that vouches for it.

The learner publishes, every engine reads; both sides share only this file. The manifest travels
apart from the weights (as an argument of the update), so that a damaged or exchanged file cannot
vouch for itself. Engines on other hosts, and engines that restart, find it beside the file.

Not for checkpoints: files here usually lie in shared memory and are gone with the machine.
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
from cast_ray.files import refusals_named, written_aside
from cast_ray.weights.file import (
    PIECE_BYTES,
    TensorSpec,
    WriteSeconds,
    checksum_of,
    map_file,
    tensors_in,
    write_file,
)

VERSIONS_KEPT = 2
"""On each host: the newest, and the one that an engine may be reading."""
SPARE = ".spare"
"""The file of an old version, kept because writing over it is faster than making a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightManifest:
    """What a weights file must be, byte for byte."""

    version: int
    """Counts the published versions; larger is newer."""
    path: str
    """On the host where this manifest is used."""
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
    def from_json(cls, text: str) -> WeightManifest:
        """Return the manifest of a text written by ``to_json``."""
        fields = json.loads(text)
        specs = fields.pop("tensors")
        tensors = tuple(TensorSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in specs)
        return cls(tensors=tensors, **fields)


def publish_weights(
    state: Mapping[str, torch.Tensor],
    *,
    directory: str | Path,
    version: int,
    dtype: str | None = None,
    keep: int = VERSIONS_KEPT,
    piece_bytes: int = PIECE_BYTES,
) -> WeightManifest:
    """Write tensors as ``weights-<version>.safetensors`` and return their manifest.

    The file and its manifest (``.json`` beside it) appear by rename, whole or not at all, the
    manifest last. Tensors must not share memory: a tied head is left out, the embedding stands
    for it.

    Args:
        state: by Hugging Face name, on any device.
        directory: made if need be, for this user alone.
        version: of these weights.
        dtype: what every tensor is rounded to on its way; None = sent as it is.
        keep: so many versions stay, this one included.
        piece_bytes: what a thread or a transfer takes at a time.

    Raises:
        EnvironmentSetupError: the directory cannot be written to, or has no room.
    """
    return publish_timed(
        state,
        directory=directory,
        version=version,
        dtype=dtype,
        keep=keep,
        piece_bytes=piece_bytes,
    )[0]


def publish_timed(
    state: Mapping[str, torch.Tensor],
    *,
    directory: str | Path,
    version: int,
    dtype: str | None = None,
    keep: int = VERSIONS_KEPT,
    piece_bytes: int = PIECE_BYTES,
    num_threads: int | None = None,
) -> tuple[WeightManifest, WriteSeconds]:
    """Publish as ``publish_weights`` does, and say where the time went."""
    folder = make_private(directory)
    path = folder / f"weights-{version}.safetensors"
    specs = tuple(_specs(state, dtype))
    # No fsync: the file lives in memory, and a reader in another process sees the rename at once.
    with written_aside(path) as aside:
        written = write_file(
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
        num_bytes=written.num_bytes,
        checksum=written.checksum,
        piece_bytes=piece_bytes,
        tensors=specs,
    )
    announce(manifest, keep=keep)
    return manifest, written.seconds


def read_weights(
    manifest: WeightManifest, *, num_threads: int | None = None
) -> dict[str, torch.Tensor]:
    """Return the tensors of a weights file, after proving that it is the file that was published.

    They are not copied: they lie in the file, which stays mapped and is not reused while one of
    them lives. So the bytes that are checked are those that are parsed, unless a process of this
    user that is none of ours writes to the file in between: a copy would shut that out, and cost
    as much again as the checksum. Writing to a tensor changes a copy of the caller's own.

    Raises:
        WeightSyncError: the file is missing, or size, checksum or tensors differ from the manifest.
    """
    path = Path(manifest.path)
    try:
        # Before it is mapped: an empty file cannot be.
        if (num_bytes := path.stat().st_size) != manifest.num_bytes:
            raise mismatch(manifest, "size in bytes", num_bytes, manifest.num_bytes)
        mapping = map_file(path)
    except OSError as error:
        raise WeightSyncError(
            f"cannot read weights {manifest.path}: {error.strerror}; publish version "
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
    """Return the manifest of the newest version in a directory; None where there is none."""
    while True:
        newest = max(_manifest_paths(directory), key=_version_of, default=None)
        if newest is None:
            return None
        try:
            return WeightManifest.from_json(newest.read_text())
        except FileNotFoundError:  # removed since, so a newer one is there: look again
            continue


def announce(manifest: WeightManifest, *, keep: int) -> None:
    """Put the manifest beside a file that is complete, and remove what it makes old.

    Raises:
        EnvironmentSetupError: the directory cannot be written to.
    """
    path = Path(manifest.path)
    with written_aside(path.with_suffix(".json")) as aside:
        aside.write_text(manifest.to_json())
    remove_old_versions(path.parent, keep)


def remove_old_versions(directory: str | Path, keep: int) -> None:
    """Delete all but the newest ``keep`` versions, manifest first. ``keep`` must be at least 1.

    One of their files stays as the spare of the next version, which is then written over it.
    """
    if keep < 1:
        raise ValueError(f"keep must be >= 1, got {keep}")
    paths = sorted(_manifest_paths(directory), key=_version_of)
    for path in paths[:-keep]:
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # another process of this host was faster
            os.replace(path.with_suffix(".safetensors"), Path(directory) / SPARE)


def make_private(directory: str | Path) -> Path:
    """Make a folder that only this user can look into, unless it is there, and return it.

    Raises:
        EnvironmentSetupError: it cannot be made.
    """
    folder = Path(directory)
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def mismatch(
    manifest: WeightManifest, what: str, found: object, expected: object
) -> WeightSyncError:
    """Return the error of a file that is not what its manifest says."""
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
