"""Objectives against a loop over tokens in float64, written from SPEC (section 4) alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cast_ray.algorithms.objective import (
    LossShare,
    TokenInputs,
    correct_rollout,
    mean_weights,
    policy_loss,
    text_loss,
)
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.config.load import load_config

DAPO = ObjectiveConfig(
    ratio="token",
    aggregation="token_mean",
    clip_low=0.2,
    clip_high=0.28,
    dual_clip=3.0,
    kl_coefficient=0.0,
    entropy_coefficient=0.0,
    rollout_correction="none",
)
GRPO = replace(DAPO, clip_high=0.2, kl_coefficient=0.001)
GSPO = replace(
    DAPO,
    ratio="sequence",
    aggregation="sequence_mean",
    clip_low=3e-4,
    clip_high=4e-4,
    dual_clip=0.0,
)
BY_NAME = {"grpo": GRPO, "dapo": DAPO, "cast": DAPO, "gspo": GSPO, "gigpo": GRPO}
"""The table of SPEC, section 4, without the rollout correction."""


@dataclass(frozen=True)
class Token:
    """One token that the policy may have written."""

    is_model: bool
    learner: float
    start: float
    rollout: float
    reference: float
    advantage: float
    entropy: float


Trajectories = list[list[Token]]


# --- the reference: one token after the other -----------------------------------------------------


def is_counted(objective: ObjectiveConfig, token: Token) -> bool:
    if not token.is_model:
        return False
    if objective.rollout_correction != "mask":
        return True
    cap = objective.rollout_correction_cap
    return 1 / cap <= math.exp(token.start - token.rollout) <= cap


def surrogate(objective: ObjectiveConfig, ratio: torch.Tensor, advantage: float) -> torch.Tensor:
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    clipped = torch.full_like(ratio, min(max(ratio.item(), low), high))
    if not low < ratio.item() < high and advantage * clipped.item() < advantage * ratio.item():
        gain = advantage * clipped
    else:
        gain = advantage * ratio
    if objective.dual_clip and advantage < 0 and -gain.item() > -advantage * objective.dual_clip:
        return torch.full_like(ratio, -advantage * objective.dual_clip)
    return -gain


def naive_loss(
    objective: ObjectiveConfig, trajectories: Trajectories
) -> tuple[torch.Tensor, list[list[torch.Tensor]], list[list[torch.Tensor]]]:
    """The loss, and the learner's logprobs and entropies that it depends on."""
    logprobs, entropies, per_trajectory = [], [], []
    for tokens in trajectories:
        p = [torch.tensor(t.learner, dtype=torch.float64, requires_grad=True) for t in tokens]
        h = [torch.tensor(t.entropy, dtype=torch.float64, requires_grad=True) for t in tokens]
        logprobs.append(p)
        entropies.append(h)
        counted = [i for i, token in enumerate(tokens) if is_counted(objective, token)]
        written = [i for i, token in enumerate(tokens) if token.is_model]
        found = []
        for i in counted:
            token = tokens[i]
            if objective.ratio == "token":
                ratio = torch.exp(p[i] - token.start)
            else:
                mean = sum(tokens[j].learner - tokens[j].start for j in written) / len(written)
                if mean > 10:
                    ratio = torch.tensor(math.exp(10), dtype=torch.float64)
                else:
                    ratio = math.exp(mean) * torch.exp(p[i]) / torch.exp(p[i].detach())
            loss = surrogate(objective, ratio, token.advantage)
            if objective.rollout_correction == "truncate":
                cap = objective.rollout_correction_cap
                loss = loss * min(math.exp(token.start - token.rollout), cap)
            if objective.kl_coefficient:
                gap = token.reference - p[i]
                loss = loss + objective.kl_coefficient * (torch.exp(gap) - gap - 1)
            found.append(loss - objective.entropy_coefficient * h[i])
        per_trajectory.append(found)
    if objective.aggregation == "token_mean":
        flat = [loss for found in per_trajectory for loss in found]
        return sum(flat) / len(flat), logprobs, entropies
    means = [sum(found) / len(found) for found in per_trajectory if found]
    return sum(means) / len(means), logprobs, entropies


# --- ours, in whatever micro-batches --------------------------------------------------------------


