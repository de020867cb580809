"""Chunked logprobs and entropies against the full logits."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cast_ray.learner.logprobs import token_logprobs

# float32 against float64.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def full_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, token_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """The same through all logits at once, by autograd."""
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias
    log_p = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    of_tokens = torch.stack([log_p[i, token] for i, token in enumerate(token_ids.tolist())])
    return of_tokens, -(log_p.exp() * log_p).sum(dim=1)


def random_inputs(
    num_tokens: int, *, vocab_size: int, has_bias: bool, spread: float, seed: int
) -> tuple[list[Tensor | None], Tensor]:
    """hidden, weight and bias, which want gradients, and token ids."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        torch.randn(num_tokens, 6, generator=generator),
        torch.randn(vocab_size, 6, generator=generator) * spread,
        torch.randn(vocab_size, generator=generator) if has_bias else None,
    ]
    token_ids = torch.randint(vocab_size, (num_tokens,), generator=generator)
    return [None if t is None else t.requires_grad_() for t in tensors], token_ids


def gradients(
    outputs: tuple[Tensor, Tensor], inputs: list[Tensor | None], *, of_entropy: float
) -> list[Tensor]:
    """Of a sum where every token has a weight of its own."""
    logprobs, entropy = outputs
    weights = torch.linspace(-1, 2, len(logprobs), dtype=logprobs.dtype)
    loss = (logprobs * weights).sum() + of_entropy * (entropy * weights.flip(0)).sum()
    return list(torch.autograd.grad(loss, [t for t in inputs if t is not None]))


