"""Each loss against the formula written out case by case."""

from __future__ import annotations

import math

import pytest
import torch

from cast_ray import losses

BOUNDS = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


def loss_by_cases(ratio: float, advantage: float) -> float:
    """The clipped surrogate, one branch a case of the paper's text."""
    if advantage >= 0:
        return -advantage * min(ratio, 1.28)
    if ratio < 0.8:
        return -advantage * 0.8
    if ratio > 3.0:
        return -advantage * 3.0
    return -advantage * ratio


@pytest.mark.parametrize("advantage", [-1.7, -0.2, 0.0, 0.3, 2.5])
@pytest.mark.parametrize("ratio", [0.1, 0.79, 0.81, 1.0, 1.27, 1.29, 2.9, 3.1, 20.0])
def test_clipped_policy_loss_equals_the_cases(ratio: float, advantage: float) -> None:
    start = torch.tensor([[-1.5]])
    learner = start + math.log(ratio)

    loss = losses.clipped_policy_loss(learner, start, torch.tensor([[advantage]]), **BOUNDS)

    assert loss.item() == pytest.approx(loss_by_cases(ratio, advantage), rel=1e-5)


@pytest.mark.parametrize("advantage", [-1.7, 0.3])
@pytest.mark.parametrize("ratio", [0.1, 0.79, 0.81, 1.0, 1.27, 1.29, 2.9, 3.1])
def test_is_clipped_says_where_the_loss_has_no_gradient(ratio: float, advantage: float) -> None:
    start, advantages = torch.tensor([[-1.5]]), torch.tensor([[advantage]])
    learner = (start + math.log(ratio)).requires_grad_()

    losses.clipped_policy_loss(learner, start, advantages, **BOUNDS).sum().backward()

    assert learner.grad is not None
    clipped = losses.is_clipped(learner, start, advantages, **BOUNDS)
    assert clipped.item() == (learner.grad.item() == 0)


def test_gradient_at_ratio_one_is_minus_the_advantage() -> None:
    learner = torch.tensor([[-0.5, -2.0]], requires_grad=True)
    advantages = torch.tensor([[0.7, -1.1]])

    losses.clipped_policy_loss(learner, learner.detach(), advantages, **BOUNDS).sum().backward()

    torch.testing.assert_close(learner.grad, -advantages)


def test_infinite_dual_clip_bounds_nothing() -> None:
    start = torch.tensor([[-9.0, -9.0]])
    learner, advantages = start + math.log(50.0), torch.tensor([[-2.0, 0.0]])

    loss = losses.clipped_policy_loss(
        learner, start, advantages, clip_low=0.2, clip_high=0.28, dual_clip=math.inf
    )

    torch.testing.assert_close(loss, torch.tensor([[100.0, 0.0]]))


def test_token_logprobs_equal_the_softmax_written_out() -> None:
    logits = torch.tensor([[[1.0, -2.0, 0.5], [0.0, 0.0, 4.0]]])

    got = losses.token_logprobs(logits, torch.tensor([[1, 2]]))

    first = math.exp(-2) / (math.exp(1) + math.exp(-2) + math.exp(0.5))
    second = math.exp(4) / (2 + math.exp(4))
    torch.testing.assert_close(got, torch.tensor([[math.log(first), math.log(second)]]))


def test_token_logprobs_of_bfloat16_logits_are_float32() -> None:
    logits = torch.tensor([[1.0, -2.0, 0.5]]).bfloat16()

    got = losses.token_logprobs(logits, torch.tensor([0]))

    assert got.dtype == torch.float32
    torch.testing.assert_close(got, losses.token_logprobs(logits.float(), torch.tensor([0])))


def test_entropy_of_equal_logits_is_the_log_of_their_number() -> None:
    assert losses.token_entropy(torch.zeros(1, 7)).item() == pytest.approx(math.log(7))


def test_token_mean_shares_add_up_to_the_mean_over_all_tokens() -> None:
    loss = torch.tensor([[1.0, 2.0, 50.0], [3.0, 50.0, 50.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()

    whole = losses.token_mean(loss, mask, num_tokens=6)
    parts = [losses.token_mean(loss[i : i + 1], mask[i : i + 1], num_tokens=6) for i in range(3)]

    assert whole.item() == pytest.approx((1 + 2 + 3 + 4 + 5 + 6) / 6)
    assert sum(parts).item() == pytest.approx(whole.item())


def test_token_mean_never_looks_at_masked_values() -> None:
    loss = torch.tensor([[1.0, math.nan, math.inf]], requires_grad=True)

    mean = losses.token_mean(loss, torch.tensor([[True, False, False]]), num_tokens=1)
    mean.backward()

    assert mean.item() == 1.0
    torch.testing.assert_close(loss.grad, torch.tensor([[1.0, 0.0, 0.0]]))


def test_cross_entropy_is_minus_the_logprob() -> None:
    torch.testing.assert_close(
        losses.token_cross_entropy(torch.tensor([[-0.25, -3.0]])), torch.tensor([[0.25, 3.0]])
    )
