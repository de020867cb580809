"""Two real engines behind Ray Serve, killed and stopped in every way: nothing stays, all come back.

A start costs half a minute, so the tests share the engines and come in order, and each leaves both
up again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.serve.handle import DeploymentHandle
from transformers import Qwen3ForCausalLM

from cast_ray.cluster.session import start_ray
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import EngineConfig
from cast_ray.errors import RemoteTimeout
from cast_ray.rollout.generate import Completion, GenerateRequest
from cast_ray.weights.manifest import WeightManifest, publish_weights
from serve.client.applications import engines_up
from serve.client.engines import PolicyEngines
from serve.engine.deployment import deploy_engines
from serve.messages import EngineOptions, EngineStats
from tests.support.installed import inject_fault, install_faulty_receiver
from tests.support.processes import processes_below
from tests.support.tiny_model import VOCAB_SIZE, build_tiny_model
from tests.support.waiting import wait_until

pytestmark = pytest.mark.ray

TIMEOUT_S = 60.0
START_TIMEOUT_S = 240.0
GONE_S = 5.0
"""None of a killed replica's processes may live longer."""
FIRST, SECOND = "life-policy-0", "life-policy-1"


@dataclass
class Bench:
    """Two engines, and a learner's stand-in that publishes for them."""

    engines: PolicyEngines
    model: Qwen3ForCausalLM
    directory: Path
    fault_file: Path
    version: int = 0

    def publish(self) -> WeightManifest:
        self.version += 1
        state = dict(self.model.named_parameters())
        return publish_weights(state, directory=self.directory, version=self.version)

    def set_fault(self, kind: str) -> None:
        inject_fault(self.fault_file, kind=kind)

    def stats(self, engine: int = 0) -> EngineStats:
        stats = self.engines.stats(timeout_s=TIMEOUT_S)[engine]
        assert stats is not None
        return stats

    def wait_until_up(self) -> None:
        wait_until(
            lambda: engines_up([FIRST, SECOND]) == {FIRST, SECOND},
            timeout_s=START_TIMEOUT_S,
            what="both engines",
        )


async def ask(handle: DeploymentHandle, **changes: Any) -> Completion:
    """Return the answer of one engine to one request; waits for a replica that takes it."""
    wanted: dict[str, Any] = {
        "token_ids": tuple(range(10, 60)),
        "max_tokens": 16,
        "temperature": 1.0,
        "top_p": 1.0,
        "seed": 0,
        "stop_token_ids": (VOCAB_SIZE - 1,),
    }
    request = GenerateRequest(**wanted | changes)
    async for done in handle.options(stream=True).generate.remote([request]):
        return done[0][1]
    raise AssertionError("no answer")


def first_answer(handle: DeploymentHandle) -> Completion:
    def answer() -> Completion | None:
        try:
            return asyncio.run(ask(handle))
        except (ray.exceptions.RayError, asyncio.CancelledError):
            return None

    found = wait_until(answer, timeout_s=START_TIMEOUT_S, what="an answer")
    assert found is not None
    return found


def family(replica: int) -> list[psutil.Process]:
    """Return a replica's process and all below it, its guardian among them."""
    process = psutil.Process(replica)
    return [process, *process.children(recursive=True)]


def replica_that_loads(*, not_pid: int) -> psutil.Process:
    """Return a replica that Serve starts, as soon as it has started vLLM's core."""

    def loading() -> psutil.Process | None:
        for process in processes_below(title="PolicyDepl"):
            with suppress(psutil.NoSuchProcess):
                if process.pid != not_pid and processes_below(process.pid, title="spawn_main"):
                    return process
        return None

    found = wait_until(loading, timeout_s=START_TIMEOUT_S, what="a replica that loads")
    assert found is not None
    return found


def controllers() -> list[psutil.Process]:
    """Return the process of Serve's controller; none while it is started again."""
    return processes_below(title="ray::ServeController")


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=GONE_S)
    assert alive == []


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("engine_life")
    model = build_tiny_model(folder / "model", seed=0)
    environment, fault_file = install_faulty_receiver(folder)
    start_ray(num_cpus=2)
    engines = deploy_engines(
        "life",
        EngineOptions(
            engine=EngineConfig(
                max_num_seqs=16,
                kv_cache_gib=0.25,
                weight_backend="faulty_file",
                update_timeout_s=30,
                start_timeout_s=START_TIMEOUT_S,
            ),
            model_dir=str(folder / "model"),
            max_model_len=4096,
            seed=0,
            stall_timeout_s=3,
            probe_timeout_s=5,
        ),
        ResourcesConfig(engines=2, cpus_per_engine=0.5),
        weights_directory=str(folder / "weights"),
        env_vars=environment,
    )
    yield Bench(engines, model, folder / "weights", fault_file)
    engines.remove()
    ray.shutdown()