@dataclass
class Ours:
    """A mini-batch as the learner holds it: flat columns, and where trajectories start."""

    objective: ObjectiveConfig
    columns: dict[str, np.ndarray]
    offsets: np.ndarray

    def __init__(self, objective: ObjectiveConfig, trajectories: Trajectories) -> None:
        flat = [token for tokens in trajectories for token in tokens]
        self.objective = objective
        self.offsets = np.cumsum([0] + [len(tokens) for tokens in trajectories])
        self.columns = {
            name: np.array([getattr(token, name) for token in flat], dtype=np.float32)
            for name in ("learner", "start", "rollout", "reference", "advantage", "entropy")
        }
        corrected = correct_rollout(self.columns["rollout"], self.columns["start"], objective)
        self.is_model = np.array([t.is_model for t in flat], dtype=bool)
        self.in_loss = self.is_model & corrected.is_kept
        self.columns["rollout_weight"] = corrected.weights
        if self.in_loss.any():
            self.columns["weight"] = mean_weights(self.in_loss, self.offsets, objective)
        self.learner = torch.from_numpy(self.columns["learner"].copy()).requires_grad_()
        self.entropy = torch.from_numpy(self.columns["entropy"].copy()).requires_grad_()

    def share(self, rows: list[int], shuffle: np.random.Generator | None = None) -> LossShare:
        """What a micro-batch of some trajectories adds, its tokens in any order."""
        index, trajectory = [], []
        for number, row in enumerate(rows):
            here = np.arange(self.offsets[row], self.offsets[row + 1])
            here = here[self.is_model[here]]
            index += here.tolist()
            trajectory += [number] * len(here)
        order = np.arange(len(index)) if shuffle is None else shuffle.permutation(len(index))
        at = torch.tensor(index, dtype=torch.int64)[order]
        of = {name: torch.from_numpy(column)[at] for name, column in self.columns.items()}
        return policy_loss(
            self.objective,
            TokenInputs(
                learner_logprobs=self.learner[at],
                entropy=self.entropy[at],
                start_logprobs=of["start"],
                advantages=of["advantage"],
                reference_logprobs=of["reference"] if self.objective.kl_coefficient else None,
                rollout_weights=of["rollout_weight"],
                weights=of["weight"],
                trajectory=torch.tensor(trajectory, dtype=torch.int64)[order],
            ),
        )

    def loss_by(self, *micro_batches: list[int]) -> tuple[float, np.ndarray, np.ndarray]:
        """The sum of the shares, and its gradient by logprobs and entropies."""
        self.learner.grad = self.entropy.grad = None
        total = 0.0
        for rows in micro_batches:
            loss = self.share(rows, np.random.default_rng(len(rows))).loss
            loss.backward()
            total += loss.item()
        gradients = [
            np.zeros(len(values)) if values.grad is None else values.grad.numpy().copy()
            for values in (self.learner, self.entropy)
        ]
        return total, *gradients


def assert_equal_up_to_rounding(found: np.ndarray, expected: np.ndarray) -> None:
    # float32 against float64: the exponential of a log-ratio of 12 keeps 6 digits, and the
    # divergence's 1 - exp(x) has the absolute rounding of 1.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def assert_agrees_with_the_loop(objective: ObjectiveConfig, trajectories: Trajectories) -> None:
    expected, logprobs, entropies = naive_loss(objective, trajectories)
    if expected.requires_grad:
        expected.backward()
    by_logprobs, by_entropies = (
        np.array([0.0 if leaf.grad is None else leaf.grad.item() for row in leaves for leaf in row])
        for leaves in (logprobs, entropies)
    )

    loss, gradient, entropy_gradient = Ours(objective, trajectories).loss_by(
        list(range(len(trajectories)))
    )

    # Terms of both signs cancel in the sum, not their rounding.
    scale = 1 + float(np.abs(by_logprobs).sum())
    assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-5 * scale)
    assert_equal_up_to_rounding(gradient, by_logprobs)
    assert_equal_up_to_rounding(entropy_gradient, by_entropies)


# --- random mini-batches --------------------------------------------------------------------------


