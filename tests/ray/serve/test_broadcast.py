"""Two real engines and a sender's process: weights come by a collective, or the old ones go on.

A start costs half a minute, so the tests share the engines and come in order; the ones that kill
are last.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from transformers import Qwen3ForCausalLM

from cast_ray.cluster.session import start_ray
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import EngineConfig
from cast_ray.errors import TransferBroken, WeightSyncError
from cast_ray.weights.group import Meeting
from cast_ray.weights.manifest import WeightManifest, publish_weights
from serve.client.applications import engines_up
from serve.client.engines import EnginesUpdate, PolicyEngines
from serve.engine.deployment import deploy_engines
from serve.messages import EngineOptions, EngineStats
from tests.support.broadcast_members import SenderHost
from tests.support.installed import inject_fault, install_faulty_receiver
from tests.support.tiny_model import build_tiny_model
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

TIMEOUT_S = 60.0
START_TIMEOUT_S = 240.0
UPDATE_TIMEOUT_S = 8.0
TOKENS = tuple(range(10, 100))
FIRST, SECOND = "cast-policy-0", "cast-policy-1"


@dataclass
class Sending:
    """The learner's end, as ``PolicyEngines`` knows it, in a process of its own."""

    actor: Any
    after_opening: Callable[[WeightManifest], None] = lambda manifest: None
    """Between the count of the engines and their update."""
    num_opened: int = 0

    def open_broadcast(self, manifest: WeightManifest, *, world_size: int) -> Meeting:
        meeting = ray.get(self.actor.open.remote(manifest, world_size), timeout=TIMEOUT_S)
        self.num_opened += 1
        self.after_opening(manifest)
        return meeting

    def send_broadcast(self, *, timeout_s: float) -> Callable[[], WeightSyncError | None]:
        sending = self.actor.send.remote(timeout_s)
        return lambda: ray.get(sending, timeout=TIMEOUT_S)


