"""Tensors in files of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cast_ray.learner.state_shards import stored_tensors, write_shards


def numbered(sizes: list[int]) -> list[tuple[str, Tensor]]:
    return [(f"tensor {i}", torch.full((size,), float(i))) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "num_files"), [([3], 1), ([5, 5], 1), ([5, 6], 2), ([1, 20, 1, 1], 3), ([], 1)]
)
def test_all_tensors_come_back_from_files_of_at_most_one_tensor_or_40_bytes(
    tmp_path: Path, sizes: list[int], num_files: int
) -> None:
    written = numbered(sizes)

    write_shards(written, tmp_path, kind="weight", shard_bytes=40)

    stored = stored_tensors(tmp_path, kind="weight")
    assert stored.keys() == {name for name, _ in written}
    assert all(torch.equal(stored[name].read(), tensor) for name, tensor in written)
    assert all(stored[name].shape == tuple(tensor.shape) for name, tensor in written)
    assert len(list(tmp_path.iterdir())) == num_files


def test_tensors_are_taken_only_when_those_before_are_in_a_file(tmp_path: Path) -> None:
    files_before: list[int] = []

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in numbered([10, 10, 10, 10]):
            files_before.append(len(list(tmp_path.iterdir())))
            yield name, tensor

    write_shards(tensors(), tmp_path, kind="weight", shard_bytes=40)

    assert files_before == [0, 0, 1, 2]


def test_kinds_share_a_directory_and_their_names(tmp_path: Path) -> None:
    write_shards([("a", torch.zeros(2))], tmp_path, kind="exp_avg")
    write_shards([("a", torch.ones(2))], tmp_path, kind="exp_avg_sq")

    assert torch.equal(stored_tensors(tmp_path, kind="exp_avg")["a"].read(), torch.zeros(2))
    assert torch.equal(stored_tensors(tmp_path, kind="exp_avg_sq")["a"].read(), torch.ones(2))