def random_mini_batch(lengths: list[int], seed: int) -> Trajectories:
    """Trajectories of some lengths; the last has one token more, which is always in the loss."""
    rng = np.random.default_rng(seed)

    def rounded(value: float) -> float:
        return float(np.float32(value))

    def random_token(is_model: bool, mismatch: float) -> Token:
        learner = rounded(-rng.exponential(2))
        # In the middle of the clip, far outside, and unchanged.
        gap = rng.choice([rng.normal(scale=0.3), rng.normal(scale=5), rng.choice([12, -12]), 0.0])
        start = rounded(learner - gap)
        return Token(
            is_model=is_model,
            learner=learner,
            start=start,
            rollout=rounded(start - mismatch),
            reference=rounded(learner + rng.normal(scale=1.5)),
            advantage=rounded(rng.choice([rng.normal(), rng.normal(), rng.normal(scale=9), 0.0])),
            entropy=rounded(rng.exponential(2)),
        )

    found = [
        [random_token(rng.random() < 0.6, rng.normal()) for _ in range(length)]
        for length in lengths
    ]
    found[-1].append(random_token(True, 0.1))
    return found


def is_unambiguous(objective: ObjectiveConfig, trajectories: Trajectories) -> bool:
    """No token is within rounding of where a case begins."""
    counted = [[t for t in row if is_counted(objective, t)] for row in trajectories]
    log_ratios = [t.learner - t.start for row in counted for t in row]
    log_ratios += [sum(t.learner - t.start for t in row) / len(row) for row in counted if row]
    edges = [math.log(1 - objective.clip_low), math.log(1 + objective.clip_high), 10.0]
    edges += [math.log(objective.dual_clip)] if objective.dual_clip else []
    away = [abs(x - edge) for x in log_ratios for edge in edges]
    log_cap = math.log(objective.rollout_correction_cap)
    away += [abs(abs(t.start - t.rollout) - log_cap) for row in trajectories for t in row]
    return min(away) > 1e-5


MINI_BATCHES = st.builds(
    random_mini_batch,
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.05])
@pytest.mark.parametrize("kl_coefficient", [0.0, 0.1])
@pytest.mark.parametrize("dual_clip", [0.0, 3.0])
@pytest.mark.parametrize("rollout_correction", ["none", "truncate", "mask"])
@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo"])
@settings(derandomize=True, max_examples=10)
@given(trajectories=MINI_BATCHES)
def test_loss_and_gradient_of_every_option_are_those_of_the_loop(
    name: str,
    rollout_correction: str,
    dual_clip: float,
    kl_coefficient: float,
    entropy_coefficient: float,
    trajectories: Trajectories,
) -> None:
    objective = replace(
        BY_NAME[name],
        rollout_correction=rollout_correction,
        dual_clip=dual_clip,
        kl_coefficient=kl_coefficient,
        entropy_coefficient=entropy_coefficient,
    )
    assume(is_unambiguous(objective, trajectories))

    assert_agrees_with_the_loop(objective, trajectories)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@settings(derandomize=True, max_examples=40)
@given(trajectories=MINI_BATCHES)
def test_ratio_and_aggregation_can_be_combined_at_will(
    ratio: str, aggregation: str, trajectories: Trajectories
) -> None:
    objective = replace(GRPO, ratio=ratio, aggregation=aggregation)
    assume(is_unambiguous(objective, trajectories))

    assert_agrees_with_the_loop(objective, trajectories)


@pytest.mark.parametrize("rollout_correction", ["truncate", "mask"])
@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo"])
@settings(derandomize=True, max_examples=60)
@given(trajectories=MINI_BATCHES, data=st.data())
def test_micro_batches_of_whole_trajectories_add_up_to_the_same_loss_and_gradient(
    name: str, rollout_correction: str, trajectories: Trajectories, data: st.DataObject
) -> None:
    objective = replace(BY_NAME[name], rollout_correction=rollout_correction)
    ours = Ours(objective, trajectories)
    order = data.draw(st.permutations(range(len(trajectories))))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(order)), max_size=3)))
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]

    whole, gradient, by_entropy = ours.loss_by(list(range(len(trajectories))))
    in_parts, gradient_of_parts, by_entropy_of_parts = ours.loss_by(*parts)

    assert in_parts == pytest.approx(
        whole, rel=1e-5, abs=1e-5 * (1 + float(np.abs(gradient).sum()))
    )
    assert_equal_up_to_rounding(gradient_of_parts, gradient)
    assert_equal_up_to_rounding(by_entropy_of_parts, by_entropy)


# --- single cases ---------------------------------------------------------------------------------


