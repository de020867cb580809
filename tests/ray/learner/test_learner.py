"""DeepSpeed's update against the same numbers worked out token by token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.learner.batching import cut_micro_batches, flat_column, loss_mask, row_offsets
from tests.support.learner_double import Probes
from tests.support.learner_reference import (
    ALGORITHM_NAMES,
    DAPO,
    LENGTHS,
    MAX_GRAD_NORM,
    OBJECTIVES,
    ROWS,
    NaivePolicy,
    build_table,
    global_norm,
    relative_error,
    settings_for,
    with_column,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

# float32 against float64: sums of some hundred terms, measured at most 2e-6.
TOLERANCE = 1e-5
TABLE = build_table()


@pytest.fixture(scope="module")
def reference_logprobs(start_logprobs: np.ndarray) -> np.ndarray:
    """Of a reference model that is a little off."""
    noise = np.random.default_rng(6).normal(scale=0.5, size=len(start_logprobs))
    return (start_logprobs + noise).astype(np.float32)


@pytest.fixture(scope="module")
def expected(
    naive: NaivePolicy, start_logprobs: np.ndarray, reference_logprobs: np.ndarray
) -> dict[str, tuple[dict[str, np.ndarray], float]]:
    """Gradient and loss of every algorithm by the naive loop."""
    return {
        name: naive.gradient(
            TABLE, start_logprobs, objective, wanted(objective, reference_logprobs)
        )
        for name, objective in OBJECTIVES.items()
    }


def wanted(objective: ObjectiveConfig, reference_logprobs: np.ndarray) -> np.ndarray | None:
    """The reference's logprobs, where the objective looks at them."""
    return reference_logprobs if objective.kl_coefficient else None


@pytest.fixture(scope="module", params=["1 rank", "2 ranks", "2 ranks, ZeRO 2", "2 ranks, ZeRO 3"])
def probes(
    request: pytest.FixtureRequest,
    local_ray: None,
    policy_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Probes]:
    if request.param == "1 rank":
        yield request.getfixturevalue("one_rank")
        return
    stage = int(request.param[-1]) if "ZeRO" in request.param else 0
    start = tmp_path_factory.mktemp("start") / "checkpoint"
    probes = Probes(settings_for(policy_dir, zero_stage=stage), num_ranks=2, start=start)
    yield probes
    probes.close()


def test_logprobs_equal_those_of_each_row_alone(probes: Probes, naive: NaivePolicy) -> None:
    probes.call("load_checkpoint", probes.start)
    probes.call("cut", 60)

    found = probes.call("logprobs", TABLE)

    # float32 sums over 48 to 128 terms; logprobs are around -5.
    np.testing.assert_allclose(found, naive.logprobs(TABLE), atol=2e-5)
    in_loss = loss_mask(TABLE)
    assert not found[~in_loss].any()
    assert found[in_loss].all()


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
@pytest.mark.parametrize(("tokens_per_micro_batch", "num_batches"), [(180, 1), (62, 2), (30, 4)])
def test_update_equals_the_naive_loop_for_any_number_of_micro_batches_and_ranks(
    probes: Probes,
    start_logprobs: np.ndarray,
    reference_logprobs: np.ndarray,
    expected: dict[str, tuple[dict[str, np.ndarray], float]],
    tokens_per_micro_batch: int,
    num_batches: int,
    name: str,
) -> None:
    lengths = np.array(LENGTHS)[ROWS]
    cuts = cut_micro_batches(lengths, tokens_per_micro_batch=tokens_per_micro_batch)
    assert len(cuts) == num_batches
    objective, (gradient, loss) = OBJECTIVES[name], expected[name]

    found, stats = probes.gradient(
        TABLE,
        start_logprobs,
        objective,
        reference_logprobs=wanted(objective, reference_logprobs),
        tokens_per_micro_batch=tokens_per_micro_batch,
    )

    assert stats.loss == pytest.approx(loss, rel=TOLERANCE)
    assert stats.grad_norm == pytest.approx(global_norm(gradient), rel=TOLERANCE)
    assert relative_error(found, gradient) < TOLERANCE


