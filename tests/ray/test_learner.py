"""DeepSpeed's update against the same numbers worked out token by token."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import ray
import torch
from safetensors.torch import load_file, save_file
from torch.utils.cpp_extension import get_default_build_root

from cast_ray.batching import cut_micro_batches, flat_column, loss_mask, row_offsets
from cast_ray.errors import ConfigError, LearnerError, ModelError
from cast_ray.learner_actor import LearnerGroup
from cast_ray.policy import load_policy
from cast_ray.weights import read_weights
from tests.learner_double import (
    CLIP,
    LENGTHS,
    MAX_GRAD_NORM,
    ROWS,
    NaivePolicy,
    Probes,
    build_policy,
    build_table,
    global_norm,
    relative_error,
    settings_for,
    with_column,
)

pytestmark = pytest.mark.ray

# float32 against float64: sums of some hundred terms, measured at most 2e-6.
TOLERANCE = 1e-5
TABLE = build_table()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def policy_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_policy(tmp_path_factory.mktemp("policy") / "tiny")


@pytest.fixture(scope="module")
def naive(policy_dir: Path) -> NaivePolicy:
    return NaivePolicy(policy_dir)


@pytest.fixture(scope="module")
def start_logprobs(naive: NaivePolicy) -> np.ndarray:
    """Off the present logprobs by so much that every case of the clip occurs."""
    noise = np.random.default_rng(5).normal(scale=0.8, size=sum(LENGTHS))
    return (naive.logprobs(TABLE) + noise).astype(np.float32)


@pytest.fixture(scope="module")
def expected(naive: NaivePolicy, start_logprobs: np.ndarray) -> tuple[dict[str, np.ndarray], float]:
    return naive.gradient(TABLE, start_logprobs)


@pytest.fixture(scope="module")
def one_rank(policy_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probes]:
    start = tmp_path_factory.mktemp("start") / "checkpoint"
    probes = Probes(settings_for(policy_dir), num_ranks=1, start=start)
    yield probes
    probes.close()


@pytest.fixture(scope="module", params=["1 rank", "2 ranks", "2 ranks, ZeRO 2", "2 ranks, ZeRO 3"])
def probes(
    request: pytest.FixtureRequest, policy_dir: Path, tmp_path_factory: pytest.TempPathFactory
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
    probes.call("cut", 60, 99)

    found = probes.call("logprobs", TABLE)

    # float32 sums over 48 to 128 terms; logprobs are around -5.
    np.testing.assert_allclose(found, naive.logprobs(TABLE), atol=2e-5)
    in_loss = loss_mask(TABLE)
    assert not found[~in_loss].any()
    assert found[in_loss].all()


@pytest.mark.parametrize(("tokens_per_micro_batch", "num_batches"), [(180, 1), (90, 2), (38, 5)])
def test_update_equals_the_naive_loop_for_any_number_of_micro_batches_and_ranks(
    probes: Probes,
    start_logprobs: np.ndarray,
    expected: tuple[dict[str, np.ndarray], float],
    tokens_per_micro_batch: int,
    num_batches: int,
) -> None:
    lengths = np.array(LENGTHS)[ROWS]
    cuts = cut_micro_batches(lengths, tokens_per_micro_batch=tokens_per_micro_batch)
    assert len(cuts) == num_batches

    gradient, stats = probes.gradient(
        TABLE, start_logprobs, tokens_per_micro_batch=tokens_per_micro_batch
    )

    assert stats.loss == pytest.approx(expected[1], rel=TOLERANCE)
    assert stats.grad_norm == pytest.approx(global_norm(expected[0]), rel=TOLERANCE)
    assert relative_error(gradient, expected[0]) < TOLERANCE


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
    expected: tuple[dict[str, np.ndarray], float],
) -> None:
    gradient, _ = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=90)

    mutant = {name: 2 * values for name, values in expected[0].items()}
    assert relative_error(gradient, mutant) > 100 * TOLERANCE


def test_comparison_sees_two_swapped_advantages(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    expected: tuple[dict[str, np.ndarray], float],
) -> None:
    gradient, _ = one_rank.gradient(swapped_advantages(TABLE), start_logprobs)

    assert relative_error(gradient, expected[0]) > 100 * TOLERANCE


def test_junk_outside_the_loss_changes_no_bit(one_rank: Probes, start_logprobs: np.ndarray) -> None:
    gradient, stats = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=90)
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

    same, same_stats = one_rank.gradient(
        junk, junk_start, tokens_per_micro_batch=90, padding_token=77
    )

    assert (same_stats.loss, same_stats.ratio_max) == (stats.loss, stats.ratio_max)
    assert all(np.array_equal(same[name], gradient[name]) for name in gradient)


def test_stats_count_clipped_tokens_and_the_largest_ratio(
    one_rank: Probes, naive: NaivePolicy, start_logprobs: np.ndarray
) -> None:
    _, stats = one_rank.gradient(TABLE, start_logprobs, tokens_per_micro_batch=38)

    offsets, mask = row_offsets(TABLE), loss_mask(TABLE)
    tokens = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in ROWS])
    tokens = tokens[mask[tokens]]
    ratios = np.exp(naive.logprobs(TABLE) - start_logprobs)[tokens]
    advantages = flat_column(TABLE, "token_advantages")[tokens]
    clipped = np.where(advantages > 0, ratios > 1.28, (ratios < 0.8) | (ratios > 3))
    assert stats.num_tokens == len(tokens)
    assert stats.clip_fraction == pytest.approx(clipped.mean())
    assert 0.1 < stats.clip_fraction < 0.9
    assert stats.ratio_max == pytest.approx(ratios.max(), rel=1e-4)
    assert 0 < stats.entropy < math.log(128)


def test_saved_model_is_the_policy_as_hugging_face_loads_it(
    one_rank: Probes, tmp_path: Path
) -> None:
    one_rank.call("load_checkpoint", one_rank.start)
    one_rank.call("cut", 180, 0)
    one_rank.call("save_model", tmp_path / "model")

    again = NaivePolicy(tmp_path / "model")

    np.testing.assert_allclose(again.logprobs(TABLE), one_rank.call("logprobs", TABLE), atol=2e-5)
    assert (tmp_path / "model" / "tokenizer.json").read_text() == "{}"
    assert again.model.config.tie_word_embeddings
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_tied_head_is_sent_once_under_the_name_of_the_embedding(one_rank: Probes) -> None:
    names = list(one_rank.call("weights"))

    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


def test_gradient_is_clipped_to_the_norm_after_it_is_measured(
    one_rank: Probes,
    start_logprobs: np.ndarray,
    expected: tuple[dict[str, np.ndarray], float],
) -> None:
    factor = 2.0**40
    advantages = [np.array(row) * factor for row in TABLE.column("token_advantages").to_pylist()]
    large = with_column(TABLE, "token_advantages", advantages)

    gradient, stats = one_rank.gradient(large, start_logprobs)

    norm = global_norm(expected[0])
    clipped = {name: values * MAX_GRAD_NORM / norm for name, values in expected[0].items()}
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
        probes.call("update", TABLE, ROWS, start_logprobs, CLIP)
    after = probes.call("weights")
    probes.close()

    expected = adamw_by_torch(policy_dir, start_logprobs)
    moved = {name: after[name] - before[name] for name in before}
    expected_moves = {name: expected[name] - before[name] for name in before}
    # Adam divides by the gradient's own size, so that gradients near rounding count fully:
    # measured 2e-4; without weight decay the difference would be 2e-2.
    assert relative_error(moved, expected_moves) < 2e-3


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 2), (2, 3)])
def test_gradient_that_is_not_finite_changes_no_weight_and_ends_the_learner(
    policy_dir: Path, tmp_path: Path, start_logprobs: np.ndarray, num_ranks: int, zero_stage: int
) -> None:
    probes = Probes(
        settings_for(policy_dir, zero_stage=zero_stage),
        num_ranks=num_ranks,
        start=tmp_path / "start",
    )
    before = probes.call("weights")
    # The ratio overflows where the advantage is negative: the dual clip bounds the loss, and the
    # gradient is 0 times infinity.
    is_negative = flat_column(TABLE, "token_advantages") < 0
    token = np.flatnonzero(is_negative & loss_mask(TABLE))[0]
    far = start_logprobs.copy()
    far[token] = -1000.0

    with pytest.raises(LearnerError, match="gradient is not finite"):
        probes.call("update", TABLE, ROWS, far, CLIP)

    after = probes.call("weights")
    assert all(np.array_equal(after[name], before[name]) for name in before)
    with pytest.raises(LearnerError, match="start it afresh"):
        probes.call("update", TABLE, ROWS, start_logprobs, CLIP)
    probes.close()


def group_of(policy_dir: Path, *, num_ranks: int, zero_stage: int) -> LearnerGroup:
    return LearnerGroup(
        settings_for(policy_dir, optimizer="adamw", lr=1e-3, zero_stage=zero_stage),
        num_ranks=num_ranks,
        num_cpus=0.1,
        num_gpus=0,
        timeout_s=180,
    )


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 2)])
def test_learner_resumed_from_a_checkpoint_goes_on_bit_for_bit(
    policy_dir: Path, tmp_path: Path, num_ranks: int, zero_stage: int
) -> None:
    group = group_of(policy_dir, num_ranks=num_ranks, zero_stage=zero_stage)
    table = ray.put(TABLE)
    start = ray.put(group.logprobs(table))
    group.update(table, ROWS, start, **CLIP)
    group.save_checkpoint(tmp_path / "step-1", {"step": 1})
    stats = group.update(table, ROWS, start, **CLIP)
    straight = read_weights(
        group.publish_weights(tmp_path / "straight", version=2, dtype="float32")
    )
    group.close()

    resumed = group_of(policy_dir, num_ranks=num_ranks, zero_stage=zero_stage)
    client_state = resumed.load_checkpoint(tmp_path / "step-1")
    again = resumed.update(table, ROWS, start, **CLIP)
    weights = read_weights(
        resumed.publish_weights(tmp_path / "resumed", version=2, dtype="float32")
    )
    resumed.close()

    assert client_state == {"step": 1}
    assert (again.loss, again.grad_norm) == (stats.loss, stats.grad_norm)
    assert all(torch.equal(weights[name], straight[name]) for name in straight)


def test_group_names_the_call_in_which_a_rank_died(policy_dir: Path, tmp_path: Path) -> None:
    group = group_of(policy_dir, num_ranks=2, zero_stage=0)
    ray.kill(group._ranks[1])

    with pytest.raises(LearnerError, match="died during logprobs"):
        group.logprobs(ray.put(TABLE))

    with pytest.raises(LearnerError, match="closed"):
        group.save_model(tmp_path / "model")


def test_lock_left_by_a_killed_process_stops_no_learner(one_rank: Probes, policy_dir: Path) -> None:
    """``one_rank`` has compiled the operator, so its directory is there."""
    built = list(Path(get_default_build_root()).rglob("deepspeed_shm_comm/build.ninja"))
    assert built
    for path in built:
        path.with_name("lock").touch()

    group_of(policy_dir, num_ranks=1, zero_stage=0).close()

    assert not any(path.with_name("lock").exists() for path in built)


def test_checkpoint_of_another_number_of_ranks_is_refused(one_rank: Probes, tmp_path: Path) -> None:
    shutil.copytree(one_rank.start, tmp_path / "other")
    state = tmp_path / "other" / "learner.json"
    state.write_text(state.read_text().replace('"num_ranks": 1', '"num_ranks": 4'))

    with pytest.raises(LearnerError, match="resume with the same settings"):
        one_rank.call("load_checkpoint", tmp_path / "other")


def test_model_without_weights_is_refused(policy_dir: Path, tmp_path: Path) -> None:
    shutil.copy(policy_dir / "config.json", tmp_path)

    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(tmp_path, dtype=torch.float32)


def test_model_that_lacks_a_weight_is_refused_by_name(policy_dir: Path, tmp_path: Path) -> None:
    shutil.copy(policy_dir / "config.json", tmp_path)
    weights = load_file(policy_dir / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        load_policy(tmp_path, dtype=torch.float32)


def test_bfloat16_without_zero_is_refused(policy_dir: Path) -> None:
    with pytest.raises(ConfigError, match="zero_stage 1, 2 or 3"):
        settings_for(policy_dir, dtype="bfloat16", zero_stage=0)


def test_loss_that_is_not_finite_is_refused_though_its_gradient_would_be(
    one_rank: Probes, start_logprobs: np.ndarray
) -> None:
    """Stays last: it ends the learner that the others share."""
    advantages = [np.array(row) for row in TABLE.column("token_advantages").to_pylist()]
    token = np.flatnonzero(advantages[4])[0]
    advantages[4][token] = math.inf
    high = start_logprobs.copy()
    high[row_offsets(TABLE)[4] + token] = -50.0  # so clipped, without gradient

    with pytest.raises(LearnerError, match=r"the loss \(-?inf\)"):
        one_rank.gradient(with_column(TABLE, "token_advantages", advantages), high)
