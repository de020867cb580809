"""One engine of two workers: each loads and proves its share, and a wrong rank is named.

The backend is that of broadcasts, which reads the file where nobody sends.
Keys and values have one head, so that both workers hold the same copy of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM

from cast_ray.config.train import EngineConfig
from cast_ray.errors import WeightSyncError
from cast_ray.rollout.generate import GenerateRequest
from cast_ray.weights.broadcast import WeightSender
from cast_ray.weights.manifest import WeightManifest, publish_weights
from serve.engine.deployment import ENGINE_ENVIRONMENT
from serve.engine.engine import PolicyEngine
from serve.messages import EngineOptions, WeightReceipt
from serve.weights.receipts import WeightRoute
from tests.support.installed import inject_fault, install_faulty_receiver
from tests.support.tiny_model import VOCAB_SIZE, build_tiny_model

pytestmark = pytest.mark.ray

TOKENS = tuple(range(10, 100))


@dataclass
class Pair:
    """An engine of two workers in this process's event loop, and a learner's stand-in."""

    loop: asyncio.AbstractEventLoop
    engine: PolicyEngine
    model: Qwen3ForCausalLM
    directory: Path
    fault_file: Path
    version: int = 0

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, timeout=60))

    def change_weights(self) -> None:
        generator = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.2 * parameter.float().std().nan_to_num(0.1) * noise)

    def publish(self) -> WeightManifest:
        self.version += 1
        state = dict(self.model.named_parameters())
        return publish_weights(state, directory=self.directory, version=self.version)

    def sync(self, **fault: object) -> WeightReceipt:
        inject_fault(self.fault_file, **(fault or {"kind": "none"}))
        return self.run(self.engine.weights.update(self.publish(), timeout_s=30))

    def broadcast(self, **fault: object) -> WeightReceipt:
        """Send new weights to both workers, from this process."""
        inject_fault(self.fault_file, **(fault or {"kind": "none"}))
        manifest = self.publish()
        sender = WeightSender(
            manifest,
            address="127.0.0.1",
            world_size=3,
            bucket_bytes=2**18,
        )
        route = WeightRoute(meeting=sender.meeting, first_rank=1)
        with ThreadPoolExecutor(max_workers=1) as background:
            background.submit(sender.send, timeout_s=20)
            return self.run(self.engine.weights.update(manifest, timeout_s=30, route=route))

    def mismatch(self) -> float:
        """Mean absolute logprob difference between the engine and Hugging Face."""
        with torch.no_grad():
            logits = self.model(torch.tensor([TOKENS])).logits[0, :-1].float()
        expected = logits.log_softmax(-1).gather(1, torch.tensor(TOKENS[1:])[:, None])[:, 0]
        found = torch.tensor(self.run(self.engine.score(TOKENS)))
        return (found - expected).abs().mean().item()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    model = build_tiny_model(folder / "model", seed=0, num_key_value_heads=1)
    environment, fault_file = install_faulty_receiver(folder)
    loop = asyncio.new_event_loop()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENGINE_ENVIRONMENT, "OMP_NUM_THREADS": "1", **environment}.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(folder / "plugin"))
        engine = loop.run_until_complete(
            PolicyEngine.start(
                EngineOptions(
                    engine=EngineConfig(
                        max_num_seqs=16,
                        kv_cache_gib=0.25,
                        tensor_parallel_size=2,
                        weight_backend="faulty_broadcast",
                    ),
                    model_dir=str(folder / "model"),
                    max_model_len=1024,
                    seed=0,
                    stall_timeout_s=60,
                    probe_timeout_s=20,
                )
            )
        )
        yield Pair(loop, engine, model, folder / "weights", fault_file)
        engine.shutdown()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def test_both_workers_compute_with_what_was_sent(pair: Pair) -> None:
    healthy = pair.mismatch()
    assert healthy < 0.02
    pair.change_weights()
    assert pair.mismatch() > 10 * healthy
    receipt = pair.sync()
    assert pair.mismatch() < 3 * healthy
    # Both workers compare every tensor, and the tied embedding as head too.
    assert receipt.num_checks == 2 * (len(list(pair.model.named_parameters())) + 1)


def test_answers_carry_the_version_after_an_update(pair: Pair) -> None:
    pair.sync()
    request = GenerateRequest(
        token_ids=TOKENS,
        max_tokens=8,
        temperature=1.0,
        top_p=1.0,
        seed=0,
        stop_token_ids=(VOCAB_SIZE - 1,),
    )
    answer = pair.run(pair.engine.answer(request))
    assert set(answer.weight_versions) == {pair.version}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("left behind", "relative error"),
        ("head left behind", r"lm_head\.weight.*relative error"),
        ("crash", "version .*a name that the model does not know"),
        ("silent", "version"),
    ],
)
def test_a_rank_that_went_wrong_is_named_and_the_next_update_mends_it(
    pair: Pair, rank: int, kind: str, message: str
) -> None:
    pair.change_weights()
    with pytest.raises(WeightSyncError, match=f"rank {rank}.*{message}"):
        pair.sync(kind=kind, rank=rank)
    with pytest.raises(WeightSyncError, match=rf"version {pair.version}\b.*failed"):
        pair.run(pair.engine.score(TOKENS))
    pair.sync()
    assert pair.mismatch() < 0.05


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
def test_one_layer_off_by_one_update_on_one_rank_is_caught_by_name(pair: Pair, name: str) -> None:
    with pytest.raises(WeightSyncError, match=rf"rank 1: .*{name} .*error"):
        pair.sync(kind="nudge", name=name, learning_rate=1e-5, num_rows=None, rank=1)
    pair.sync()


def test_both_workers_take_a_broadcast(pair: Pair) -> None:
    pair.change_weights()
    assert pair.mismatch() > 0.05
    receipt = pair.broadcast()
    assert pair.mismatch() < 0.05
    assert receipt.num_checks == 2 * (len(list(pair.model.named_parameters())) + 1)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_worker_refuses_of_a_broadcast_the_other_does_not_take(
    pair: Pair, rank: int
) -> None:
    before, trusted = pair.run(pair.engine.score(TOKENS)), pair.engine.stats.weight_version
    pair.change_weights()
    # The rank that refused is named, not the one that only heard of it.
    with pytest.raises(WeightSyncError, match=rf"^rank {rank}: .*version"):
        pair.broadcast(kind="flip", rank=rank)
    assert pair.run(pair.engine.score(TOKENS)) == before
    assert pair.engine.stats.weight_version == trusted
    pair.broadcast()
    assert pair.mismatch() < 0.05


def test_a_damaged_file_is_refused_by_both_and_the_old_weights_go_on(pair: Pair) -> None:
    pair.sync()
    before = pair.run(pair.engine.score(TOKENS))
    trusted = pair.engine.stats.weight_version
    manifest = pair.publish()
    path = Path(manifest.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightSyncError, match=r"rank 0: .*checksum"):
        pair.run(pair.engine.weights.update(manifest, timeout_s=30))
    assert pair.run(pair.engine.score(TOKENS)) == before
    assert pair.engine.stats.weight_version == trusted
    pair.sync()
