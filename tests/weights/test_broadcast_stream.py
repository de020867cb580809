"""Weights as one stream of bytes: tensors come out as they went in, and no fault goes unseen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.weights import broadcast
from cast_ray.weights.broadcast import StreamDigest
from cast_ray.weights.device import buckets, cut
from cast_ray.weights.file import TensorSpec, in_file_order

CPU = torch.device("cpu")
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


def digest_of(stream: list[torch.Tensor]) -> bytes:
    digest = StreamDigest(CPU)
    for bucket in stream:
        digest.update(bucket)
    return digest.value()


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


@given(parts=states.filter(lambda parts: any(0 not in shape for shape, _ in parts)), data=st.data())
def test_a_receivers_digest_is_that_of_the_sender_and_one_flipped_bit_changes_it(
    parts: list[tuple[tuple[int, ...], str]], data: st.DataObject
) -> None:
    sent = stream_of(a_state(parts), 16)
    arrived = [bucket.clone() for bucket in sent]
    assert digest_of(arrived) == digest_of(sent)
    bucket = data.draw(st.sampled_from(arrived))
    place = data.draw(st.integers(min_value=0, max_value=len(bucket) - 1))
    bucket[place] ^= 1 << data.draw(st.integers(min_value=0, max_value=7))
    assert digest_of(arrived) != digest_of(sent)


def swapped_tensors(stream: list[torch.Tensor]) -> list[torch.Tensor]:
    whole = torch.cat(stream)
    half = len(whole) // 2
    return list(torch.cat([whole[half:], whole[:half]]).split(len(stream[0])))


def swapped_buckets(stream: list[torch.Tensor]) -> list[torch.Tensor]:
    return [stream[1], stream[0], *stream[2:]]


def two_top_bits(stream: list[torch.Tensor]) -> list[torch.Tensor]:
    """What sums modulo 2^64 of whole 64-bit words would not see."""
    changed = stream[0].clone()
    changed[7] ^= 128
    changed[15] ^= 128
    return [changed, *stream[1:]]


def swapped_words(stream: list[torch.Tensor]) -> list[torch.Tensor]:
    first = stream[0]
    return [torch.cat([first[4:8], first[:4], first[8:]]), *stream[1:]]


def shorter(stream: list[torch.Tensor]) -> list[torch.Tensor]:
    """The last bytes are missing, and were zero."""
    return [*stream[:-1], stream[-1][:-2]]


@pytest.mark.parametrize(
    "fault", [swapped_tensors, swapped_buckets, two_top_bits, swapped_words, shorter]
)
@pytest.mark.parametrize("chunk_words", [4, 2**20])
def test_what_is_in_the_wrong_place_changes_the_digest(
    fault: Callable[[list[torch.Tensor]], list[torch.Tensor]],
    chunk_words: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast, "_CHUNK_WORDS", chunk_words)
    generator = torch.Generator().manual_seed(0)
    data = [torch.randint(0, 256, (64,), generator=generator, dtype=torch.uint8) for _ in range(4)]
    data[-1][-2:] = 0
    assert digest_of(fault(data)) != digest_of(data)


def test_a_tensor_larger_than_a_bucket_is_cut_and_digested_over_several_chunks() -> None:
    state = {"large": torch.arange(2**20 + 3, dtype=torch.int32), "odd": torch.ones(3).bool()}
    stream = stream_of(state, 2**22)
    assert [len(bucket) for bucket in stream] == [2**22, 15]
    assert cut(torch.cat(stream), order_of(state))["large"].equal(state["large"])
    stream[1][0] ^= 1
    assert digest_of(stream) != digest_of(stream_of(state, 2**22))


def test_no_tensors_at_all_have_a_digest() -> None:
    assert stream_of({}, 8) == []
    assert len(digest_of([])) == broadcast.DIGEST_BYTES