@pytest.mark.parametrize("correction", ["none", "mask"])
@pytest.mark.parametrize("name", ["dapo", "gspo"])
def test_other_rollout_corrections_equal_the_naive_loop(
    one_rank: Probes, naive: NaivePolicy, start_logprobs: np.ndarray, correction: str, name: str
) -> None:
    objective = replace(OBJECTIVES[name], rollout_correction=correction)
    gradient, loss = naive.gradient(TABLE, start_logprobs, objective)

    found, stats = one_rank.gradient(TABLE, start_logprobs, objective)

    assert stats.loss == pytest.approx(loss, rel=TOLERANCE)
    assert relative_error(found, gradient) < TOLERANCE


def test_tokens_left_out_by_the_rollout_correction_are_not_in_the_denominator(
    one_rank: Probes, start_logprobs: np.ndarray
) -> None:
    _, everything = one_rank.gradient(TABLE, start_logprobs, DAPO)
    _, masked = one_rank.gradient(TABLE, start_logprobs, replace(DAPO, rollout_correction="mask"))

    rows = np.repeat(np.isin(np.arange(len(LENGTHS)), ROWS), LENGTHS)
    away = np.exp(np.abs(start_logprobs - flat_column(TABLE, "rollout_logprobs")))
    kept = loss_mask(TABLE) & rows & (away <= DAPO.rollout_correction_cap)
    assert masked.num_tokens == kept.sum()
    assert everything.num_tokens == (loss_mask(TABLE) & rows).sum() > masked.num_tokens


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_order_of_the_rows_of_a_mini_batch_does_not_matter(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    reference_logprobs: np.ndarray,
    expected: dict[str, tuple[dict[str, np.ndarray], float]],
    name: str,
) -> None:
    objective = OBJECTIVES[name]

    found, stats = one_rank.gradient(
        TABLE,
        start_logprobs,
        objective,
        rows=ROWS[[3, 0, 5, 2, 4, 1]],
        reference_logprobs=wanted(objective, reference_logprobs),
        tokens_per_micro_batch=62,
    )

    assert stats.loss == pytest.approx(expected[name][1], rel=TOLERANCE)
    assert relative_error(found, expected[name][0]) < TOLERANCE


def swapped_advantages(table: pa.Table) -> pa.Table:
    """The table with the advantages of two tokens of row 1, both in the loss, exchanged."""
    rows = [np.array(row) for row in table.column("token_advantages").to_pylist()]
    first, second = np.flatnonzero(rows[1])[2:4]
    rows[1][[first, second]] = rows[1][[second, first]]
    return with_column(table, "token_advantages", rows)


def test_comparison_sees_a_denominator_that_counts_masked_tokens(
    one_rank: Probes, naive: NaivePolicy, start_logprobs: np.ndarray
) -> None:
    mutant, mutant_loss = naive.gradient(TABLE, start_logprobs, count_masked=True)

    gradient, stats = one_rank.gradient(TABLE, start_logprobs)

    assert relative_error(gradient, mutant) > 100 * TOLERANCE
    assert stats.loss != pytest.approx(mutant_loss, rel=100 * TOLERANCE)


def test_comparison_sees_a_gradient_multiplied_by_the_number_of_micro_batches(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    expected: dict[str, tuple[dict[str, np.ndarray], float]],
) -> None:
    gradient, _ = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=62)

    mutant = {name: 2 * values for name, values in expected["dapo"][0].items()}
    assert relative_error(gradient, mutant) > 100 * TOLERANCE


def test_comparison_sees_two_swapped_advantages(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    expected: dict[str, tuple[dict[str, np.ndarray], float]],
) -> None:
    gradient, _ = one_rank.gradient(swapped_advantages(TABLE), start_logprobs)

    assert relative_error(gradient, expected["dapo"][0]) > 100 * TOLERANCE


