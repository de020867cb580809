"""A learner's life: what it sends and saves, how it resumes, how it fails."""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
from safetensors.torch import load_file, save_file

from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import TrainConfig, WarmStartConfig
from cast_ray.errors import LearnerError, LearnerLost, ModelError, RemoteTimeout, TransferBroken
from cast_ray.learner.batching import row_offsets
from cast_ray.learner.deepspeed_setup import operators_root
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.policy import load_policy
from cast_ray.training.warm_start import warm_start
from cast_ray.weights.broadcast import receive_tensors
from cast_ray.weights.group import join
from cast_ray.weights.manifest import read_weights
from tests.support.learner_double import Probes, SlowlyRead
from tests.support.learner_reference import (
    DAPO,
    ROWS,
    SGD_LR,
    NaivePolicy,
    build_table,
    settings_for,
    with_column,
)
from tests.support.processes import processes_below
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

TABLE = build_table()


def test_saved_model_is_the_policy_as_hugging_face_loads_it(
    one_rank: Probes, tmp_path: Path
) -> None:
    one_rank.call("load_checkpoint", one_rank.start)
    one_rank.call("cut", 180)
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


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 1), (2, 2), (2, 3)])
def test_gradient_that_is_not_finite_is_skipped_and_the_next_one_is_as_if_it_had_not_been(
    policy_dir: Path, tmp_path: Path, start_logprobs: np.ndarray, num_ranks: int, zero_stage: int
) -> None:
    probes = Probes(
        settings_for(policy_dir, zero_stage=zero_stage),
        num_ranks=num_ranks,
        start=tmp_path / "start",
    )
    before = probes.call("weights")
    # Nearly the largest float32, in a short row: the loss is finite, and the gradient overflows on
    # its way through the layers.
    advantages = [3e38 * np.sign(row) for row in TABLE.column("token_advantages").to_pylist()]
    huge = with_column(TABLE, "token_advantages", advantages)
    uncorrected = replace(DAPO, rollout_correction="none")
    gradient, _ = probes.gradient(TABLE, start_logprobs, uncorrected)
    probes.call("load_checkpoint", probes.start)

    stats = probes.call("update", huge, np.array([3]), uncorrected, probes.call("logprobs", TABLE))

    after = probes.call("weights")
    assert math.isfinite(stats.loss)
    assert not stats.is_applied
    assert all(np.array_equal(after[name], before[name]) for name in before)
    probes.call("update", TABLE, ROWS, uncorrected, start_logprobs)
    later = probes.call("weights")
    probes.close()
    same = {name: (before[name] - later[name]) / SGD_LR for name in before}
    assert all(np.array_equal(same[name], gradient[name]) for name in gradient)


def group_of(
    policy_dir: Path, *, num_ranks: int, zero_stage: int, health_timeout_s: float = 45
) -> LearnerGroup:
    settings = settings_for(
        policy_dir,
        optimizer="adamw",
        lr=1e-3,
        zero_stage=zero_stage,
        health_timeout_s=health_timeout_s,
    )
    return LearnerGroup(settings, ranks(num_ranks))


def ranks(num_ranks: int, *, num_cpus: float = 0.1) -> ResourcesConfig:
    return ResourcesConfig(learner_ranks=num_ranks, cpus_per_learner_rank=num_cpus)


