"""One real engine behind Ray Serve: exact logprobs, versions, and no wrong sync unseen.

A start costs half a minute, so all tests share one engine and come in order: each leaves trusted
weights behind, and the ones that kill processes are last.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
import ray
import torch
from ray import serve as ray_serve
from transformers import Qwen3ForCausalLM

from cast_ray.cluster.session import start_ray
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import EngineConfig
from cast_ray.errors import EngineError, RemoteTimeout, WeightSyncError
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.weights.manifest import WeightManifest, publish_weights
from serve.client.client import PolicyClient
from serve.engine.deployment import PolicyEngines, deploy_engines
from serve.messages import EngineOptions
from tests.support.installed import inject_fault, install_faulty_receiver
from tests.support.processes import processes_below
from tests.support.tiny_model import STOP_TOKEN_ID, VOCAB_SIZE, a_request, build_tiny_model

pytestmark = pytest.mark.ray

TIMEOUT_S = 60.0


@dataclass
class Bench:
    """The engine under test, and a learner's stand-in that it follows."""

    engines: PolicyEngines
    options: EngineOptions
    """What the engine was deployed with."""
    model: Qwen3ForCausalLM
    directory: Path
    fault_file: Path
    version: int = 0
    healthy: float = 0.0
    """Mean absolute logprob difference between engine and Hugging Face before any update."""

    def change_weights(self, scale: float) -> None:
        """Move every matrix by ``scale`` times its spread, keep the spread, draw new norms."""
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.ndim == 1:
                    parameter.copy_(1 + 0.1 * torch.rand(parameter.shape, generator=generator))
                else:
                    # Without a constant spread the logits grow, and their rounding with them.
                    noise = parameter.float().std() * torch.randn(
                        parameter.shape, generator=generator
                    )
                    parameter.copy_((parameter + scale * noise) / math.hypot(1, scale))

    def publish(self) -> WeightManifest:
        self.version += 1
        state = dict(self.model.named_parameters())
        return publish_weights(state, directory=self.directory, version=self.version)

    def sync(self) -> None:
        """Send the stand-in's weights, without a fault, and expect them to arrive."""
        self.set_fault(kind="none")
        self.engines.update_weights(self.publish(), timeout_s=TIMEOUT_S)

    def set_fault(self, **fault: object) -> None:
        inject_fault(self.fault_file, **fault)

    def client(self, timeout_s: float = TIMEOUT_S) -> PolicyClient:
        return PolicyClient(
            self.engines.handles,
            slots_per_engine=128,
            timeout_s=timeout_s,
            recovery_timeout_s=3 * TIMEOUT_S,
        )

    def generate(self, *requests: GenerateRequest) -> list[Completion]:
        async def run() -> list[Completion]:
            client = self.client()
            answers = (client(r, Lane(group=i)) for i, r in enumerate(requests))
            return await asyncio.gather(*answers)

        return asyncio.run(run())

    def reference_logprobs(self, token_ids: tuple[int, ...]) -> torch.Tensor:
        """``[L - 1]`` logprobs of tokens 1 .. L-1 by Hugging Face."""
        with torch.no_grad():
            logits = self.model(torch.tensor([token_ids])).logits[0, :-1].float()
        return logits.log_softmax(-1).gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]

    def mismatch(self, request: GenerateRequest, completion: Completion) -> float:
        """Mean absolute difference of rollout and Hugging Face logprobs."""
        reference = self.reference_logprobs(request.token_ids + completion.token_ids)
        rollout = torch.tensor(completion.rollout_logprobs)
        return (rollout - reference[-len(rollout) :]).abs().mean().item()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("engine")
    model = build_tiny_model(folder / "model", seed=0)
    environment, fault_file = install_faulty_receiver(folder)
    start_ray(num_cpus=2)
    options = EngineOptions(
        engine=EngineConfig(
            max_num_seqs=128,
            weight_backend="faulty_file",
            update_timeout_s=20,
            start_timeout_s=240,
            export_metrics=True,
        ),
        model_dir=str(folder / "model"),
        max_model_len=4096,
        seed=0,
        # A step has up to 8192 prompt tokens; 4000 take 2.8 s on two cores without AMX.
        stall_timeout_s=12,
        probe_timeout_s=20,
    )
    weights = str(folder / "weights")
    engines = deploy_engines(
        "test", options, ResourcesConfig(), weights_directory=weights, env_vars=environment
    )
    bench = Bench(engines, options, model, folder / "weights", fault_file)
    requests = [a_request(seed) for seed in range(8)]
    answers = bench.generate(*requests)
    bench.healthy = sum(map(bench.mismatch, requests, answers)) / len(answers)
    yield bench
    engines.remove()
    ray.shutdown()


