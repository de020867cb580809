"""Attention over packed sequences against a dense softmax in float64; what it refuses."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from cast_ray.errors import ModelError
from cast_ray.learner import attention
from cast_ray.learner.attention import ATTENTION, packed_attention
from tests.support.fake_cuda import fake_cuda

HEAD_DIM = 8
# float32 against float64: gradients of keys and values are sums of up to 80 terms.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: tuple[int, ...],
    *,
    window: int | None,
    scale: float,
) -> Tensor:
    """Every query over every key, one after the other; which it sees is a list of numbers."""
    num_heads, num_tokens = query.shape[1:3]
    sequence = [number for number, length in enumerate(lengths) for _ in range(length)]
    group = num_heads // key.shape[1]
    rows = []
    for head in range(num_heads):
        for i in range(num_tokens):
            seen = [
                j
                for j in range(i + 1)
                if sequence[j] == sequence[i] and (window is None or i - j < window)
            ]
            scores = key[0, head // group, seen] @ query[0, head, i] * scale
            rows.append(torch.softmax(scores, dim=0) @ value[0, head // group, seen])
    return torch.stack(rows).view(1, num_heads, num_tokens, -1)


def random_inputs(num_tokens: int, *, num_heads: int, num_kv_heads: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    heads = (num_heads, num_kv_heads, num_kv_heads)
    return [
        torch.randn(1, n, num_tokens, HEAD_DIM, generator=generator).requires_grad_() for n in heads
    ]


def assert_equals_dense(
    lengths: tuple[int, ...],
    *,
    window: int | None,
    num_heads: int,
    num_kv_heads: int,
    scale: float | None = None,
) -> None:
    ours = random_inputs(sum(lengths), num_heads=num_heads, num_kv_heads=num_kv_heads, seed=1)
    dense = [tensor.detach().double().requires_grad_() for tensor in ours]
    downstream = torch.randn(ours[0].shape, generator=torch.Generator().manual_seed(2))

    found = packed_attention(*ours, lengths, window=window, scale=scale)
    expected = dense_attention(
        *dense, lengths, window=window, scale=HEAD_DIM**-0.5 if scale is None else scale
    )
    (found * downstream).sum().backward()
    (expected * downstream).sum().backward()

    torch.testing.assert_close(found.double(), expected, **TOLERANCE)
    torch.testing.assert_close(
        [t.grad.double() for t in ours], [t.grad for t in dense], **TOLERANCE
    )


@settings(derandomize=True, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5).map(tuple),
    window=st.one_of(st.none(), st.integers(1, 15)),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 2), (4, 1)]),
)
def test_output_and_gradients_are_those_of_a_dense_softmax(
    lengths: tuple[int, ...], window: int | None, heads: tuple[int, int]
) -> None:
    assert_equals_dense(lengths, window=window, num_heads=heads[0], num_kv_heads=heads[1])


@pytest.mark.parametrize("window", [1, 2, 6, 7, 8, 13, 14, 100, None])
def test_windows_around_the_lengths_of_the_sequences(window: int | None) -> None:
    assert_equals_dense((7, 1, 14, 7, 1, 1), window=window, num_heads=4, num_kv_heads=2)


@pytest.mark.parametrize("window", [3, None])
def test_scale_of_the_scores_is_the_caller_s(window: int | None) -> None:
    assert_equals_dense((5, 9), window=window, num_heads=2, num_kv_heads=2, scale=0.05)


def test_window_of_one_token_returns_the_values() -> None:
    query, key, value = random_inputs(9, num_heads=2, num_kv_heads=2, seed=2)

    torch.testing.assert_close(packed_attention(query, key, value, (4, 5), window=1), value)


@pytest.mark.parametrize("window", [1, 4, 16, 17, None])
@pytest.mark.parametrize("other", [0, 2])
def test_junk_in_one_sequence_changes_no_bit_of_another(window: int | None, other: int) -> None:
    lengths, bounds = (16, 11, 9), (0, 16, 27, 36)
    inputs = [t.detach() for t in random_inputs(36, num_heads=4, num_kv_heads=2, seed=3)]
    junk = [tensor.clone() for tensor in inputs]
    start, end = list(pairwise(bounds))[other]
    for tensor in junk:
        tensor[:, :, start:end] = 1e6

    clean, dirty = (
        packed_attention(*tensors, lengths, window=window)[:, :, 16:27]
        for tensors in (inputs, junk)
    )

    assert torch.equal(clean, dirty)


@pytest.mark.parametrize("window", [1, 4, 16, None])
def test_gradients_never_cross_a_boundary(window: int | None) -> None:
    inputs = random_inputs(36, num_heads=4, num_kv_heads=2, seed=4)

    packed_attention(*inputs, (16, 11, 9), window=window)[:, :, 16:27].square().sum().backward()

    crossed = [
        tensor.grad[:, :, [*range(16), *range(27, 36)]]
        for tensor in inputs
        if tensor.grad is not None
    ]
    assert [tensor.abs().max().item() for tensor in crossed] == [0, 0, 0]


def test_a_number_lost_in_one_sequence_stays_there_without_a_window() -> None:
    # With one it spoils the block that both share: a masked 0 times NaN is NaN. That costs
    # nothing more, for the loss of a mini-batch with a NaN anywhere is not applied.
    query, key, value = (t.detach() for t in random_inputs(8, num_heads=1, num_kv_heads=1, seed=5))
    value[:, :, 1] = math.nan

    attended = packed_attention(query, key, value, (4, 4), window=None)

    assert attended[:, :, 1:4].isnan().all()
    assert attended[:, :, 4:].isfinite().all()


@pytest.mark.parametrize(("window", "block"), [(5, 256), (None, 256), (None, 5), (None, 1)])
def test_bfloat16_on_the_cpu_is_float32_but_for_rounding(
    window: int | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    inputs = [t.detach() for t in random_inputs(30, num_heads=4, num_kv_heads=2, seed=6)]
    narrow = [tensor.bfloat16().requires_grad_() for tensor in inputs]
    wide = [tensor.detach().float().requires_grad_() for tensor in narrow]

    found = packed_attention(*narrow, (12, 18), window=window)
    expected = packed_attention(*wide, (12, 18), window=window)
    found.float().square().sum().backward()
    expected.square().sum().backward()

    # Scores, weights and outputs are rounded to eight bits, and their gradients again.
    torch.testing.assert_close(
        [found.float(), *(t.grad for t in wide)],
        [expected, *(t.grad.float() for t in narrow)],
        rtol=0.03,
        atol=0.03,
    )


# --- models whose attention is something else -----------------------------------------------------

SMALL = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "attn_implementation": ATTENTION,
}


def forward(model: PreTrainedModel) -> None:
    token_ids = torch.arange(6).view(1, -1)
    model(input_ids=token_ids, position_ids=token_ids, use_cache=False, sequence_lengths=(6,))


@pytest.mark.parametrize(
    ("window", "dtype"), [(None, torch.bfloat16), (64, torch.bfloat16), (None, torch.float32)]
)
def test_a_gpu_s_tensors_stay_there(
    window: int | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half precision by the kernel of all sequences, whose numbers only a GPU can show."""
    calls: list[tuple[int, int]] = []
    original = attention.varlen_attn

    def noted(*tensors: Tensor, **options: Any) -> Tensor:
        calls.append(options["window_size"])
        return original(*tensors, **options)

    monkeypatch.setattr(attention, "varlen_attn", noted)
    with fake_cuda() as device:
        query = torch.empty(1, 8, 300, 32, dtype=dtype, device=device)
        key = torch.empty(1, 2, 300, 32, dtype=dtype, device=device)
        attended = packed_attention(query, key, key, (100, 200), window=window)
        assert (attended.shape, attended.device, attended.dtype) == (query.shape, device, dtype)
    in_one = [(-1 if window is None else 63, 0)]
    assert calls == (in_one if dtype == torch.bfloat16 else [])
    attention._ends.cache_clear()  # fake tensors