def test_junk_outside_the_loss_changes_no_bit(one_rank: Probes, start_logprobs: np.ndarray) -> None:
    gradient, stats = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=62)
    others = [row for row in range(len(LENGTHS)) if row not in ROWS]
    junk_tokens = [np.array(row) for row in TABLE.column("token_ids").to_pylist()]
    junk_advantages = [np.array(row) for row in TABLE.column("token_advantages").to_pylist()]
    for row in others:
        junk_tokens[row][:] = 17
        junk_advantages[row][:] = math.nan
    flat_advantages = np.concatenate(junk_advantages)
    flat_advantages[~loss_mask(TABLE)] = math.nan
    junk_start = np.where(loss_mask(TABLE), start_logprobs, math.nan)
    junk = with_column(TABLE, "token_ids", junk_tokens)
    rows = np.split(flat_advantages, row_offsets(TABLE)[1:-1])
    junk = with_column(junk, "token_advantages", rows)

    same, same_stats = one_rank.gradient(junk, junk_start, tokens_per_micro_batch=62)

    assert same_stats.loss == stats.loss
    assert all(np.array_equal(same[name], gradient[name]) for name in gradient)


def test_stats_count_clipped_tokens(
    one_rank: Probes, naive: NaivePolicy, start_logprobs: np.ndarray
) -> None:
    _, stats = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=30)

    offsets, mask = row_offsets(TABLE), loss_mask(TABLE)
    tokens = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in ROWS])
    tokens = tokens[mask[tokens]]
    ratios = np.exp(naive.logprobs(TABLE) - start_logprobs)[tokens]
    advantages = flat_column(TABLE, "token_advantages")[tokens]
    clipped = np.where(advantages > 0, ratios > 1.28, (ratios < 0.8) | (ratios > 3))
    assert stats.num_tokens == len(tokens)
    assert stats.clip_fraction == pytest.approx(clipped.mean())
    assert 0.1 < stats.clip_fraction < 0.9
    assert 0 < stats.entropy < math.log(128)


def test_gradient_is_clipped_to_the_norm_after_it_is_measured(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    expected: dict[str, tuple[dict[str, np.ndarray], float]],
) -> None:
    factor = 2.0**40
    advantages = [np.array(row) * factor for row in TABLE.column("token_advantages").to_pylist()]
    large = with_column(TABLE, "token_advantages", advantages)

    gradient, stats = one_rank.gradient(large, start_logprobs)

    norm = global_norm(expected["dapo"][0])
    clipped = {name: values * MAX_GRAD_NORM / norm for name, values in expected["dapo"][0].items()}
    assert stats.grad_norm == pytest.approx(norm * factor, rel=TOLERANCE)
    assert relative_error(gradient, clipped) < TOLERANCE


def adamw_by_torch(policy_dir: Path, start_logprobs: np.ndarray) -> dict[str, np.ndarray]:
    """Weights after two updates of the naive policy by PyTorch's own AdamW."""
    naive = NaivePolicy(policy_dir, torch.float32)
    optimizer = torch.optim.AdamW(
        naive.model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1
    )
    for _ in range(2):
        optimizer.zero_grad()
        naive.loss(TABLE, start_logprobs).backward()
        optimizer.step()
    return {name: w.detach().numpy() for name, w in naive.model.named_parameters()}


def test_two_adamw_updates_equal_those_of_torch(
    policy_dir: Path, tmp_path: Path, start_logprobs: np.ndarray
) -> None:
    settings = settings_for(policy_dir, optimizer="adamw", lr=1e-2)
    probes = Probes(settings, num_ranks=1, start=tmp_path / "start")
    before = probes.call("weights")
    for _ in range(2):
        probes.call("update", TABLE, ROWS, DAPO, start_logprobs)
    after = probes.call("weights")
    probes.close()

    expected = adamw_by_torch(policy_dir, start_logprobs)
    moved = {name: after[name] - before[name] for name in before}
    expected_moves = {name: expected[name] - before[name] for name in before}
    # Adam divides by the gradient's own size, so that gradients near rounding count fully:
    # measured 2e-4; without weight decay the difference would be 2e-2.
    assert relative_error(moved, expected_moves) < 2e-3