def test_engine_and_reference_agree_before_any_update(bench: Bench) -> None:
    # bfloat16 keeps 8 bits: logits near 4 are known to 0.016, logprobs to about as much.
    assert 0 < bench.healthy < 0.02


def test_rollout_logprobs_follow_the_weights_through_several_updates(bench: Bench) -> None:
    requests = [a_request(seed) for seed in range(8)]
    before = bench.generate(*requests)
    for _ in range(3):
        bench.change_weights(0.2)
        bench.sync()
        answers = bench.generate(*requests)
        mismatch = sum(map(bench.mismatch, requests, answers)) / len(answers)
        assert mismatch < 3 * bench.healthy
        assert {v for answer in answers for v in answer.weight_versions} == {bench.version}
    # The old answers under the new weights: what a sync that did nothing would have left.
    stale = sum(map(bench.mismatch, requests, before)) / len(before)
    assert stale > 10 * bench.healthy


def test_receipt_counts_every_tensor_and_both_uses_of_the_tied_embedding(bench: Bench) -> None:
    [receipt] = bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S).receipts
    assert receipt.num_checks == len(list(bench.model.named_parameters())) + 1
    assert receipt.version == bench.version
    assert receipt.worst_relative_error < 1e-3
    assert receipt.error == ""
    assert not list(bench.directory.glob("*receipt*"))


def test_scores_of_a_prompt_are_the_references(bench: Bench) -> None:
    token_ids = tuple(random.Random(0).choices(range(3, VOCAB_SIZE), k=200))
    bench.engines.score(token_ids, timeout_s=TIMEOUT_S)
    bench.change_weights(0.2)
    bench.sync()
    [scores] = bench.engines.score(token_ids, timeout_s=TIMEOUT_S)
    difference = (torch.tensor(scores) - bench.reference_logprobs(token_ids)).abs()
    assert len(scores) == len(token_ids) - 1
    assert difference.mean() < 3 * bench.healthy


def test_a_head_left_behind_is_caught_at_that_sync_by_name(bench: Bench) -> None:
    bench.change_weights(1e-3)
    bench.set_fault(kind="head left behind")
    with pytest.raises(WeightSyncError, match=r"lm_head\.weight.*relative error"):
        bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    bench.sync()


@pytest.mark.parametrize("learning_rate", [1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.2.self_attn.o_proj.weight",
        "model.layers.2.mlp.gate_proj.weight",
        "model.layers.3.mlp.up_proj.weight",
        "model.layers.3.mlp.down_proj.weight",
    ],
)
def test_one_layer_off_by_one_update_is_caught_at_that_sync_by_name(
    bench: Bench, name: str, learning_rate: float
) -> None:
    bench.set_fault(kind="nudge", name=name, learning_rate=learning_rate, num_rows=None)
    with pytest.raises(WeightSyncError, match=rf"version \d+.*{name} .*relative"):
        bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    bench.sync()


def test_a_norm_off_by_one_update_is_caught_by_name(bench: Bench) -> None:
    name = "model.layers.2.self_attn.k_norm.weight"
    # bfloat16 near 1 moves in steps of 0.004 to 0.008: a learning rate below that changes nothing.
    bench.set_fault(kind="nudge", name=name, learning_rate=8e-3, num_rows=None)
    with pytest.raises(WeightSyncError, match=name):
        bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    bench.sync()


def test_a_single_wrong_row_of_a_merged_layer_is_caught_by_name(bench: Bench) -> None:
    name = "model.layers.3.mlp.up_proj.weight"
    bench.set_fault(kind="nudge", name=name, learning_rate=1e-4, num_rows=1)
    with pytest.raises(WeightSyncError, match=rf"{name} .*\b1 of \d+ tensors"):
        bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    bench.sync()


def test_an_engine_with_wrong_weights_answers_nothing_until_an_update_succeeds(
    bench: Bench,
) -> None:
    bench.change_weights(1e-3)
    bench.set_fault(kind="head left behind")
    with pytest.raises(WeightSyncError):
        bench.engines.update_weights(bench.publish(), timeout_s=TIMEOUT_S)
    with pytest.raises(WeightSyncError, match=rf"version {bench.version}\b.*failed"):
        bench.generate(a_request())
    bench.sync()
    assert set(bench.generate(a_request())[0].weight_versions) == {bench.version}


