"""Weights files: what is published is what is read, and anything else is refused by name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.errors import EnvironmentSetupError, WeightSyncError
from cast_ray.weights import file as weight_file
from cast_ray.weights.file import tensors_in
from cast_ray.weights.manifest import (
    WeightManifest,
    latest_manifest,
    publish_weights,
    read_weights,
    remove_old_versions,
)
from tests.support.full_disk import full_disk


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
    with pytest.raises(WeightSyncError, match=rf"{len(data) - 1}\b.*{len(data)}\b"):
        read_weights(manifest)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    Path(manifest.path).unlink()
    with pytest.raises(WeightSyncError, match=r"weights-3\.safetensors.*No such"):
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
    with pytest.raises(EnvironmentSetupError, match=r"/file\b.*File exists"):
        publish_weights(tiny_state(), directory=tmp_path / "file", version=3)


def test_latest_is_by_number_and_none_in_an_empty_directory(tmp_path: Path) -> None:
    assert latest_manifest(tmp_path) is None
    for version in (9, 10):
        publish_weights(tiny_state(), directory=tmp_path, version=version)
    latest = latest_manifest(tmp_path)
    assert latest is not None
    assert latest.version == 10


def test_old_versions_are_removed_and_the_newest_kept(tmp_path: Path) -> None:
    manifests = [
        publish_weights(tiny_state(), directory=tmp_path, version=version, keep=9)
        for version in range(8, 12)
    ]
    remove_old_versions(tmp_path, keep=2)
    assert [Path(manifest.path).exists() for manifest in manifests] == [False, False, True, True]
    assert len(list(tmp_path.glob("weights-*"))) == 4


def test_a_directory_holds_two_versions_and_one_spare_file_however_many_were_published(
    tmp_path: Path,
) -> None:
    for version in range(8):
        publish_weights(tiny_state(version), directory=tmp_path, version=version)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".spare",
        "weights-6.json",
        "weights-6.safetensors",
        "weights-7.json",
        "weights-7.safetensors",
    ]


def test_keeping_no_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"keep.*1.*0"):
        remove_old_versions(tmp_path, keep=0)


def large_state(seed: int = 0) -> dict[str, torch.Tensor]:
    """Tensors of several blocks and pieces once these are made small."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(300, 100, generator=generator),
        "b.weight": torch.randn(70, 101, generator=generator).bfloat16(),
        "c.index": torch.randint(-9, 9, (77,), generator=generator),
        "d.mask": torch.rand(13, generator=generator) < 0.5,
        "e.scalar": torch.tensor(2.5),
        "f.empty": torch.zeros(0, 4),
    }


PIECE_BYTES = 1024
"""Files of a few thousand bytes then have many pieces."""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And these have many blocks."""
    monkeypatch.setattr(weight_file, "_BLOCK_BYTES", 128)


def test_the_file_is_a_safetensors_file(tmp_path: Path, small_blocks: None) -> None:
    state = large_state()
    manifest = publish_weights(state, directory=tmp_path, version=1, piece_bytes=PIECE_BYTES)
    tensors = safetensors.torch.load_file(manifest.path)
    assert tensors.keys() == state.keys()
    assert all(torch.equal(tensors[name], state[name]) for name in state)
    assert all(tensors[name].dtype == state[name].dtype for name in state)


def test_a_file_that_safetensors_wrote_is_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.torch.save_file(large_state(), path, metadata={"format": "pt"})
    tensors = tensors_in(weight_file.map_file(path))
    assert all(torch.equal(tensors[name], value) for name, value in large_state().items())


@settings(max_examples=60, derandomize=True)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), min_size=1, max_size=6),
    num_threads=st.integers(1, 3),
    sizes=st.sampled_from([(1024, 128), (64, 64), (4096, 8)]),
)
def test_any_shapes_survive_the_file_whatever_its_pieces(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[int, int]],
    num_threads: int,
    sizes: tuple[int, int],
) -> None:
    state = {
        f"w{i}": torch.randn(shape).to((torch.float32, torch.bfloat16, torch.int8)[i % 3])
        for i, shape in enumerate(shapes)
    }
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_file, "_BLOCK_BYTES", sizes[1])
        manifest = publish_weights(
            state, directory=folder, version=0, piece_bytes=sizes[0], num_threads=num_threads
        )
        tensors = read_weights(manifest)
    assert all(torch.equal(tensors[name], state[name]) for name in state)


def test_the_checksum_does_not_depend_on_the_number_of_threads(
    tmp_path: Path, small_blocks: None
) -> None:
    manifests = [
        publish_weights(
            large_state(),
            directory=tmp_path,
            version=0,
            piece_bytes=PIECE_BYTES,
            num_threads=num_threads,
        )
        for num_threads in (1, 2, 7)
    ]
    assert manifests[0] == manifests[1] == manifests[2]


@pytest.mark.parametrize("position", [1023, 1024, 5000, 30_000])
def test_a_wrong_byte_in_any_piece_is_refused(
    tmp_path: Path, small_blocks: None, position: int
) -> None:
    manifest = publish_weights(
        large_state(), directory=tmp_path, version=3, piece_bytes=PIECE_BYTES
    )
    data = bytearray(Path(manifest.path).read_bytes())
    data[position] ^= 0x80
    Path(manifest.path).write_bytes(data)
    with pytest.raises(WeightSyncError, match="checksum"):
        read_weights(manifest)


def test_two_exchanged_pieces_are_refused(tmp_path: Path, small_blocks: None) -> None:
    manifest = publish_weights(
        large_state(), directory=tmp_path, version=3, piece_bytes=PIECE_BYTES
    )
    data = Path(manifest.path).read_bytes()
    Path(manifest.path).write_bytes(data[:1024] + data[2048:3072] + data[1024:2048] + data[3072:])
    with pytest.raises(WeightSyncError, match="checksum"):
        read_weights(manifest)


def test_weights_are_rounded_on_their_way_as_pytorch_rounds(
    tmp_path: Path, small_blocks: None
) -> None:
    state = {"w": torch.randn(90, 90), "strided": torch.randn(40, 30).T}
    manifest = publish_weights(
        state, directory=tmp_path, version=0, dtype="bfloat16", piece_bytes=PIECE_BYTES
    )
    tensors = read_weights(manifest)
    assert {spec.dtype for spec in manifest.tensors} == {"bfloat16"}
    assert all(torch.equal(tensors[name], state[name].bfloat16()) for name in state)


def test_what_is_fetched_from_a_gpu_is_the_same_file(
    tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With host tensors that take the way of a GPU's."""
    for dtype in (None, "bfloat16"):
        state = {k: v for k, v in large_state().items() if dtype is None or v.is_floating_point()}
        monkeypatch.undo()
        expected = publish_weights(state, directory=tmp_path / "host", version=1, dtype=dtype)
        monkeypatch.setattr(weight_file, "_FETCHED_BYTES", 256)
        monkeypatch.setattr(weight_file._Source, "is_on_host", False)
        found = publish_weights(state, directory=tmp_path / "device", version=1, dtype=dtype)
        assert found.checksum == expected.checksum


