"""Part two: vLLM without Ray. Speed, scores, weight updates, graphs, sleep, a shared GPU."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from cast_ray.config.train import EngineConfig
from cast_ray.rollout.generate import Completion, GenerateRequest
from cast_ray.weights.manifest import publish_weights
from serve.engine.deployment import ENGINE_ENVIRONMENT
from serve.engine.engine import PolicyEngine
from serve.messages import EngineOptions
from tests.gpu.common import DEVICE, check, needs_gpu, report, size, wait
from tests.gpu.learner import in_a_process

PART = "engine"
VOCABULARY = size(151_936, 512)
PROMPT_TOKENS, ANSWER_TOKENS = size(512, 40), size(256, 24)
TOKENS = tuple(range(10, 10 + size(1000, 90)))
TIMEOUT_S = 240.0
SHAPE: dict[str, Any] = {
    "hidden_size": size(2560, 128),
    "intermediate_size": size(9728, 384),
    "num_hidden_layers": size(36, 3),
    "num_attention_heads": size(32, 4),
    "num_key_value_heads": size(8, 2),
    "head_dim": size(128, 32),
}
"""Of Qwen3-4B; on CPU of a model of a million weights."""

Figures = dict[str, tuple[float, str]]


def save_model(folder: Path) -> None:
    """Save random weights that are far from uniform, so that a wrong layer moves a logprob."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        initializer_range=0.05,
        eos_token_id=2,
        **SHAPE,
    )
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.cpu().save_pretrained(folder)


def a_request(seed: int, max_tokens: int = ANSWER_TOKENS) -> GenerateRequest:
    prompt = [(seed * 7 + i * 13) % (VOCABULARY - 10) + 3 for i in range(PROMPT_TOKENS)]
    return GenerateRequest(
        token_ids=tuple(prompt),
        max_tokens=max_tokens,
        temperature=1.0,
        top_p=1.0,
        seed=seed,
        stop_token_ids=(VOCABULARY - 1,),
    )


class EngineHere:
    """An engine in this process."""

    def __init__(self, folder: Path, *, can_rest: bool = False, **vllm: Any) -> None:
        os.environ |= ENGINE_ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
        self._loop = asyncio.new_event_loop()
        options = EngineOptions(
            engine=EngineConfig(max_num_seqs=128, kv_cache_gib=size(16, 1) / 4, vllm=vllm),
            model_dir=str(folder),
            max_model_len=4096,
            seed=0,
            stall_timeout_s=120,
            probe_timeout_s=60,
            can_rest=can_rest,
        )
        self.engine: PolicyEngine = self.run(PolicyEngine.start(options))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))

    def answers(self, *requests: GenerateRequest) -> list[Completion]:
        async def gathered() -> list[Any]:
            return await asyncio.gather(*map(self.engine.answer, requests))

        found = self.run(gathered())
        assert all(isinstance(one, Completion) for one in found), found
        return found