def token(
    log_ratio: float = 0.0, advantage: float = 1.0, *, mismatch: float = 0.0, is_model: bool = True
) -> Token:
    return Token(
        is_model=is_model,
        learner=-1.0,
        start=-1.0 - log_ratio,
        rollout=-1.0 - log_ratio - mismatch,
        reference=-1.0,
        advantage=advantage,
        entropy=0.5,
    )


@pytest.mark.parametrize("name", ["grpo", "dapo", "cast", "gspo", "gigpo"])
def test_configuration_gives_the_table_of_the_specification(name: str) -> None:
    configured = load_config(None, [f"algorithm={name}"]).objective

    bare = replace(configured, rollout_correction="none")
    assert bare == BY_NAME[name]
    assert (configured.rollout_correction, configured.rollout_correction_cap) == ("truncate", 2.0)


@pytest.mark.parametrize("alpha", ["0.0", "0.1", "1.0"])
def test_cast_and_dapo_have_one_objective_whatever_alpha_is(alpha: str) -> None:
    cast = load_config(None, ["algorithm=cast", f"advantage.alpha={alpha}"]).objective

    assert cast == load_config(None, ["algorithm=dapo"]).objective


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo"])
def test_a_mini_batch_of_one_token_has_minus_its_advantage_as_loss_and_gradient(name: str) -> None:
    loss, gradient, _ = Ours(BY_NAME[name], [[token(advantage=-0.7)]]).loss_by([0])

    assert loss == pytest.approx(0.7)
    assert gradient.tolist() == pytest.approx([0.7])


def test_sequence_mean_does_not_count_a_trajectory_that_masking_emptied() -> None:
    objective = replace(GSPO, rollout_correction="mask")
    emptied = [token(advantage=5.0, mismatch=1.0), token(advantage=5.0, mismatch=-1.0)]

    loss, gradient, _ = Ours(objective, [[token(advantage=1.0)], emptied]).loss_by([0, 1])

    # Over two trajectories it would be -0.5.
    assert loss == pytest.approx(-1.0)
    assert gradient.tolist() == pytest.approx([-1.0, 0.0, 0.0])


def test_token_mean_does_not_count_masked_tokens_but_clipped_ones() -> None:
    objective = replace(DAPO, rollout_correction="mask")
    tokens = [token(), token(log_ratio=1.0), token(advantage=9.0, mismatch=2.0)]

    loss, gradient, _ = Ours(objective, [tokens]).loss_by([0])

    assert loss == pytest.approx(-(1 + 1.28) / 2)
    assert gradient.tolist() == pytest.approx([-0.5, 0.0, 0.0])


def test_truncation_weighs_the_surrogate_and_neither_divergence_nor_entropy() -> None:
    objective = replace(
        DAPO, rollout_correction="truncate", kl_coefficient=1.0, entropy_coefficient=1.0
    )
    far = replace(token(advantage=1.0, mismatch=3.0), reference=0.0)

    loss, _, by_entropy = Ours(objective, [[far]]).loss_by([0])

    assert loss == pytest.approx(-2.0 + (math.e - 1 - 1) - 0.5)
    assert by_entropy.tolist() == [-1.0]


def test_micro_batch_without_a_token_adds_a_zero_that_can_be_differentiated() -> None:
    ours = Ours(replace(GSPO, kl_coefficient=0.1), [[token()], [token(is_model=False)]])

    share = ours.share([1])
    share.loss.backward()

    assert (share.loss.item(), share.num_clipped.item()) == (0, 0)
    assert ours.learner.grad is not None
    assert ours.learner.grad.tolist() == [0, 0]


def test_stats_of_a_share_are_sums_over_its_tokens() -> None:
    high, low = math.log(1.5), math.log(0.5)
    tokens = [token(high, 1.0), token(high, -1.0), token(low, -1.0), token(low, 0.0)]
    tokens[0] = replace(tokens[0], reference=-1.0 + math.log(2))

    share = Ours(GRPO, [tokens]).share([0])

    assert share.num_clipped.item() == 2
    assert share.kl.item() == pytest.approx(2 - math.log(2) - 1, abs=1e-6)


def test_text_loss_is_the_weighted_cross_entropy() -> None:
    logprobs = torch.tensor([-1.0, -3.0], requires_grad=True)

    share = text_loss(logprobs, torch.tensor([0.5, 1.5]), torch.tensor([0.25, 0.5]))
    share.loss.backward()

    assert share.entropy.item() == 2.0
    assert share.loss.item() == pytest.approx(0.25 + 1.5)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-0.25, -0.5]