@dataclass
class Bench:
    """Two engines, a sender, and the model that both follow."""

    engines: PolicyEngines
    actor: Any
    model: Qwen3ForCausalLM
    directory: Path
    fault_file: Path
    version: int = 0
    healthy: float = 0.0
    """Mean absolute logprob difference from Hugging Face before any update."""

    def publish(self) -> WeightManifest:
        """Publish other weights than before."""
        self.version += 1
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.ndim == 1:
                    parameter.copy_(1 + 0.1 * torch.rand(parameter.shape, generator=generator))
                    continue
                noise = parameter.float().std() * torch.randn(parameter.shape, generator=generator)
                # Without a constant spread the logits grow, and their rounding with them.
                parameter.copy_((parameter + 0.3 * noise) / math.hypot(1, 0.3))
        state = dict(self.model.named_parameters())
        return publish_weights(state, directory=self.directory, version=self.version)

    def update(self, manifest: WeightManifest, sending: Sending | None = None) -> EnginesUpdate:
        return self.engines.update_weights(
            manifest, timeout_s=UPDATE_TIMEOUT_S, sender=sending or Sending(self.actor)
        )

    def set_fault(self, **fault: object) -> None:
        inject_fault(self.fault_file, **fault)

    def scores(self) -> list[tuple[float, ...]]:
        return self.engines.score(TOKENS, timeout_s=TIMEOUT_S)

    def mismatches(self) -> list[float]:
        """Return each engine's mean absolute logprob difference from Hugging Face."""
        with torch.no_grad():
            logits = self.model(torch.tensor([TOKENS])).logits[0, :-1].float()
        expected = logits.log_softmax(-1).gather(1, torch.tensor(TOKENS[1:])[:, None])[:, 0]
        return [(torch.tensor(found) - expected).abs().mean().item() for found in self.scores()]

    def stats(self) -> list[EngineStats | None]:
        return self.engines.stats(timeout_s=TIMEOUT_S)

    def kill(self, engine: int) -> None:
        stats = self.stats()[engine]
        assert stats is not None
        os.kill(stats.replica_pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("broadcast")
    model = build_tiny_model(folder / "model", seed=0)
    environment, fault_file = install_faulty_receiver(folder)
    start_ray(num_cpus=2)
    actor: Any = ray.remote(SenderHost)
    engines = deploy_engines(
        "cast",
        EngineOptions(
            engine=EngineConfig(
                max_num_seqs=16,
                kv_cache_gib=0.25,
                weight_backend="faulty_broadcast",
                update_timeout_s=UPDATE_TIMEOUT_S,
                start_timeout_s=START_TIMEOUT_S,
            ),
            model_dir=str(folder / "model"),
            max_model_len=1024,
            seed=0,
            stall_timeout_s=60,
            probe_timeout_s=20,
        ),
        ResourcesConfig(engines=2, cpus_per_engine=0.5),
        weights_directory=str(folder / "weights"),
        env_vars=environment,
    )
    sender = actor.options(num_cpus=0).remote()
    bench = Bench(engines, sender, model, folder / "weights", fault_file)
    bench.healthy = max(bench.mismatches())
    bench.update(bench.publish())  # until the first, an engine looks for files by itself
    yield bench
    engines.remove()
    ray.shutdown()


def test_three_versions_come_to_both_engines_without_a_file(bench: Bench) -> None:
    def take_away(manifest: WeightManifest) -> None:
        Path(manifest.path).unlink()  # the sender has it mapped; nobody else can read it

    assert 0 < bench.healthy < 0.02
    for _ in range(3):
        manifest = bench.publish()
        assert min(bench.mismatches()) > 5 * bench.healthy
        update = bench.update(manifest, Sending(bench.actor, after_opening=take_away))
        assert [receipt.version for receipt in update.receipts] == [bench.version] * 2
        # Every tensor, and the tied embedding as head too.
        num_tensors = len(list(bench.model.named_parameters()))
        assert [receipt.num_checks for receipt in update.receipts] == [num_tensors + 1] * 2
        assert max(bench.mismatches()) < 3 * bench.healthy
        assert [stats.weight_version for stats in bench.stats() if stats] == [bench.version] * 2
    assert not list(bench.directory.glob("*receipt*"))


def test_a_flipped_bit_at_one_engine_is_refused_and_both_go_on_with_the_old_weights(
    bench: Bench,
) -> None:
    bench.update(bench.publish())
    before, trusted = bench.scores(), bench.version
    bench.set_fault(kind="flip", member=2)
    sending = Sending(bench.actor)
    with pytest.raises(WeightSyncError, match=rf"{SECOND}: .*version \d+") as caught:
        bench.update(bench.publish(), sending)
    assert type(caught.value) is WeightSyncError
    assert sending.num_opened == 1
    assert bench.scores() == before
    assert [stats.weight_version for stats in bench.stats() if stats] == [trusted] * 2
    bench.set_fault(kind="none")
    bench.update(bench.publish())
    assert max(bench.mismatches()) < 3 * bench.healthy


def test_a_layer_left_behind_after_a_broadcast_is_named(bench: Bench) -> None:
    bench.set_fault(kind="head left behind")
    with pytest.raises(WeightSyncError, match=r"lm_head\.weight.*error"):
        bench.update(bench.publish())
    bench.set_fault(kind="none")
    bench.update(bench.publish())
    assert max(bench.mismatches()) < 3 * bench.healthy


def test_one_killed_before_its_update_stops_no_other(bench: Bench) -> None:
    sending = Sending(bench.actor)

    def kill_second(manifest: WeightManifest) -> None:
        if sending.num_opened == 1:
            bench.kill(1)

    sending.after_opening = kill_second
    started = time.monotonic()
    update = bench.update(bench.publish(), sending)
    seconds = time.monotonic() - started
    print(f"killed before the update: the other had it after {seconds:.1f} s")
    assert update.down == [SECOND]
    assert [receipt.version for receipt in update.receipts] == [bench.version]
    assert sending.num_opened == 2
    assert seconds < 2 * UPDATE_TIMEOUT_S


def test_a_broadcast_that_never_comes_to_its_end_leaves_the_engine_as_it_was(
    bench: Bench,
) -> None:
    bench.update(bench.publish())
    [before], [stats, _] = bench.scores(), bench.stats()
    manifest = bench.publish()

    class Crowded(Sending):
        """Waits for a member that nobody has asked."""

        def open_broadcast(self, manifest: WeightManifest, *, world_size: int) -> Meeting:
            return super().open_broadcast(manifest, world_size=world_size + 1)

    sending = Crowded(bench.actor)
    started = time.monotonic()
    with pytest.raises(TransferBroken, match=r"3 times.*rank 2"):
        bench.update(manifest, sending)
    # Each time given up before the engine would have counted as stalled.
    assert time.monotonic() - started < 3 * UPDATE_TIMEOUT_S
    assert sending.num_opened == 3
    [after, _] = bench.stats()
    assert stats and after
    assert (after.engine_id, after.weight_version) == (stats.engine_id, stats.weight_version)
    assert bench.scores()[0] == before
    bench.update(manifest)
    assert bench.mismatches()[0] < 3 * bench.healthy


def test_the_killed_one_comes_back_with_the_newest_version_from_the_file(bench: Bench) -> None:
    wait_until(
        lambda: engines_up([FIRST, SECOND]) == {FIRST, SECOND},
        timeout_s=START_TIMEOUT_S,
        what="both engines",
    )
    assert [stats.weight_version for stats in bench.stats() if stats] == [bench.version] * 2
    mismatches = bench.mismatches()
    assert len(mismatches) == 2
    assert max(mismatches) < 3 * bench.healthy
    assert bench.update(bench.publish()).down == []


def test_one_killed_in_the_middle_of_a_broadcast_stops_none(bench: Bench) -> None:
    bench.set_fault(kind="hold bucket", member=1)
    sending = Sending(bench.actor)
    manifest = bench.publish()

    with ThreadPoolExecutor(max_workers=1) as background:
        update = background.submit(bench.update, manifest, sending)
        # The first bucket has come then, and the engine holds the others up; it does not say so.
        time.sleep(2.0)
        assert not update.done()
        bench.kill(0)
        bench.set_fault(kind="none")
        done = update.result(timeout=TIMEOUT_S)
    assert done.down == [FIRST]
    assert [receipt.version for receipt in done.receipts] == [bench.version]
    assert max(bench.mismatches()) < 3 * bench.healthy