def test_warm_start_that_was_cut_off_goes_on_and_ends_at_the_same_weights(
    policy_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cast_ray.training.warm_start._SAVE_EVERY_S", 0.0)
    plan = WarmStartConfig(steps=4, trajectories_per_step=TABLE.num_rows // 4, careless_steps=0)
    seen: list[int] = []

    def teach(name: str, *, cut_at: int | None = None) -> bytes:
        def on_step(step: int, loss: float) -> None:
            seen.append(step)
            if step == cut_at:
                raise KeyboardInterrupt

        group = group_of(policy_dir, num_ranks=1, zero_stage=0)
        with closing(group):
            warm_start(
                group,
                TABLE.slice(0, plan.steps * plan.trajectories_per_step),
                TrainConfig(warm_start=plan),
                checkpoint=tmp_path / name,
                on_step=on_step,
            )
            group.save_model(tmp_path / "model")
        return (tmp_path / "model" / "model.safetensors").read_bytes()

    with pytest.raises(KeyboardInterrupt):
        teach("cut", cut_at=3)
    assert teach("cut") == teach("whole")
    assert seen == [1, 2, 3, 3, 4, 1, 2, 3, 4]


def test_group_names_the_call_in_which_a_rank_died(policy_dir: Path, tmp_path: Path) -> None:
    group = group_of(policy_dir, num_ranks=2, zero_stage=0)
    ray.kill(group._ranks[1])

    with pytest.raises(LearnerLost, match=r"rank 1\b.*died.*logprobs"):
        group.logprobs(ray.put(TABLE))

    with pytest.raises(LearnerError, match="closed"):
        group.save_model(tmp_path / "model")


def test_rank_that_dies_in_rendezvous_is_named_and_nobody_waits_for_it(policy_dir: Path) -> None:
    known = {rank.pid for rank in processes_below(title="LearnerActor")}
    with ThreadPoolExecutor(max_workers=1) as background:
        started = time.monotonic()
        group = background.submit(group_of, policy_dir, num_ranks=2, zero_stage=0)

        def both() -> list[psutil.Process]:
            found = processes_below(title="LearnerActor")
            new = [rank for rank in found if rank.pid not in known]
            return new if len(new) >= 2 else []

        wait_until(both, timeout_s=60, what="the processes of two ranks")[1].kill()
        with pytest.raises(LearnerLost, match=r"rank [01]\b.*died.*start"):
            group.result(timeout=120)
    assert time.monotonic() - started < 120


def test_rank_that_is_stopped_is_named_within_a_minute(policy_dir: Path) -> None:
    group = group_of(policy_dir, num_ranks=2, zero_stage=0, health_timeout_s=5)
    os.kill(group.pids()[1], signal.SIGSTOP)
    started = time.monotonic()

    with pytest.raises(LearnerLost, match=r"rank 1\b.* 5 s .*logprobs"):
        group.logprobs(ray.put(TABLE))

    assert time.monotonic() - started < 60


def test_rank_whose_process_is_slow_to_come_is_not_taken_for_dead(policy_dir: Path) -> None:
    settings = settings_for(policy_dir, health_timeout_s=4)
    slow = SlowlyRead(**{f.name: getattr(settings, f.name) for f in fields(settings)})
    group = LearnerGroup(slow, ranks(1))

    assert len(group.pids()) == 1
    group.close()


def test_ranks_that_find_no_place_are_refused_by_what_they_asked_for(policy_dir: Path) -> None:
    with pytest.raises(RemoteTimeout, match=r"\b2 .*\{'CPU': 100\}.* 2 s"):
        LearnerGroup(settings_for(policy_dir), ranks(2, num_cpus=100), place_timeout_s=2)


def test_lock_left_by_a_killed_process_stops_no_learner(one_rank: Probes, policy_dir: Path) -> None:
    """``one_rank`` has compiled the operator, so its directory is there."""
    built = list(operators_root().rglob("deepspeed_shm_comm/build.ninja"))
    assert built
    for path in built:
        path.with_name("lock").touch()

    group_of(policy_dir, num_ranks=1, zero_stage=0).close()

    assert not any(path.with_name("lock").exists() for path in built)


def test_model_without_weights_is_refused(policy_dir: Path, tmp_path: Path) -> None:
    shutil.copy(policy_dir / "config.json", tmp_path)

    with pytest.raises(ModelError, match=rf"{tmp_path}.*safetensors"):
        load_policy(tmp_path, dtype=torch.float32)


def test_model_that_lacks_a_weight_is_refused_by_name(policy_dir: Path, tmp_path: Path) -> None:
    shutil.copy(policy_dir / "config.json", tmp_path)
    weights = load_file(policy_dir / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        load_policy(tmp_path, dtype=torch.float32)


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("which", ["policy", "reference"])
def test_rank_that_meets_damaged_weights_names_the_file_in_one_sentence(
    policy_dir: Path, tmp_path: Path, which: str, num_ranks: int
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(policy_dir, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    settings = settings_for(damaged if which == "policy" else policy_dir)
    if which == "reference":
        settings = replace(settings, reference_dir=str(damaged))

    with pytest.raises(ModelError, match=rf"^{damaged} .*\bmodel\.safetensors\b[^\n]*$"):
        LearnerGroup(settings, ranks(num_ranks, num_cpus=1))


@pytest.mark.parametrize(("num_ranks", "zero_stage"), [(1, 0), (2, 2)])
def test_loss_that_is_not_finite_is_skipped_though_its_gradient_would_be_finite(
    policy_dir: Path, tmp_path: Path, start_logprobs: np.ndarray, num_ranks: int, zero_stage: int
) -> None:
    probes = Probes(
        settings_for(policy_dir, zero_stage=zero_stage),
        num_ranks=num_ranks,
        start=tmp_path / "start",
    )
    before = probes.call("weights")
    advantages = [np.array(row) for row in TABLE.column("token_advantages").to_pylist()]
    token = np.flatnonzero(advantages[4])[0]
    advantages[4][token] = math.inf
    high = start_logprobs.copy()
    high[row_offsets(TABLE)[4] + token] = -50.0  # so clipped, without gradient
    uncorrected = replace(DAPO, rollout_correction="none")

    stats = probes.call(
        "update", with_column(TABLE, "token_advantages", advantages), ROWS, uncorrected, high
    )

    after = probes.call("weights")
    probes.close()
    assert not math.isfinite(stats.loss)
    assert not stats.is_applied
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_group_broadcasts_what_it_has_published_and_outlives_a_receiver_that_stays_away(
    policy_dir: Path, tmp_path: Path
) -> None:
    group = group_of(policy_dir, num_ranks=1, zero_stage=0)
    manifest = group.publish_weights(tmp_path / "weights", version=1, dtype="float32")

    alone = group.open_broadcast(manifest, world_size=2)
    error = group.send_broadcast(timeout_s=1)()
    meeting = group.open_broadcast(manifest, world_size=2)
    wait = group.send_broadcast(timeout_s=60)
    with join(meeting, rank=1, timeout_s=60) as members:
        found = receive_tensors(
            members, manifest.tensors, bucket_bytes=meeting.bucket_bytes, version=1
        )

    assert type(error) is TransferBroken
    assert "rank 1" in str(error)
    assert alone.token != meeting.token
    assert wait() is None
    sent = read_weights(manifest)
    assert found.keys() == sent.keys()
    assert all(torch.equal(found[name], sent[name]) for name in sent)
    group.close()
