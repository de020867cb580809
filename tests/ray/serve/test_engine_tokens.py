"""One real engine without Ray: which weights wrote a token, what is refused, what is counted.

A start costs half a minute, so all tests share one engine, in one event loop, and come in order.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import Qwen3ForCausalLM

from cast_ray.config.train import EngineConfig
from cast_ray.errors import EngineError
from cast_ray.rollout.generate import Completion, Refusal
from cast_ray.weights.manifest import WeightManifest, publish_weights
from serve.engine.deployment import ENGINE_ENVIRONMENT
from serve.messages import EngineOptions
from tests.support.tiny_model import PROMPT, VOCAB_SIZE, a_request, build_tiny_model

pytestmark = pytest.mark.ray

UPDATE_TIMEOUT_S = 12.0


@dataclass
class Bench:
    """The engine under test, the loop it lives in, and a learner's stand-in."""

    engine: Any  # PolicyEngine: vLLM is imported only where its environment is set
    runner: asyncio.Runner
    model: Qwen3ForCausalLM
    directory: Path
    version: int = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def publish_changed(self) -> WeightManifest:
        """Publish weights that have little to do with the present ones."""
        self.version += 1
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.ndim > 1:
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.copy_((parameter + parameter.float().std() * noise) / 2**0.5)
        state = dict(self.model.named_parameters())
        return publish_weights(state, directory=self.directory, version=self.version)

    async def update(self, manifest: WeightManifest) -> None:
        await self.engine.weights.update(manifest, timeout_s=20)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("engine_tokens")
    model = build_tiny_model(folder / "model", seed=0)
    # Chunks of 8 answers: a step's outputs are worked off in several, as with hundreds of requests.
    environment = {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    environment["VLLM_V1_OUTPUT_PROC_CHUNK_SIZE"] = "8"
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        for name, value in environment.items():
            patch.setenv(name, value)
        from serve.engine.engine import PolicyEngine

        engine = runner.run(
            PolicyEngine.start(
                EngineOptions(
                    engine=EngineConfig(
                        max_num_seqs=64,
                        update_timeout_s=UPDATE_TIMEOUT_S,
                        vllm={"max_logprobs": 7},
                    ),
                    model_dir=str(folder / "model"),
                    max_model_len=4096,
                    seed=0,
                    stall_timeout_s=2,
                    probe_timeout_s=10,
                )
            )
        )
        yield Bench(engine, runner, model, folder / "weights")
        engine.shutdown()


def test_an_option_of_the_open_section_reaches_vllm(bench: Bench) -> None:
    assert bench.engine._llm.model_config.max_logprobs == 7


def copy_of(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    copy = Qwen3ForCausalLM(model.config).to(torch.bfloat16).eval()
    copy.load_state_dict(model.state_dict())
    return copy


def logprobs_of(model: Qwen3ForCausalLM, token_ids: tuple[int, ...]) -> torch.Tensor:
    """Return ``[L - 1]`` logprobs of tokens 1 .. L-1 under one set of weights."""
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]


def logprobs_over_a_change(
    old: Qwen3ForCausalLM, new: Qwen3ForCausalLM, token_ids: tuple[int, ...], num_old: int
) -> torch.Tensor:
    """Return ``[L - num_old]`` logprobs of the tokens after the first ``num_old``, by new weights.

    The last old token is the first one that the new weights read; before it, the old weights'
    keys and values stay.
    """
    with torch.no_grad():
        cache = old(torch.tensor([token_ids[: num_old - 1]]), use_cache=True).past_key_values
        rest = torch.tensor([token_ids[num_old - 1 :]])
        logits = new(rest[:, :-1], past_key_values=cache).logits[0].float()
    return logits.log_softmax(-1).gather(1, rest[0, 1:, None])[:, 0]


def test_each_token_in_flight_over_an_update_has_the_version_that_wrote_it(bench: Bench) -> None:
    async def run(manifest: WeightManifest) -> list[Completion]:
        tasks = []
        for seed in range(48):
            tasks.append(asyncio.create_task(bench.engine.answer(a_request(seed, 300))))
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.2)
        await bench.update(manifest)
        return await asyncio.gather(*tasks)

    old = copy_of(bench.model)
    answers = bench.run(run(bench.publish_changed()))
    over = [answer for answer in answers if len(set(answer.weight_versions)) == 2]
    # Some are over before the update: the end-of-turn token may be drawn.
    assert len(over) >= 24
    before_error, after_error, edge_errors, stale = [], [], [], []
    for answer in over:
        assert len(answer.weight_versions) == len(answer.token_ids)
        count = answer.weight_versions.count(bench.version - 1)
        rest = len(answer.token_ids) - count
        assert answer.weight_versions == (bench.version - 1,) * count + (bench.version,) * rest
        conversation = PROMPT + answer.token_ids
        rollout = torch.tensor(answer.rollout_logprobs)
        by_old = logprobs_of(old, conversation)[len(PROMPT) - 1 :]
        by_new = logprobs_over_a_change(old, bench.model, conversation, len(PROMPT) + count)
        before_error.append((rollout[:count] - by_old[:count]).abs())
        after_error.append((rollout[count:] - by_new).abs())
        edge_errors += [before_error[-1][-1], after_error[-1][0]]
        stale.append((rollout[count:] - by_old[count:]).abs())
    # bfloat16 keeps 8 bits: a logprob is known to 0.02 or so; other weights move it by 1.
    assert torch.cat(before_error).mean() < 0.02
    assert torch.cat(after_error).mean() < 0.02
    assert torch.cat(stale).mean() > 0.5
    # The two tokens at the boundary, of all answers: one counted wrongly would be off by 1.
    assert max(edge_errors) < 0.15