@settings(derandomize=True)
@given(
    num_tokens=st.integers(1, 20),
    vocab_size=st.integers(2, 40),
    tokens_per_chunk=st.integers(1, 25),
    has_bias=st.booleans(),
    spread=st.sampled_from([0.0, 0.3, 3.0]),
    of_entropy=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_and_gradients_are_those_of_the_full_logits(
    num_tokens: int,
    vocab_size: int,
    tokens_per_chunk: int,
    has_bias: bool,
    spread: float,
    of_entropy: float,
    seed: int,
) -> None:
    ours, token_ids = random_inputs(
        num_tokens, vocab_size=vocab_size, has_bias=has_bias, spread=spread, seed=seed
    )
    wide = [None if t is None else t.detach().double().requires_grad_() for t in ours]

    found = token_logprobs(*ours, token_ids, tokens_per_chunk=tokens_per_chunk)
    expected = full_logprobs(*wide, token_ids)

    torch.testing.assert_close(tuple(v.double() for v in found), expected, **TOLERANCE)
    torch.testing.assert_close(
        [g.double() for g in gradients(found, ours, of_entropy=of_entropy)],
        gradients(expected, wide, of_entropy=of_entropy),
        **TOLERANCE,
    )


def test_gradients_are_those_of_finite_differences() -> None:
    inputs, token_ids = random_inputs(5, vocab_size=7, has_bias=True, spread=1.0, seed=0)
    step = 1e-2

    def value(hidden: Tensor) -> float:
        logprobs, entropy = token_logprobs(hidden, *inputs[1:], token_ids, tokens_per_chunk=2)
        return (logprobs.sum() + 0.5 * entropy.sum()).item()

    hidden = inputs[0]
    outputs = token_logprobs(hidden, *inputs[1:], token_ids, tokens_per_chunk=2)
    [gradient] = torch.autograd.grad(outputs[0].sum() + 0.5 * outputs[1].sum(), [hidden])
    moved = torch.zeros_like(hidden)
    moved[3, 2] = step

    slope = (value(hidden + moved) - value(hidden - moved)) / (2 * step)
    assert gradient[3, 2].item() == pytest.approx(slope, rel=1e-2)


def test_no_token_gives_nothing_and_gradients_of_zero() -> None:
    inputs, token_ids = random_inputs(0, vocab_size=7, has_bias=True, spread=1.0, seed=0)

    found = token_logprobs(*inputs, token_ids, tokens_per_chunk=4)

    assert [len(values) for values in found] == [0, 0]
    of_hidden, of_weight, of_bias = torch.autograd.grad(found[0].sum() + found[1].sum(), inputs)
    assert of_hidden.shape == (0, 6)
    assert not of_weight.any()
    assert not of_bias.any()


def test_a_frozen_head_gets_no_gradient_and_changes_no_other() -> None:
    inputs, token_ids = random_inputs(5, vocab_size=7, has_bias=True, spread=1.0, seed=0)
    free = token_logprobs(*inputs, token_ids, tokens_per_chunk=2)[0].sum()
    frozen = [inputs[0], *(t.detach() for t in inputs[1:])]

    found = token_logprobs(*frozen, token_ids, tokens_per_chunk=2)[0].sum()

    of_free, of_frozen = (torch.autograd.grad(loss, [inputs[0]]) for loss in (free, found))
    assert torch.equal(of_free[0], of_frozen[0])


def test_a_head_that_alone_is_trained_gets_its_gradient() -> None:
    inputs, token_ids = random_inputs(5, vocab_size=7, has_bias=False, spread=1.0, seed=0)
    free = token_logprobs(*inputs, token_ids, tokens_per_chunk=2)[0].sum()
    alone = token_logprobs(inputs[0].detach(), *inputs[1:], token_ids, tokens_per_chunk=2)[0].sum()

    of_free, of_alone = (torch.autograd.grad(loss, [inputs[1]]) for loss in (free, alone))
    assert torch.equal(of_free[0], of_alone[0])


def test_entropy_alone_has_gradients_too() -> None:
    inputs, token_ids = random_inputs(5, vocab_size=7, has_bias=True, spread=1.0, seed=0)

    entropy = token_logprobs(*inputs, token_ids, tokens_per_chunk=2)[1]
    expected = full_logprobs(*inputs, token_ids)[1]

    found_and_expected = (
        torch.autograd.grad(values.sum(), inputs) for values in (entropy, expected)
    )
    torch.testing.assert_close(*found_and_expected, **TOLERANCE)


def test_a_probability_of_almost_one_has_an_entropy_of_almost_nothing() -> None:
    hidden, weight = torch.tensor([[200.0]]), torch.tensor([[1.0], [-1.0], [0.0]])
    hidden.requires_grad_()

    found = token_logprobs(hidden, weight, None, torch.tensor([0]), tokens_per_chunk=1)
    [gradient] = torch.autograd.grad(found[0] + found[1], [hidden])

    assert [values.item() for values in found] == [0, 0]
    assert gradient.item() == 0


def test_logprob_of_an_impossible_token_is_finite_and_pulls_it_up() -> None:
    hidden, weight = torch.tensor([[200.0]], requires_grad=True), torch.tensor([[1.0], [-1.0]])

    logprobs, _ = token_logprobs(hidden, weight, None, torch.tensor([1]), tokens_per_chunk=1)

    assert logprobs.item() == -400
    assert torch.autograd.grad(logprobs, [hidden])[0].item() == -2


def test_bfloat16_values_are_float32_of_the_rounded_logits() -> None:
    inputs, token_ids = random_inputs(30, vocab_size=50, has_bias=False, spread=0.5, seed=1)
    narrow = [None if t is None else t.detach().bfloat16().requires_grad_() for t in inputs]
    logits = torch.nn.functional.linear(narrow[0], narrow[1]).double()
    log_p = logits.log_softmax(1)

    found = token_logprobs(*narrow, token_ids, tokens_per_chunk=7)

    assert {values.dtype for values in found} == {torch.float32}
    # The softmax itself is as good as that of float32.
    torch.testing.assert_close(
        found[0].double(), log_p.gather(1, token_ids[:, None])[:, 0], **TOLERANCE
    )
    torch.testing.assert_close(found[1].double(), -(log_p.exp() * log_p).sum(1), **TOLERANCE)


def test_bfloat16_gradients_are_near_those_of_float32_however_many_chunks() -> None:
    inputs, token_ids = random_inputs(400, vocab_size=20, has_bias=True, spread=0.5, seed=1)
    narrow = [None if t is None else t.detach().bfloat16().requires_grad_() for t in inputs]
    wide = [None if t is None else t.detach().double().requires_grad_() for t in narrow]

    found = gradients(
        token_logprobs(*narrow, token_ids, tokens_per_chunk=1), narrow, of_entropy=0.3
    )
    expected = gradients(full_logprobs(*wide, token_ids), wide, of_entropy=0.3)

    # 8 bits of each logit's gradient, of which a weight's is a sum: errors of 1% of the largest.
    # Added up in bfloat16, 400 chunks would lose more than 10%.
    assert [g.dtype for g in found] == [torch.bfloat16] * 3
    errors = [
        ((a.double() - b).abs().max() / b.abs().max()).item()
        for a, b in zip(found, expected, strict=True)
    ]
    assert max(errors) < 0.02


PEAK = """
import sys, torch
from pathlib import Path
from cast_ray.learner.logprobs import token_logprobs

def peak_kib():
    # Not getrusage: what it gives begins with the size of the process that started this one.
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1])

torch.set_num_threads(1)
num_tokens, vocab_size, chunk = 512, 151_936, int(sys.argv[1])
weight = torch.zeros(vocab_size, 8, requires_grad=True)
hidden = torch.ones(num_tokens, 8, requires_grad=True)
token_ids = torch.zeros(num_tokens, dtype=torch.int64)
for n in (1, num_tokens):  # one token first: the buffers of the gradients, the threads
    before = peak_kib()
    logprobs, entropy = token_logprobs(
        hidden[:n], weight, None, token_ids[:n], tokens_per_chunk=chunk
    )
    torch.autograd.grad(logprobs.sum() + entropy.sum(), [hidden, weight])
print((peak_kib() - before) / 1024)
"""


def peak_growth_mib(tokens_per_chunk: int) -> float:
    """What 512 tokens over 151,936 words need in a process of their own, forward and back."""
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, str(tokens_per_chunk)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return float(ran.stdout)


def test_a_large_vocabulary_s_logits_never_exist_all_at_once() -> None:
    # All of them in float32 are 297 MiB, and there are two copies at a time. Measured at most 80
    # with those of 16 tokens.
    assert peak_growth_mib(16) < 160


def test_memory_is_seen_where_it_is_needed() -> None:
    assert peak_growth_mib(512) > 297