def reference_scores(folder: Path, tokens: tuple[int, ...]) -> torch.Tensor:
    """Return what transformers says of tokens, each given those before it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(DEVICE)
    with torch.no_grad():
        logits = model(torch.tensor([tokens], device=DEVICE)).logits[0, :-1].float()
    chosen = torch.tensor(tokens[1:], device=DEVICE)[:, None]
    return logits.log_softmax(-1).gather(1, chosen)[:, 0].cpu()


class Told(dict[str, tuple[float, str]]):
    """Figures that are printed as they are found: a check that ends later has not lost them."""

    def __setitem__(self, what: str, figure: tuple[float, str]) -> None:
        super().__setitem__(what, figure)
        print(f"# {what}: {figure[0]:.4g} {figure[1]}", flush=True)


def play(folder: Path, vllm: dict[str, Any]) -> Figures:
    """Measure an engine of its own: answers, scores, updates, also with requests in flight."""
    started = time.perf_counter()
    here = EngineHere(folder, **vllm)
    found: Figures = Told()
    found["start"] = (time.perf_counter() - started, "s")
    for count in (size(32, 4), size(128, 16)):
        requests = [a_request(seed) for seed in range(count)]
        here.answers(*requests)
        started = time.perf_counter()
        answers = here.answers(*requests)
        tokens = sum(len(answer.token_ids) for answer in answers)
        found[f"{count} requests"] = (tokens / (time.perf_counter() - started), "tokens/s")
    expected = reference_scores(folder, TOKENS)
    scores = torch.tensor(here.run(here.engine.score(TOKENS)))
    found["scores against transformers"] = ((scores - expected).abs().mean().item(), "nats")

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                0.2 * parameter.float().std().nan_to_num(0.1) * torch.randn_like(parameter)
            )
    changed = folder.parent / "changed"
    model.save_pretrained(changed)
    manifest = publish_weights(
        dict(model.named_parameters()), directory=folder.parent / "weights", version=1
    )

    async def update_in_flight() -> tuple[list[Any], Any, float]:
        long = [a_request(seed, size(600, 200)) for seed in range(8)]
        running = [asyncio.create_task(here.engine.answer(request)) for request in long]
        await asyncio.sleep(size(2, 1) / 2)
        begun = time.perf_counter()
        receipt = await here.engine.weights.update(manifest, timeout_s=TIMEOUT_S)
        took = time.perf_counter() - begun
        return await asyncio.gather(*running), receipt, took

    in_flight, receipt, took = here.run(update_in_flight())
    found["update with requests in flight"] = (took, "s")
    found["its check"] = (receipt.seconds_check, "s")
    found["its largest error"] = (receipt.worst_relative_error, "relative")
    found["parameters that it moved"] = (receipt.num_moved, "parameters")
    versions = [set(answer.weight_versions) for answer in in_flight]
    found["answers with tokens of both versions"] = (sum(v == {0, 1} for v in versions), "answers")
    ordered = all(list(a.weight_versions) == sorted(a.weight_versions) for a in in_flight)
    found["answers whose versions fall back"] = (float(not ordered), "answers")
    expected = reference_scores(changed, TOKENS)
    scores = torch.tensor(here.run(here.engine.score(TOKENS)))
    found["new scores against transformers"] = ((scores - expected).abs().mean().item(), "nats")
    here.engine.shutdown()
    return found


BOUNDS: dict[str, dict[str, float]] = {
    "scores against transformers": {"at_most": 0.05},
    "new scores against transformers": {"at_most": 0.05},
    "answers with tokens of both versions": {"at_least": 1},
    "answers whose versions fall back": {"at_most": 0},
    "its largest error": {"at_most": 1e-3},
}


def measured(name: str, work: Callable[..., Figures], *arguments: object) -> None:
    """Run some work on a new model in a process of its own, and report its figures."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        folder = Path(place) / "model"
        in_a_process(save_model, folder)
        for what, (figure, unit) in in_a_process(work, folder, *arguments).items():
            report(f"{name}: {what}", figure, unit, **BOUNDS.get(what, {}))


@check(PART)
def engine_layer_by_layer() -> None:
    measured("engine, eager", play, {"enforce_eager": True})


@check(PART)
def engine_with_graphs() -> None:
    needs_gpu("CUDA graphs")
    measured("engine, graphs", play, {})


@check(PART)
def engine_without_asynchronous_scheduling() -> None:
    needs_gpu("CUDA graphs")
    measured("engine, graphs, synchronous", play, {"async_scheduling": False})


def sleep(folder: Path) -> Figures:
    """Measure what an engine frees when it sleeps, and whether it answers the same afterwards."""
    here = EngineHere(folder, can_rest=True)
    requests = [a_request(seed) for seed in range(8)]
    before = here.answers(*requests)
    free_before, _ = torch.cuda.mem_get_info()
    started = time.perf_counter()
    here.run(here.engine.weights.rest())
    asleep = time.perf_counter() - started
    free_asleep, _ = torch.cuda.mem_get_info()
    started = time.perf_counter()
    here.run(here.engine.weights.wake())
    awake = time.perf_counter() - started
    after = here.answers(*requests)
    same = sum(a.token_ids == b.token_ids for a, b in zip(before, after, strict=True))
    here.engine.shutdown()
    return {
        "freed": ((free_asleep - free_before) / 2**30, "GiB"),
        "falls asleep": (asleep, "s"),
        "wakes": (awake, "s"),
        "same answers afterwards": (same, "of 8"),
    }


@check(PART)
def engine_that_sleeps() -> None:
    needs_gpu("sleep and wake")
    measured("sleeping engine", sleep)


def beside(folder: Path) -> Figures:
    """Start an engine on a card of which more than a third is taken."""
    taken = torch.empty(30 * 2**30, dtype=torch.uint8, device=DEVICE)
    wait()
    here = EngineHere(folder)
    answers = here.answers(a_request(0))
    here.engine.shutdown()
    return {"tokens": (len(answers[0].token_ids), f"beside {taken.nbytes / 2**30:.0f} GiB")}


@check(PART)
def engine_beside_a_learner() -> None:
    needs_gpu("engine and learner on one GPU")
    measured("engine on a shared card", beside)