def test_an_answer_that_ended_before_the_update_is_the_old_weights_alone(bench: Bench) -> None:
    async def run(manifest: WeightManifest) -> list[Completion]:
        short = [asyncio.create_task(bench.engine.answer(a_request(s, 2))) for s in range(20)]
        long = [asyncio.create_task(bench.engine.answer(a_request(s, 400))) for s in range(20)]
        await asyncio.sleep(0)
        # The short ones end while the pause is on its way: their tasks see it only afterwards.
        await bench.update(manifest)
        return await asyncio.gather(*short, *long)

    old = copy_of(bench.model)
    answers = bench.run(run(bench.publish_changed()))
    for answer in answers:
        versions = answer.weight_versions
        assert len(versions) == len(answer.token_ids)
        assert list(versions) == sorted(versions)
        assert set(versions) <= {bench.version - 1, bench.version}
        # Not so for the new weights: a request that waited has its prompt's keys and values from
        # the old ones.
        count = versions.count(bench.version - 1)
        by_old = logprobs_of(old, PROMPT + answer.token_ids)[len(PROMPT) - 1 :]
        error = (torch.tensor(answer.rollout_logprobs) - by_old).abs()[:count]
        assert count == 0 or error.max() < 0.15


def test_a_request_waits_for_the_weights_that_it_asks_for(bench: Bench) -> None:
    async def run(manifest: WeightManifest) -> Completion:
        request = a_request(min_weight_version=manifest.version)
        task = asyncio.create_task(bench.engine.answer(request))
        others = [await bench.engine.answer(a_request(seed)) for seed in range(3)]
        assert not task.done()
        assert {v for other in others for v in other.weight_versions} == {manifest.version - 1}
        await bench.update(manifest)
        return await task

    answer = bench.run(run(bench.publish_changed()))
    assert set(answer.weight_versions) == {bench.version}


def test_weights_that_never_come_are_named_after_the_update_time_out(bench: Bench) -> None:
    started = time.monotonic()
    wanted = bench.version + 5
    names = rf"version {bench.version}\b.* version {wanted}\b"
    with pytest.raises(EngineError, match=names):
        bench.run(bench.engine.answer(a_request(min_weight_version=wanted)))
    assert UPDATE_TIMEOUT_S <= time.monotonic() - started < UPDATE_TIMEOUT_S + 15


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token_ids": (5,) * 5000}, "5000.* longer than the maximum model length of 4096"),
        ({"token_ids": ()}, "cannot be empty"),
        ({"token_ids": (5, VOCAB_SIZE)}, "512"),
        ({"token_ids": (5, -1)}, "-1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"top_p": 1.5}, "top_p must be in"),
    ],
)
def test_a_bad_request_is_refused_alone(
    bench: Bench, changes: dict[str, object], reason: str
) -> None:
    async def run() -> dict[int, Completion | Refusal]:
        requests = [a_request(0), a_request(1, **changes), a_request(2)]
        return {i: one async for done in bench.engine.generate(requests) for i, one in done}

    before = bench.engine.stats
    answers = bench.run(run())
    assert isinstance(answers[0], Completion)
    assert isinstance(answers[2], Completion)
    refusal = answers[1]
    assert isinstance(refusal, Refusal)
    assert "\n" not in refusal.reason
    assert re.search(reason, refusal.reason)
    assert bench.engine.stats.num_refused - before.num_refused == 1