@pytest.mark.parametrize("damage", ["wrong byte", "truncated", "missing"])
def test_a_damaged_file_is_refused_and_the_old_weights_go_on(bench: Bench, damage: str) -> None:
    bench.sync()
    [before] = bench.generate(a_request())
    trusted = bench.version
    bench.change_weights(0.2)
    manifest = bench.publish()
    path = Path(manifest.path)
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "wrong byte":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "truncated":
        path.write_bytes(data[:-100])
    with pytest.raises(WeightSyncError, match=rf"weights-{manifest.version}\.safetensors"):
        bench.engines.update_weights(manifest, timeout_s=TIMEOUT_S)
    [after] = bench.generate(a_request())
    assert after == before
    assert set(after.weight_versions) == {trusted}
    bench.sync()


def test_requests_in_flight_survive_an_update_and_a_new_one_shares_no_old_prefix(
    bench: Bench,
) -> None:
    async def run() -> tuple[Completion, list[Completion]]:
        client = bench.client()
        # The end-of-turn token may be drawn: of eight, some are still being written.
        requests = [a_request(seed, 1000) for seed in range(8)]
        tasks = [asyncio.create_task(client(r, Lane(group=0))) for r in requests]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(bench.sync)
        in_flight = [task for task in tasks if not task.done()]
        fresh = await client(a_request(8), Lane(group=0))
        return fresh, await asyncio.gather(*in_flight)

    bench.sync()
    bench.change_weights(0.5)
    fresh, survivors = asyncio.run(run())
    assert len(survivors) > 0
    for answer in survivors:
        assert set(answer.weight_versions) == {bench.version - 1, bench.version}
        assert list(answer.weight_versions) == sorted(answer.weight_versions)
    assert set(fresh.weight_versions) == {bench.version}
    assert bench.mismatch(a_request(8), fresh) < 3 * bench.healthy


def test_seeded_requests_have_equal_answers_in_another_order_of_arrival(bench: Bench) -> None:
    rng = random.Random(0)
    # Eight prompts above 2048, vLLM's usual number of tokens a step: in chunks, a request with a
    # seed kills the engine on CPU. All together are several steps' worth.
    lengths = [2500] * 8 + [rng.randrange(20, 300) for _ in range(120)]
    requests = [
        a_request(seed, 8, token_ids=tuple(rng.choices(range(3, VOCAB_SIZE), k=length)))
        for seed, length in enumerate(lengths)
    ]
    order = rng.sample(range(128), 128)

    async def run_scattered() -> list[Completion]:
        client = bench.client()

        async def later(position: int) -> Completion:
            await asyncio.sleep(position * 0.003)
            return await client(requests[order[position]], Lane(group=0))

        return await asyncio.gather(*map(later, range(128)))

    together = bench.generate(*requests)
    scattered = asyncio.run(run_scattered())
    differing = [i for i in range(128) if scattered[i].token_ids != together[order[i]].token_ids]
    assert not differing


def test_the_stop_token_is_part_of_the_answer_with_its_logprob(bench: Bench) -> None:
    [probe] = bench.generate(a_request(max_tokens=16))
    stop = probe.token_ids[5]
    first = probe.token_ids.index(stop)
    [answer] = bench.generate(a_request(max_tokens=16, stop_token_ids=(stop,)))
    assert answer.finish_reason == "stop"
    assert answer.token_ids == probe.token_ids[: first + 1]
    assert len(answer.rollout_logprobs) == first + 1


def test_an_answer_without_its_stop_token_is_cut_off_at_max_tokens(bench: Bench) -> None:
    [answer] = bench.generate(a_request(max_tokens=7))
    assert answer.finish_reason == "length"
    assert len(answer.token_ids) == 7


def test_the_models_own_end_token_does_not_end_an_answer(bench: Bench) -> None:
    # Seeds enough that the model's configured end token is drawn somewhere.
    answers = bench.generate(*(a_request(seed, 200) for seed in range(32)))
    assert any(STOP_TOKEN_ID in answer.token_ids[:-1] for answer in answers)


