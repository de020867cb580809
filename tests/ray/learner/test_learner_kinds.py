"""Adapters, activations computed twice, optimizers in host memory: what changes, and what not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cast_ray.learner.batching import loss_mask
from tests.support.learner_double import Probes
from tests.support.learner_reference import (
    DAPO,
    OBJECTIVES,
    ROWS,
    NaivePolicy,
    build_table,
    relative_error,
    settings_for,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

TABLE = build_table()
LORA = {"lora_rank": 4, "lora_alpha": 8, "optimizer": "adamw", "lr": 1e-2}


@pytest.fixture
def make_probes(policy_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Probes]]:
    made: list[Probes] = []

    def make(num_ranks: int = 1, **changes: object) -> Probes:
        start = tmp_path / f"start-{len(made)}"
        made.append(Probes(settings_for(policy_dir, **changes), num_ranks=num_ranks, start=start))
        return made[-1]

    yield make
    for probes in made:
        probes.close()


@pytest.mark.parametrize(
    "changes",
    [{"gradient_checkpointing": True}, {"tokens_per_logit_chunk": 3}],
    ids=["activations computed twice", "logits three tokens at a time"],
)
def test_saving_memory_changes_no_gradient(
    make_probes: Callable[..., Probes],
    one_rank: Probes,
    start_logprobs: np.ndarray,
    changes: dict[str, object],
) -> None:
    expected, expected_stats = one_rank.gradient(TABLE, start_logprobs)

    gradient, stats = make_probes(**changes).gradient(TABLE, start_logprobs)

    assert stats.loss == pytest.approx(expected_stats.loss, rel=1e-6)
    assert relative_error(gradient, expected) < 1e-5


def test_layers_that_drop_their_activations_are_trained_without_dropout(
    make_probes: Callable[..., Probes], policy_dir: Path, one_rank: Probes
) -> None:
    config = policy_dir / "config.json"
    stored = config.read_text()
    config.write_text(stored.replace('"attention_dropout": 0.0', '"attention_dropout": 0.5'))
    assert config.read_text() != stored
    try:
        probes = make_probes(gradient_checkpointing=True)
    finally:
        config.write_text(stored)

    one_rank.call("load_checkpoint", one_rank.start)
    np.testing.assert_array_equal(probes.call("logprobs", TABLE), one_rank.call("logprobs", TABLE))


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 2)])
def test_adapters_alone_are_trained_and_merged_into_what_is_sent(
    make_probes: Callable[..., Probes],
    policy_dir: Path,
    tmp_path: Path,
    start_logprobs: np.ndarray,
    num_ranks: int,
    zero_stage: int,
) -> None:
    probes = make_probes(num_ranks, zero_stage=zero_stage, **LORA)
    base = NaivePolicy(policy_dir)
    before, first = probes.call("weights"), probes.call("logprobs", TABLE)

    for _ in range(3):
        assert probes.call("update", TABLE, ROWS, DAPO, start_logprobs).is_applied

    after, last = probes.call("weights"), probes.call("logprobs", TABLE)
    probes.call("save_model", tmp_path / "model")
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved == {name for name in before if "_proj" in name}
    np.testing.assert_allclose(first, base.logprobs(TABLE), atol=2e-5)
    assert np.abs(last - first).max() > 0.01
    # The saved model has no adapters, and answers as the adapted one does.
    np.testing.assert_allclose(NaivePolicy(tmp_path / "model").logprobs(TABLE), last, atol=5e-5)


def test_gradient_of_adapters_is_that_of_the_weights_seen_through_them(
    make_probes: Callable[..., Probes], policy_dir: Path, start_logprobs: np.ndarray
) -> None:
    """B starts at 0, so that one step of gradient descent moves W by lr · scale² · G·AᵀA."""
    lr, scale = 2.0**-6, 8 / 4
    probes = make_probes(lora_rank=4, lora_alpha=8, lr=lr)
    gradient, _ = NaivePolicy(policy_dir).gradient(TABLE, start_logprobs)
    before = probes.call("weights")
    down = probes.call("adapter_inputs")

    probes.call("update", TABLE, ROWS, DAPO, start_logprobs)

    after = probes.call("weights")
    expected = {
        f"{name}.weight": -lr * scale**2 * gradient[f"{name}.weight"] @ a.T @ a
        for name, a in down.items()
    }
    moved = {name: after[name] - before[name] for name in expected}
    assert len(expected) == 14
    # Differences of float32 weights of size 0.1: 1e-8 beside moves of 1e-4.
    assert relative_error(moved, expected) < 1e-3


def test_reference_of_an_adapted_policy_is_the_policy_without_adapters(
    make_probes: Callable[..., Probes], start_logprobs: np.ndarray
) -> None:
    probes = make_probes(**LORA)
    first = probes.call("logprobs", TABLE)
    probes.call("update", TABLE, ROWS, DAPO, start_logprobs)

    np.testing.assert_array_equal(probes.call("reference_logprobs", TABLE), first)
    assert np.abs(probes.call("logprobs", TABLE) - first).max() > 1e-3


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 2), (2, 3)])
def test_reference_model_stays_what_it_was(
    make_probes: Callable[..., Probes],
    policy_dir: Path,
    tmp_path: Path,
    start_logprobs: np.ndarray,
    num_ranks: int,
    zero_stage: int,
) -> None:
    other = shutil.copytree(policy_dir, tmp_path / "other")
    model = NaivePolicy(policy_dir, torch.float32).model
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=0.2)
    model.save_pretrained(other)
    probes = make_probes(num_ranks, zero_stage=zero_stage, reference_dir=str(other))
    reference = NaivePolicy(other).logprobs(TABLE)
    found = probes.call("reference_logprobs", TABLE)

    probes.call("update", TABLE, ROWS, OBJECTIVES["grpo"], start_logprobs, found)

    np.testing.assert_allclose(found, reference, atol=5e-5)
    np.testing.assert_array_equal(probes.call("reference_logprobs", TABLE), found)


def test_no_reference_model_is_loaded_before_it_is_asked_for(one_rank: Probes) -> None:
    one_rank.call("logprobs", TABLE)

    assert not one_rank.call("has_reference")


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_optimizer_in_host_memory_takes_the_same_steps(
    make_probes: Callable[..., Probes], start_logprobs: np.ndarray, zero_stage: int
) -> None:
    weights = []
    for offload_optimizer in (False, True):
        probes = make_probes(
            zero_stage=zero_stage, optimizer="adamw", lr=1e-2, offload_optimizer=offload_optimizer
        )
        for _ in range(2):
            probes.call("update", TABLE, ROWS, DAPO, start_logprobs)
        weights.append(probes.call("weights"))

    assert relative_error(weights[1], weights[0]) < 1e-6


@pytest.mark.parametrize(
    ("num_ranks", "changes"),
    [
        (1, {"zero_stage": 1}),
        (2, {"zero_stage": 2}),
        (2, {"zero_stage": 3}),
        (1, {"zero_stage": 2, "gradient_checkpointing": True}),
    ],
    ids=["ZeRO 1", "ZeRO 2", "ZeRO 3", "activations twice"],
)
def test_bfloat16_moves_the_weights_as_float32_does_but_for_rounding(
    make_probes: Callable[..., Probes],
    one_rank: Probes,
    start_logprobs: np.ndarray,
    num_ranks: int,
    changes: dict[str, object],
) -> None:
    # Away from the clips, where a rounded ratio falls on the other side.
    unclipped = replace(DAPO, clip_low=0.99, clip_high=1e6, dual_clip=0.0)
    expected, _ = one_rank.gradient(TABLE, start_logprobs, unclipped)
    probes = make_probes(num_ranks, dtype="bfloat16", **changes)
    before = probes.call("weights")

    stats = probes.call("update", TABLE, ROWS, unclipped, start_logprobs)

    assert stats.is_applied
    after = probes.call("weights")
    name = "model.layers.1.mlp.down_proj.weight"
    moved, wanted = before[name] - after[name], expected[name]
    cosine = (moved * wanted).sum() / np.linalg.norm(moved) / np.linalg.norm(wanted)
    assert cosine > 0.999
    assert np.isfinite(probes.call("logprobs", TABLE)[loss_mask(TABLE)]).all()
