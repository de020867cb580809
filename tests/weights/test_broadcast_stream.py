"""Weights as one stream of bytes: tensors come out as they went in."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.weights.device import buckets, cut
from cast_ray.weights.file import TensorSpec, in_file_order

DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool")

shapes = st.lists(st.integers(min_value=0, max_value=7), max_size=3).map(tuple)
states = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), max_size=6)
bucket_sizes = st.sampled_from([8, 16, 64, 1024])


def a_state(parts: list[tuple[tuple[int, ...], str]]) -> dict[str, torch.Tensor]:
    """Random tensors of given shapes and types; of every bit pattern but for bool."""
    generator = torch.Generator().manual_seed(0)
    state = {}
    for index, (shape, name) in enumerate(parts):
        dtype = getattr(torch, name)
        num_bytes = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
        high = 2 if dtype == torch.bool else 256
        data = torch.randint(0, high, (num_bytes,), generator=generator, dtype=torch.uint8)
        state[f"w{index}"] = data.view(dtype).view(shape)
    return state


def order_of(state: Mapping[str, torch.Tensor]) -> list[TensorSpec]:
    return in_file_order(
        TensorSpec(
            name=name, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch.")
        )
        for name, tensor in state.items()
    )


def stream_of(state: Mapping[str, torch.Tensor], bucket_bytes: int) -> list[torch.Tensor]:
    """Return copies of the buckets that a sender would send."""
    scratch = torch.empty(bucket_bytes, dtype=torch.uint8)
    return [bucket.clone() for bucket in buckets(state, order_of(state), scratch)]


@given(parts=states, bucket_bytes=bucket_sizes)
def test_tensors_come_out_of_their_buckets_bit_for_bit(
    parts: list[tuple[tuple[int, ...], str]], bucket_bytes: int
) -> None:
    state = a_state(parts)
    stream = stream_of(state, bucket_bytes)
    assert all(len(bucket) == bucket_bytes for bucket in stream[:-1])
    whole = torch.cat([torch.empty(0, dtype=torch.uint8), *stream])
    found = cut(whole, order_of(state))
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].flatten().view(torch.uint8).equal(tensor.flatten().view(torch.uint8))


def test_a_tensor_larger_than_a_bucket_is_cut() -> None:
    state = {"large": torch.arange(2**20 + 3, dtype=torch.int32), "odd": torch.ones(3).bool()}
    stream = stream_of(state, 2**22)
    assert [len(bucket) for bucket in stream] == [2**22, 15]
    assert cut(torch.cat(stream), order_of(state))["large"].equal(state["large"])


def test_no_tensors_are_no_buckets() -> None:
    assert stream_of({}, 8) == []