def test_soft_capped_scores_are_refused() -> None:
    config = Gemma2Config(**SMALL, query_pre_attn_scalar=8, attn_logit_softcapping=50.0)

    with pytest.raises(ModelError, match=r"Gemma2Attention .*\bsoftcap\b"):
        forward(Gemma2ForCausalLM(config).eval())


def test_scores_without_a_soft_cap_are_taken() -> None:
    config = Gemma2Config(**SMALL, query_pre_attn_scalar=8, attn_logit_softcapping=None)

    forward(Gemma2ForCausalLM(config).eval())


def test_attention_sinks_are_refused() -> None:
    config = GptOssConfig(**SMALL, num_local_experts=2, num_experts_per_tok=1)

    with pytest.raises(ModelError, match=r"GptOssAttention .*\bs_aux\b"):
        forward(GptOssForCausalLM(config).eval())


def test_dropped_attention_weights_are_refused_where_they_would_be_dropped() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SMALL, attention_dropout=0.1))

    forward(model.eval())
    with pytest.raises(ModelError, match=r"LlamaAttention .*\bdropout\b"):
        forward(model.train())


def test_attention_to_later_tokens_is_refused() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    model.model.layers[1].self_attn.is_causal = False

    with pytest.raises(ModelError, match=r"LlamaAttention .*\bis_causal\b"):
        forward(model)


def test_an_option_that_nobody_knows_is_refused_by_its_name() -> None:
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    token_ids = torch.arange(6).view(1, -1)

    with pytest.raises(ModelError, match="position_bias"):
        model(input_ids=token_ids, sequence_lengths=(6,), position_bias=torch.zeros(1))


def test_attention_in_chunks_is_refused() -> None:
    config = Llama4TextConfig(
        **SMALL, attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=16
    )

    with pytest.raises(ModelError, match="chunks of 4 tokens"):
        forward(Llama4ForCausalLM(config).eval())