def test_a_dead_core_stops_no_update_and_its_engine_comes_back_with_the_newest_weights(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S).down == []
    before = bench.stats()
    killed = time.monotonic()
    psutil.Process(before.core_pids[0]).kill()
    wait_until(lambda: FIRST not in engines_up([FIRST]), timeout_s=30, what="the first is down")
    detected = time.monotonic()
    with caplog.at_level(logging.WARNING):
        update = bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
        again = bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    assert time.monotonic() - detected < 5
    assert update.down == again.down == [FIRST]
    assert [receipt.version for receipt in again.receipts] == [bench.version]
    [said] = [record.message for record in caplog.records if record.name == "serve.client.engines"]
    assert said.startswith(f"Engine {FIRST} is down")
    assert bench.engines.stats(timeout_s=TIMEOUT_S)[0] is None
    # Published while the new replica loads; nobody but the replica itself tells it.
    replica_that_loads(not_pid=before.replica_pid)
    bench.publish()
    answer = first_answer(bench.engines.handles[0])
    answered = time.monotonic()
    assert set(answer.weight_versions) == {bench.version}
    assert bench.stats().engine_id != before.engine_id
    print(f"core killed: seen after {detected - killed:.1f} s, answers {answered - detected:.1f} s")
    # A replica that is killed ends itself at once, not after three failed checks.
    assert detected - killed < 5


def test_a_stopped_core_is_replaced_and_does_not_live_on(bench: Bench) -> None:
    before = bench.stats()
    processes = family(before.replica_pid)
    stopped = time.monotonic()
    os.kill(before.core_pids[0], signal.SIGSTOP)
    # Idle: three seconds of silence, five for the probe.
    wait_until(lambda: FIRST not in engines_up([FIRST]), timeout_s=30, what="the first is down")
    print(f"core stopped: seen after {time.monotonic() - stopped:.1f} s")
    assert_gone(processes)
    answer = first_answer(bench.engines.handles[0])
    assert bench.stats().engine_id != before.engine_id
    assert len(answer.token_ids) > 0


def test_a_replica_killed_while_it_generates_or_loads_leaves_no_process(bench: Bench) -> None:
    bench.wait_until_up()
    before = bench.stats()
    processes = family(before.replica_pid)
    assert len(processes) >= 3  # with the core and the guardian

    async def kill_while_generating() -> None:
        tasks = [
            asyncio.create_task(ask(bench.engines.handles[0], max_tokens=3000, seed=seed))
            for seed in range(16)
        ]
        while (await asyncio.to_thread(bench.stats)).num_running < 16:
            await asyncio.sleep(0.05)
        os.kill(before.replica_pid, signal.SIGKILL)
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(kill_while_generating())
    assert_gone(processes)
    loading = replica_that_loads(not_pid=before.replica_pid)
    processes = family(loading.pid)
    loading.kill()
    assert_gone(processes)


def test_a_replica_killed_while_paused_leaves_no_process_and_an_update_waits_for_one(
    bench: Bench,
) -> None:
    bench.wait_until_up()
    stats = [bench.stats(0), bench.stats(1)]
    processes = [process for one in stats for process in family(one.replica_pid)]
    bench.set_fault("hold")
    manifest = bench.publish()
    held = [handle.update_weights.remote(manifest) for handle in bench.engines.handles]
    # Both are in the middle of it then, for as long as the fault lasts; neither says so.
    time.sleep(1)
    for one in stats:
        os.kill(one.replica_pid, signal.SIGKILL)
    for response in held:
        with pytest.raises(ray.exceptions.RayError):
            response.result(timeout_s=10)
    assert_gone(processes)
    bench.set_fault("none")
    update = bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    assert {receipt.version for receipt in update.receipts} == {bench.version}
    bench.wait_until_up()


def test_engines_outlive_serves_controller(bench: Bench) -> None:
    """The next controller asks every replica who it is, and ends the ones that cannot say."""
    bench.wait_until_up()
    before = [bench.stats(0).engine_id, bench.stats(1).engine_id]
    [killed] = controllers()
    killed.kill()
    wait_until(
        lambda: [one for one in controllers() if one != killed],
        timeout_s=START_TIMEOUT_S,
        what="another controller",
    )
    bench.wait_until_up()
    assert [bench.stats(0).engine_id, bench.stats(1).engine_id] == before
    assert len(first_answer(bench.engines.handles[1]).token_ids) > 0


def test_no_engine_at_all_is_a_time_out_that_names_them(bench: Bench) -> None:
    nobody = PolicyEngines(bench.engines.handles, start_timeout_s=1, workers_per_engine=1)
    for one in (bench.stats(0), bench.stats(1)):
        os.kill(one.replica_pid, signal.SIGKILL)
    wait_until(lambda: not engines_up([FIRST, SECOND]), timeout_s=10, what="no engine")
    with pytest.raises(RemoteTimeout, match=f"{FIRST}.*{SECOND}"):
        nobody.update_weights(bench.publish(), timeout_s=1)
