"""Each equation of the objectives against the formula written out case by case."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cast_ray.algorithms import losses

DAPO_BOUNDS = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}


def loss_by_cases(ratio: float, advantage: float) -> float:
    """DAPO's clipped surrogate, one branch a case of the paper's text."""
    if advantage >= 0:
        return -advantage * min(ratio, 1.28)
    if ratio < 0.8:
        return -advantage * 0.8
    if ratio > 3.0:
        return -advantage * 3.0
    return -advantage * ratio


@pytest.mark.parametrize("advantage", [-1.7, -0.2, 0.0, 0.3, 2.5])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.79, 0.81, 1.0, 1.27, 1.29, 2.9, 3.1, 20.0])
def test_clipped_surrogate_equals_the_cases(ratio: float, advantage: float) -> None:
    loss = losses.clipped_surrogate(torch.tensor([ratio]), torch.tensor([advantage]), **DAPO_BOUNDS)

    assert loss.item() == pytest.approx(loss_by_cases(ratio, advantage), rel=1e-6)


@pytest.mark.parametrize("advantage", [-1.7, 0.0, 0.3])
@pytest.mark.parametrize("ratio", [0.1, 0.79, 0.81, 1.0, 1.27, 1.29, 2.9, 3.1])
def test_is_clipped_says_where_a_token_of_some_advantage_has_no_gradient(
    ratio: float, advantage: float
) -> None:
    ratios, advantages = torch.tensor([ratio], requires_grad=True), torch.tensor([advantage])

    losses.clipped_surrogate(ratios, advantages, **DAPO_BOUNDS).sum().backward()

    assert ratios.grad is not None
    clipped = losses.is_clipped(ratios.detach(), advantages, **DAPO_BOUNDS)
    assert clipped.item() == (advantage != 0 and ratios.grad.item() == 0)


def test_gradient_at_ratio_one_is_minus_the_advantage() -> None:
    learner = torch.tensor([-0.5, -2.0], requires_grad=True)
    advantages = torch.tensor([0.7, -1.1])

    ratio = losses.token_ratio(learner, learner.detach())
    losses.clipped_surrogate(ratio, advantages, **DAPO_BOUNDS).sum().backward()

    torch.testing.assert_close(learner.grad, -advantages)


def test_infinite_dual_clip_bounds_nothing() -> None:
    loss = losses.clipped_surrogate(
        torch.tensor([50.0, 50.0]),
        torch.tensor([-2.0, 0.0]),
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=math.inf,
    )

    torch.testing.assert_close(loss, torch.tensor([100.0, 0.0]))


def test_token_ratio_is_the_quotient_of_the_probabilities() -> None:
    ratio = losses.token_ratio(torch.tensor([0.3, 0.5]).log(), torch.tensor([0.6, 0.1]).log())

    torch.testing.assert_close(ratio, torch.tensor([0.5, 5.0]))


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_probability_from_nothing_gives_a_clipped_token_and_no_gradient(advantage: float) -> None:
    # e^199 is beyond float32: an infinite ratio times a gradient of 0 would be no number, and one
    # such token would cost the whole update.
    learner = torch.tensor([-1.0], requires_grad=True)

    ratio = losses.token_ratio(learner, torch.tensor([-200.0]))
    loss = losses.clipped_surrogate(ratio, torch.tensor([advantage]), **DAPO_BOUNDS)
    loss.backward()

    assert learner.grad is not None
    assert loss.item() == pytest.approx({-1.0: 3.0, 0.0: 0.0, 1.0: -1.28}[advantage])
    assert learner.grad.item() == 0


def test_sequence_ratio_is_the_geometric_mean_of_the_trajectory_s_token_ratios() -> None:
    learner = torch.tensor([0.2, 0.9, 0.8, 0.1, 0.4]).log()
    start = torch.tensor([0.1, 0.3, 0.1, 0.2, 0.8]).log()

    # Tokens of three trajectories in any order: ratios 2 and 8; 3 alone; 0.5 and 0.5.
    ratio = losses.sequence_ratio(learner, start, torch.tensor([2, 0, 2, 1, 1]))

    torch.testing.assert_close(ratio, torch.tensor([4.0, 3.0, 4.0, 0.5, 0.5]))


def test_sequence_ratio_s_gradient_goes_through_each_token_s_own_logprob() -> None:
    learner = torch.tensor([0.2, 0.8, 0.3]).log().requires_grad_()
    start = torch.tensor([0.1, 0.1, 0.3]).log()

    ratio = losses.sequence_ratio(learner, start, torch.tensor([0, 0, 1]))
    (ratio * torch.tensor([10.0, -1.0, 7.0])).sum().backward()

    # Through the mean, the first two would both have 4 · (10 - 1) / 2 = 18.
    torch.testing.assert_close(learner.grad, torch.tensor([40.0, -4.0, 7.0]))


def test_sequence_ratio_of_no_token_is_empty() -> None:
    nothing = torch.zeros(0)

    assert len(losses.sequence_ratio(nothing, nothing, nothing.long())) == 0


def test_sequence_ratio_of_a_trajectory_number_without_tokens_leaves_the_others_alone() -> None:
    learner, start = torch.tensor([0.4, 0.9]).log(), torch.tensor([0.2, 0.3]).log()

    ratio = losses.sequence_ratio(learner, start, torch.tensor([0, 3]))

    torch.testing.assert_close(ratio, torch.tensor([2.0, 3.0]))


def test_sequence_ratio_beyond_e_to_the_tenth_neither_grows_nor_has_a_gradient() -> None:
    learner = torch.tensor([-1.0, -1.0], requires_grad=True)

    ratio = losses.sequence_ratio(learner, torch.tensor([-300.0, -12.0]), torch.tensor([0, 0]))
    ratio.sum().backward()

    assert ratio.tolist() == pytest.approx([math.exp(10)] * 2)
    assert learner.grad is not None
    assert learner.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("learner", "reference", "expected"),
    [
        (0.5, 0.5, 0.0),
        (0.5, 0.25, 0.5 - math.log(0.5) - 1),
        (0.25, 0.5, 2 - math.log(2) - 1),
    ],
)
def test_kl_estimate_is_the_low_variance_one(
    learner: float, reference: float, expected: float
) -> None:
    kl = losses.kl_estimate(torch.tensor([learner]).log(), torch.tensor([reference]).log())

    assert kl.item() == pytest.approx(expected, abs=1e-6)


def test_kl_estimate_pulls_the_learner_toward_the_reference() -> None:
    learner = torch.tensor([0.5, 0.25, 0.3]).log().requires_grad_()

    losses.kl_estimate(learner, torch.tensor([0.25, 0.5, 0.3]).log()).sum().backward()

    # 1 - q / p
    torch.testing.assert_close(learner.grad, torch.tensor([0.5, -1.0, 0.0]))


def test_kl_estimate_is_right_in_the_mean_over_the_learner_s_own_tokens() -> None:
    learner, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.6, 0.3])

    in_the_mean = (learner * losses.kl_estimate(learner.log(), reference.log())).sum()

    torch.testing.assert_close(in_the_mean, (learner * (learner / reference).log()).sum())


def test_cross_entropy_is_minus_the_logprob() -> None:
    torch.testing.assert_close(
        losses.cross_entropy(torch.tensor([-0.25, -3.0])), torch.tensor([0.25, 3.0])
    )


def float32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_rollout_weights_are_ratios_up_to_the_cap() -> None:
    weights = losses.rollout_weights(
        np.log(float32(0.9, 0.3, 0.1, 0.5)), np.log(float32(0.3, 0.2, 0.4, 0.5)), cap=2.0
    )

    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, [2.0, 1.5, 0.25, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("start", "rollout", "is_within"),
    [(0.9, 0.3, False), (0.1, 0.3, False), (0.3, 0.2, True), (0.2, 0.3, True), (0.5, 0.5, True)],
)
def test_is_within_cap_knows_both_sides(start: float, rollout: float, is_within: bool) -> None:
    within = losses.is_within_cap(np.log(float32(start)), np.log(float32(rollout)), cap=2.0)

    assert within.tolist() == [is_within]


def test_a_ratio_that_is_no_number_is_not_within_the_cap() -> None:
    start, rollout = float32(math.nan, -1.0, -math.inf), float32(-1.0, math.nan, -1.0)

    assert losses.is_within_cap(start, rollout, cap=2.0).tolist() == [False] * 3


def test_token_mean_weighs_tokens_in_the_loss_alike_and_the_others_not_at_all() -> None:
    weights = losses.token_mean_weights(np.array([True, False, True, True, False, True]))

    assert weights.dtype == np.float32
    assert weights.tolist() == [0.25, 0, 0.25, 0.25, 0, 0.25]


def test_sequence_mean_gives_every_trajectory_with_a_token_the_same_share() -> None:
    in_loss = np.array([True, True, False, False, True, False, False, False])

    # Of 3, 0, 1, 1 and 3 tokens; two of them have any in the loss.
    weights = losses.sequence_mean_weights(in_loss, np.array([0, 3, 3, 4, 5, 8]))

    assert weights.dtype == np.float32
    assert weights.tolist() == [0.25, 0.25, 0, 0, 0.5, 0, 0, 0]