def test_logprobs_are_of_temperature_one_whatever_was_sampled_with(bench: Bench) -> None:
    request = a_request(temperature=0.3, top_p=0.5)
    [answer] = bench.generate(request)
    assert bench.mismatch(request, answer) < 3 * bench.healthy


def test_the_engines_clock_runs_only_while_a_request_does(bench: Bench) -> None:
    [before] = bench.engines.stats(timeout_s=TIMEOUT_S)
    start = time.monotonic()
    bench.generate(*(a_request(seed, 32) for seed in range(4)))
    elapsed = time.monotonic() - start
    [after] = bench.engines.stats(timeout_s=TIMEOUT_S)
    assert after.num_generated_tokens - before.num_generated_tokens == 4 * 32
    assert after.num_requests - before.num_requests == 4
    assert 0 < after.seconds_running - before.seconds_running <= elapsed


def test_an_engine_at_rest_is_left_alone_and_answers_when_it_is_woken(bench: Bench) -> None:
    """On a CPU nothing is given back: what is shown is who waits for what."""
    [before] = bench.engines.stats(timeout_s=TIMEOUT_S)
    bench.engines.rest(timeout_s=TIMEOUT_S)
    bench.engines.rest(timeout_s=TIMEOUT_S)  # twice does no harm
    with ThreadPoolExecutor(max_workers=1) as other:
        asked = other.submit(bench.generate, a_request())
        # Longer than the time after which an engine with work and without a token is ended.
        done, _ = wait([asked], timeout=bench.options.stall_timeout_s + 3)
        assert not done
        bench.engines.wake(timeout_s=TIMEOUT_S)
        [answer] = asked.result(timeout=TIMEOUT_S)
    [after] = bench.engines.stats(timeout_s=TIMEOUT_S)
    assert after.engine_id == before.engine_id
    assert len(answer.token_ids) > 0


def test_a_prompt_that_does_not_fit_is_an_engine_error_and_harms_nobody(bench: Bench) -> None:
    with pytest.raises(EngineError, match=r"\b5000\b") as caught:
        bench.generate(a_request(token_ids=(5,) * 5000))
    assert "\n" not in str(caught.value)
    assert len(bench.generate(a_request())) == 1


def test_a_client_that_waits_too_long_names_the_engine(bench: Bench) -> None:
    async def run() -> None:
        client = bench.client(timeout_s=1.0)
        await client(a_request(), Lane(group=0))

    bench.set_fault(kind="hold")
    with ThreadPoolExecutor(max_workers=1) as background:
        manifest = bench.publish()
        update = background.submit(bench.engines.update_weights, manifest, timeout_s=TIMEOUT_S)
        try:
            with pytest.raises(RemoteTimeout, match=r"test-policy-0.* 1 s"):
                asyncio.run(run())
        finally:
            bench.set_fault(kind="none")
        assert update.result(timeout=TIMEOUT_S).down == []


def core_process() -> psutil.Process:
    """Return the process in which vLLM computes, found below this one."""
    return processes_below(title="VLLM::EngineCore")[0]


def test_a_dead_core_is_noticed_and_the_new_one_has_the_current_weights(bench: Bench) -> None:
    bench.change_weights(0.2)
    bench.sync()
    core_process().kill()
    [answer] = bench.generate(a_request())  # the client waits for the new one
    assert set(answer.weight_versions) == {bench.version}
    assert bench.mismatch(a_request(), answer) < 3 * bench.healthy


def test_the_core_ends_with_a_replica_that_was_killed(bench: Bench) -> None:
    core = core_process()
    replica = core.parent()
    assert "PolicyDepl" in replica.cmdline()[0]
    os.kill(replica.pid, 9)
    core.wait(timeout=10)


def test_an_engine_that_cannot_start_is_reported_by_name_and_leaves_nothing(bench: Bench) -> None:
    options = replace(bench.options, model_dir="/no/such/model")
    with pytest.raises(EngineError, match=r"broken-policy-0.*/no/such/model") as caught:
        deploy_engines("broken", options, ResourcesConfig(), weights_directory=str(bench.directory))
    assert "\n" not in str(caught.value)
    assert "broken-policy-0" not in ray_serve.status().applications


def test_removal_leaves_another_runs_applications_alone(bench: Bench) -> None:
    @ray_serve.deployment
    class Other:
        pass

    ray_serve.run(Other.bind(), name="another-run", route_prefix=None)
    bench.engines.remove()
    assert list(ray_serve.status().applications) == ["another-run"]
