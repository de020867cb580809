"""Weights files: what is published is what is read, and anything else is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cast_ray.errors import EnvironmentSetupError, WeightSyncError
from cast_ray.weights import (
    WeightManifest,
    latest_manifest,
    publish_weights,
    read_weights,
    remove_old_versions,
)


def tiny_state(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "model.norm.weight": torch.ones(4),
        "model.embed_tokens.weight": torch.randn(8, 4, generator=generator).bfloat16(),
        "lm_head.weight": torch.randn(8, 4, generator=generator).bfloat16(),
    }


def test_published_weights_read_back_bit_for_bit(tmp_path: Path) -> None:
    state = tiny_state()
    tensors = read_weights(publish_weights(state, directory=tmp_path, version=3))
    assert tensors.keys() == state.keys()
    assert all(torch.equal(tensors[name], state[name]) for name in state)
    assert all(tensors[name].dtype == state[name].dtype for name in state)


def test_a_slice_of_a_parameter_that_wants_gradients_is_published(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    manifest = publish_weights({"w": parameter[:, 1]}, directory=tmp_path, version=0)
    assert torch.equal(read_weights(manifest)["w"], torch.tensor([1.0, 5.0, 9.0]))


def test_manifest_survives_its_json(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    assert WeightManifest.from_json(manifest.to_json()) == manifest


def test_directory_holds_the_file_and_its_manifest_and_nothing_else(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path / "new", version=3)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "weights-3.json",
        "weights-3.safetensors",
    ]
    assert latest_manifest(tmp_path / "new") == manifest


@pytest.mark.parametrize("position", [0, 8, 200, -1], ids=["length", "header", "tensor", "last"])
def test_one_wrong_byte_is_refused_with_file_and_checksum(tmp_path: Path, position: int) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    data = bytearray(Path(manifest.path).read_bytes())
    data[position] ^= 1
    Path(manifest.path).write_bytes(data)
    with pytest.raises(WeightSyncError, match=rf"weights-3\.safetensors.*{manifest.checksum}"):
        read_weights(manifest)


def test_a_truncated_file_is_refused_with_both_sizes(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    data = Path(manifest.path).read_bytes()
    Path(manifest.path).write_bytes(data[:-1])
    with pytest.raises(WeightSyncError, match=rf"is {len(data) - 1}, expected {len(data)}"):
        read_weights(manifest)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    Path(manifest.path).unlink()
    with pytest.raises(WeightSyncError, match=r"cannot read .*weights-3\.safetensors: No such"):
        read_weights(manifest)


def test_another_versions_file_under_this_name_is_refused(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(seed=0), directory=tmp_path, version=3)
    other = publish_weights(tiny_state(seed=1), directory=tmp_path, version=4)
    Path(other.path).replace(manifest.path)
    with pytest.raises(WeightSyncError, match="checksum"):
        read_weights(manifest)


def test_tensors_that_the_manifest_does_not_list_are_refused_by_name(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    shorter = replace(manifest, tensors=manifest.tensors[1:])
    with pytest.raises(WeightSyncError, match=manifest.tensors[0].name):
        read_weights(shorter)


def test_publishing_where_nothing_can_be_written_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(EnvironmentSetupError, match="cannot be written"):
        publish_weights(tiny_state(), directory=tmp_path / "file", version=3)


def test_latest_is_by_number_and_none_in_an_empty_directory(tmp_path: Path) -> None:
    assert latest_manifest(tmp_path) is None
    for version in (9, 10):
        publish_weights(tiny_state(), directory=tmp_path, version=version)
    latest = latest_manifest(tmp_path)
    assert latest is not None
    assert latest.version == 10


def test_old_versions_are_removed_and_the_newest_kept(tmp_path: Path) -> None:
    manifests = [publish_weights(tiny_state(), directory=tmp_path, version=v) for v in range(8, 12)]
    remove_old_versions(tmp_path, keep=2)
    assert [Path(manifest.path).exists() for manifest in manifests] == [False, False, True, True]
    assert len(list(tmp_path.iterdir())) == 4


def test_keeping_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be >= 1, got 0"):
        remove_old_versions(tmp_path, keep=0)
