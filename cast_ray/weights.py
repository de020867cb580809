"""Weights on their way to the engines: one versioned file, and the manifest that vouches for it.

The learner publishes, every engine reads; both sides share only this file. The manifest travels
apart from the weights (as an argument of the update), so that a damaged or exchanged file cannot
vouch for itself. Engines on other hosts, and engines that restart, find it beside the file.

Not for checkpoints: files here usually lie in shared memory and are gone with the machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from cast_ray.errors import WeightSyncError
from cast_ray.files import refusals_named, written_aside


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a weights file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As PyTorch spells it without the prefix: ``bfloat16``, ``float32``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightManifest:
    """What a weights file must be, byte for byte."""

    version: int
    """Counts the published versions; larger is newer."""
    path: str
    num_bytes: int
    checksum: str
    """SHA-256 of the file's bytes, in hex."""
    tensors: tuple[TensorSpec, ...]

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
    state: Mapping[str, torch.Tensor], *, directory: str | Path, version: int
) -> WeightManifest:
    """Write tensors as ``weights-<version>.safetensors`` and return their manifest.

    The file and its manifest (``.json`` beside it) appear by rename, whole or not at all, the
    manifest last. Tensors must not share memory: a tied head is left out, the embedding stands
    for it.

    Raises:
        EnvironmentSetupError: the directory cannot be written to, or has no room.
    """
    folder = Path(directory)
    path = folder / f"weights-{version}.safetensors"
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    data = save(tensors)
    manifest = WeightManifest(
        version=version,
        path=str(path),
        num_bytes=len(data),
        checksum=_checksum(data),
        tensors=_specs(tensors),
    )
    with refusals_named(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # No fsync: the file lives in memory, and a reader in another process sees the rename at once.
    with written_aside(path) as aside:
        aside.write_bytes(data)
    with written_aside(path.with_suffix(".json")) as aside:
        aside.write_text(manifest.to_json())
    return manifest


def read_weights(manifest: WeightManifest) -> dict[str, torch.Tensor]:
    """Return the tensors of a weights file, after proving that it is the file that was published.

    The bytes that are checked are the bytes that are parsed: the file is read once.

    Raises:
        WeightSyncError: the file is missing, or size, checksum or tensors differ from the manifest.
    """
    try:
        data = Path(manifest.path).read_bytes()
    except OSError as error:
        raise WeightSyncError(
            f"cannot read weights {manifest.path}: {error.strerror}; publish version "
            f"{manifest.version} again"
        ) from error
    if len(data) != manifest.num_bytes:
        raise _mismatch(manifest, "size in bytes", len(data), manifest.num_bytes)
    if (checksum := _checksum(data)) != manifest.checksum:
        raise _mismatch(manifest, "checksum", checksum, manifest.checksum)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise _mismatch(manifest, "format", str(error), "safetensors") from error
    if (specs := _specs(tensors)) != manifest.tensors:
        wrong = sorted(spec.name for spec in set(specs) ^ set(manifest.tensors))
        raise _mismatch(manifest, "tensors", wrong, "those of the manifest")
    return tensors


def latest_manifest(directory: str | Path) -> WeightManifest | None:
    """Return the manifest of the newest version in a directory; None where there is none."""
    manifests = [WeightManifest.from_json(p.read_text()) for p in _manifest_paths(directory)]
    return max(manifests, key=lambda manifest: manifest.version, default=None)


def remove_old_versions(directory: str | Path, keep: int) -> None:
    """Delete all but the newest ``keep`` versions, manifest first. ``keep`` must be at least 1."""
    if keep < 1:
        raise ValueError(f"keep must be >= 1, got {keep}")
    paths = sorted(_manifest_paths(directory), key=_version_of)
    for path in paths[:-keep]:
        path.unlink(missing_ok=True)
        path.with_suffix(".safetensors").unlink(missing_ok=True)


def _manifest_paths(directory: str | Path) -> list[Path]:
    return list(Path(directory).glob("weights-*.json"))


def _version_of(path: Path) -> int:
    return int(path.stem.removeprefix("weights-"))


def _specs(tensors: Mapping[str, torch.Tensor]) -> tuple[TensorSpec, ...]:
    # Sorted: safetensors lays tensors out by size, so the order of a file is not that of a dict.
    return tuple(
        TensorSpec(name=name, shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch."))
        for name, t in sorted(tensors.items())
    )


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _mismatch(
    manifest: WeightManifest, what: str, found: object, expected: object
) -> WeightSyncError:
    return WeightSyncError(
        f"weights {manifest.path} (version {manifest.version}): {what} is {found}, expected "
        f"{expected}; the file was damaged or replaced, publish it again"
    )