def test_a_tensor_of_a_shape_that_was_not_announced_is_refused_by_name(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=3)
    [first, *others] = manifest.tensors
    wrong = replace(manifest, tensors=(replace(first, shape=first.shape[::-1]), *others))
    with pytest.raises(WeightSyncError, match=first.name):
        read_weights(wrong)


@pytest.mark.parametrize("damage", ["gap", "short", "length", "type"])
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path, damage: str) -> None:
    offsets, size = {"gap": ([4, 20], 20), "short": ([0, 16], 12)}.get(damage, ([0, 16], 16))
    dtype = "F7" if damage == "type" else "F32"
    text = json.dumps({"w": {"dtype": dtype, "shape": [4], "data_offsets": offsets}}).encode()
    length = 10**9 if damage == "length" else len(text)
    path = tmp_path / "weights"
    path.write_bytes(length.to_bytes(8, "little") + text + bytes(size))
    with pytest.raises((ValueError, KeyError)):
        tensors_in(weight_file.map_file(path))


def test_the_next_version_is_written_over_the_spare_file(tmp_path: Path) -> None:
    for version in range(3):
        publish_weights(tiny_state(version), directory=tmp_path, version=version)
    spare = (tmp_path / ".spare").stat().st_ino
    manifest = publish_weights(tiny_state(3), directory=tmp_path, version=3)
    assert Path(manifest.path).stat().st_ino == spare
    assert torch.equal(read_weights(manifest)["lm_head.weight"], tiny_state(3)["lm_head.weight"])


def test_a_file_in_use_is_never_written_over(tmp_path: Path) -> None:
    oldest = publish_weights(tiny_state(0), directory=tmp_path, version=0)
    tensors = read_weights(oldest)
    for version in range(1, 6):
        publish_weights(tiny_state(version), directory=tmp_path, version=version)
    assert all(torch.equal(tensors[name], value) for name, value in tiny_state(0).items())


def test_a_single_tensor_keeps_its_file_from_being_reused(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(0), directory=tmp_path, version=0)
    kept = read_weights(manifest)["lm_head.weight"][2:4]
    for version in range(1, 6):
        publish_weights(tiny_state(version), directory=tmp_path, version=version)
    assert torch.equal(kept, tiny_state(0)["lm_head.weight"][2:4])


def test_writing_to_a_tensor_that_was_read_changes_no_file(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path, version=0)
    read_weights(manifest)["lm_head.weight"].zero_()
    assert torch.equal(read_weights(manifest)["lm_head.weight"], tiny_state()["lm_head.weight"])


def test_a_full_disk_is_one_sentence_and_leaves_the_versions_before(tmp_path: Path) -> None:
    first = publish_weights(tiny_state(), directory=tmp_path, version=0)
    with (
        full_disk(room_bytes=2000),
        pytest.raises(EnvironmentSetupError, match=r"weights-1\.safetensors"),
    ):
        publish_weights({"w": torch.zeros(1000)}, directory=tmp_path, version=1)
    assert latest_manifest(tmp_path) == first
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_published_is_for_this_user_alone(tmp_path: Path) -> None:
    manifest = publish_weights(tiny_state(), directory=tmp_path / "run", version=0)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert os.stat(manifest.path).st_mode & 0o777 == 0o600


def test_the_memory_of_a_file_is_reserved_before_the_first_byte(tmp_path: Path) -> None:
    file = weight_file.open_for_writing(tmp_path / "new", 2**20, spare=tmp_path / "none")
    status = os.fstat(file)
    os.close(file)
    assert status.st_size == 2**20
    assert status.st_blocks * 512 >= 2**20