def test_figures_say_what_ran(bench: Bench) -> None:
    async def run() -> tuple[Any, Any, Any]:
        before = bench.engine.stats
        requests = [a_request(seed, 200) for seed in range(100)]
        tasks = [asyncio.create_task(bench.engine.answer(request)) for request in requests]
        while (during := bench.engine.stats).num_running < 64 or not during.num_waiting:
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        return before, during, bench.engine.stats

    started = time.monotonic()
    before, during, after = bench.run(run())
    elapsed = time.monotonic() - started
    assert before.engine_id == after.engine_id
    assert during.num_running == 64
    assert during.num_waiting > 0
    assert during.kv_usage > 0
    assert during.seconds_since_progress < 1
    assert after.num_requests - before.num_requests == 100
    assert 0 < after.seconds_running - before.seconds_running <= elapsed
    # 36 of 100 waited for a slot, each for about as long as the first 64 ran.
    assert after.seconds_queued - before.seconds_queued > 5 * (elapsed / 4)
    assert after.prefix_query_tokens - before.prefix_query_tokens == 100 * len(PROMPT)
    # All but one find the block of 32 that they share.
    assert after.prefix_hit_tokens - before.prefix_hit_tokens >= 90 * 32
    assert after.replica_pid == os.getpid()
    assert [psutil.Process(pid).ppid() for pid in after.core_pids] == [os.getpid()]
    assert after.replica_bytes > 50 * 2**20
    assert after.core_bytes > 200 * 2**20


def test_twenty_seconds_of_pause_and_1280_requests_are_healthy(bench: Bench) -> None:
    async def run() -> None:
        tasks = [asyncio.create_task(bench.engine.answer(a_request(s, 32))) for s in range(1280)]
        while not all(task.done() for task in tasks):
            started = time.monotonic()
            await bench.engine.check_health()
            assert time.monotonic() - started < 10
            await asyncio.sleep(0.2)
        # What an update does, for as long as one may take: nothing is asked meanwhile.
        bench.engine.weights._is_updating = True
        await bench.engine._llm.pause_generation(mode="keep", clear_cache=False)
        pause_end = time.monotonic() + 20
        while time.monotonic() < pause_end:
            await bench.engine.check_health()
            await asyncio.sleep(1)
        await bench.engine._llm.resume_generation()
        bench.engine.weights._is_updating = False
        await bench.engine.check_health()

    bench.run(run())


def test_an_idle_core_that_is_stopped_is_stalled_and_goes_on_when_continued(bench: Bench) -> None:
    async def run() -> None:
        [core] = map(psutil.Process, bench.engine.stats.core_pids)
        core.suspend()
        try:
            await asyncio.sleep(2.1)
            with pytest.raises(EngineError, match="stalled"):
                await bench.engine.check_health()
        finally:
            core.resume()
        await bench.engine.answer(a_request())
        await bench.engine.check_health()

    bench.run(run())


def test_a_busy_core_that_is_stopped_is_stalled(bench: Bench) -> None:
    async def run() -> None:
        [core] = map(psutil.Process, bench.engine.stats.core_pids)
        tasks = [asyncio.create_task(bench.engine.answer(a_request(s, 500))) for s in range(8)]
        await asyncio.sleep(0.3)
        core.suspend()
        try:
            await asyncio.sleep(2.1)
            with pytest.raises(EngineError, match="stalled"):
                await bench.engine.check_health()
        finally:
            core.resume()
        await asyncio.gather(*tasks)
        await bench.engine.check_health()

    bench.run(run())


def test_an_update_of_a_stopped_core_makes_the_engine_unhealthy(bench: Bench) -> None:
    async def run(manifest: WeightManifest) -> None:
        [core] = map(psutil.Process, bench.engine.stats.core_pids)
        core.suspend()
        try:
            with pytest.raises(EngineError, match=r"load.*weights.* 1 s\b"):
                await bench.engine.weights.update(manifest, timeout_s=1)
        finally:
            core.resume()
        with pytest.raises(EngineError, match="did not load"):
            await bench.engine.check_health()
        # Of the engine, not of its weights: its successor may answer, so it is asked again.
        with pytest.raises(EngineError, match="did not load"):
            await bench.engine.answer(a_request())

    bench.run(run(bench.publish_changed()))
