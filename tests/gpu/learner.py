"""Part one: torch and DeepSpeed alone. Probe, attention, logprobs, updates, weights in transit."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from cast_ray.learner.attention import _whole, _windowed, packed_attention
from cast_ray.learner.learner import Learner
from cast_ray.learner.logprobs import token_logprobs
from cast_ray.learner.settings import UpdateStats
from cast_ray.rollout.trajectory import BATCH_SCHEMA
from cast_ray.weights.device import on_device
from cast_ray.weights.group import open_store
from cast_ray.weights.manifest import publish_weights, read_weights
from serve.weights.probe import compare_product, probe_of, settled, whole_sums
from tests.gpu.common import (
    DEVICE,
    ON_GPU,
    check,
    needs_gpu,
    peak_gib,
    report,
    reset_peak,
    seconds,
    size,
)
from tests.support.learner_reference import (
    DAPO,
    ROWS,
    SGD_LR,
    NaivePolicy,
    ProbeLearner,
    build_policy,
    build_table,
    relative_error,
    settings_for,
)

PART = "learner"
ResultT = TypeVar("ResultT")
BF16_PEAK_TFLOPS = 989.0
"""Of an H100 SXM, dense, by its data sheet."""
HIDDEN, VOCABULARY = size(2560, 64), size(151_936, 512)
LAYERS = {
    "q_proj": (4096, 2560),
    "o_proj": (2560, 4096),
    "up_proj": (9728, 2560),
    "down_proj": (2560, 9728),
    "head": (151_936, 2560),
}
"""Outputs and inputs of Qwen3-4B's layers."""


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Draw normal bfloat16 numbers on the device."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=DEVICE).bfloat16()


@check(PART)
def probe_of_a_healthy_layer() -> None:
    """The rounding of the layer probe, whose bound is from CPUs, in both modes of cuBLAS."""
    matmul = torch.backends.cuda.matmul
    for reduced in (False, True):
        worst = 0.0
        for outputs, inputs in LAYERS.values():
            weight = drawn(size(outputs, outputs // 32), size(inputs, inputs // 16)) * 0.02
            probe = probe_of(weight.shape[1], DEVICE)
            matmul.allow_bf16_reduced_precision_reduction = reduced
            output = functional.linear(probe.rows.to(weight.dtype), weight)
            with whole_sums():
                [found] = settled([compare_product("w", "w", probe, output, weight)])
            assert found.allowed_error, "the one-hot rows are not exact"
            worst = max(worst, found.relative_error)
        report(
            f"rounding of the layer probe, reduced-precision sums {'on' if reduced else 'off'}",
            worst,
            "relative",
            at_most=None if reduced else found.allowed_error,
        )
    matmul.allow_bf16_reduced_precision_reduction = False


@check(PART)
def attention_of_packed_sequences() -> None:
    """Packed attention in bfloat16 against one head at a time in float64."""
    heads, kv_heads, dim = 32, 8, 128
    for count, length in ((8, size(4096, 96)), (2, size(16_384, 160))):
        total = count * length
        query = drawn(1, heads, total, dim, seed=1)
        key, value = (drawn(1, kv_heads, total, dim, seed=seed) for seed in (2, 3))
        found = packed_attention(query, key, value, (length,) * count, window=None)
        errors, norms = 0.0, 0.0
        for head in (0, heads // 2, heads - 1):
            part = slice((count - 1) * length, total)
            own = (
                x[0, h, part].double()
                for x, h in zip((query, key, value), (head, head // 4, head // 4), strict=True)
            )
            one_q, one_k, one_v = own
            for begin in range(0, length, 2048):
                scores = one_q[begin : begin + 2048] @ one_k.T / dim**0.5
                rows = torch.arange(begin, begin + len(scores), device=DEVICE)
                scores[rows[:, None] < torch.arange(length, device=DEVICE)] = -torch.inf
                expected = scores.softmax(-1) @ one_v
                difference = found[0, head, part][begin : begin + 2048].double() - expected
                errors += difference.square().sum().item()
                norms += expected.square().sum().item()
        name = f"packed attention, {count} x {length} tokens"
        report(f"{name}, error", (errors / norms) ** 0.5, "relative", at_most=1e-2)
        took = seconds(
            lambda q=query, k=key, v=value, n=count, s=length: packed_attention(
                q, k, v, (s,) * n, window=None
            )
        )
        flops = 2 * count * length**2 * heads * dim
        report(f"{name}, forward", flops / took / 1e12, "TFLOP/s")


@check(PART)
def attention_in_one_kernel() -> None:
    """The kernel for packed rows against one sequence at a time: values, gradients, time."""
    needs_gpu("attention in one kernel")
    heads, kv_heads, dim = 32, 8, 128
    lengths = (2048,) * 12 + (1, 1000, 4000)
    parts = [drawn(1, n, sum(lengths), dim, seed=n).requires_grad_() for n in (heads, kv_heads)]
    query, key = parts
    value = drawn(1, kv_heads, sum(lengths), dim, seed=3).requires_grad_()

    for window in (None, 512):
        found: dict[str, list[torch.Tensor]] = {}
        for name, attend in (("one kernel", packed_attention), ("each alone", one_at_a_time)):
            for tensor in (query, key, value):
                tensor.grad = None
            attended = attend(query, key, value, lengths, window=window)
            attended.float().square().mean().backward()
            grads = [tensor.grad.float() for tensor in (query, key, value)]  # type: ignore[union-attr]
            found[name] = [attended.detach().float(), *grads]
        pairs = zip(*found.values(), strict=True)
        error = max(((a - b).norm() / b.norm()).item() for a, b in pairs)
        report(f"attention in one kernel, window {window}", error, "relative", at_most=2e-2)
        alone, together = (
            seconds(lambda f=f, w=window: f(query, key, value, lengths, window=w))
            for f in (one_at_a_time, packed_attention)
        )
        report(f"its time, window {window}, against each alone", alone / together, "times faster")


def one_at_a_time(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: tuple[int, ...],
    *,
    window: int | None,
) -> torch.Tensor:
    """The way of CPUs, on this device."""
    if window is None:
        return _whole(query, key, value, lengths, scale=None)
    return _windowed(query, key, value, lengths, window=window, scale=None)


@check(PART)
def logprobs_over_the_vocabulary() -> None:
    """Chunked logprobs and their gradient against plain log-softmax, and the memory they take."""
    tokens = size(16_384, 64)
    hidden = drawn(tokens, HIDDEN).requires_grad_()
    weight = (drawn(VOCABULARY, HIDDEN, seed=1) * 0.02).requires_grad_()
    ids = torch.randint(0, VOCABULARY, (tokens,), device=DEVICE)

    def ours() -> torch.Tensor:
        logprobs, _ = token_logprobs(hidden, weight, None, ids, tokens_per_chunk=size(2048, 16))
        hidden.grad = weight.grad = None
        logprobs.mean().backward()
        return logprobs

    reset_peak()
    found = ours()
    report(f"logprobs of {tokens} tokens over {VOCABULARY}, peak", peak_gib(), "GiB", at_most=20)
    few = slice(0, 512)
    logits = functional.linear(hidden[few], weight).float()
    expected = logits.log_softmax(-1).gather(1, ids[few, None])[:, 0]
    error = (found[few] - expected).abs().max().item()
    report("logprobs against plain log-softmax", error, "nats", at_most=0.02)
    report("logprobs with gradient", tokens / seconds(ours), "tokens/s")


def in_a_process(function: Callable[..., ResultT], *arguments: object) -> ResultT:
    """Run a function in a new process: DeepSpeed keeps state of the first learner of a process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(function, *arguments).result(timeout=500)


def one_update(
    folder: Path, changes: dict[str, Any], table: pa.Table, rows: np.ndarray, start: np.ndarray
) -> tuple[dict[str, np.ndarray], UpdateStats]:
    """Return the gradient of one update, read off the weights, and its figures."""
    store = open_store("127.0.0.1")
    learner = ProbeLearner(settings_for(folder, **changes), master_port=store.port)

    def weights() -> dict[str, np.ndarray]:
        state = learner.state_for_sync()
        return {name: value.float().cpu().numpy().copy() for name, value in state.items()}

    before = weights()
    stats = learner.update(table, rows, DAPO, start)
    after = weights()
    return {name: (before[name] - after[name]) / SGD_LR for name in before}, stats


@check(PART)
def update_against_the_naive_loop() -> None:
    """One update of one rank at every ZeRO stage and with LoRA, against one token after another."""
    table = build_table()
    with tempfile.TemporaryDirectory() as place:
        folder = build_policy(Path(place) / "policy")
        naive = NaivePolicy(folder)
        start = naive.logprobs(table).astype(np.float32)
        expected, loss = naive.gradient(table, start, DAPO)
        for stage in (0, 1, 2, 3):
            changes = {"zero_stage": stage}
            gradient, stats = in_a_process(one_update, folder, changes, table, ROWS, start)
            name = f"update at ZeRO {stage}"
            report(
                f"{name}, gradient", relative_error(gradient, expected), "relative", at_most=1e-3
            )
            report(f"{name}, loss", abs(stats.loss / loss - 1), "relative", at_most=1e-4)
        changes = {"lora_rank": 4, "lora_alpha": 8.0}
        _, stats = in_a_process(one_update, folder, changes, table, ROWS, start)
        report("update with LoRA, loss", abs(stats.loss / loss - 1), "relative", at_most=1e-4)


def speed_of_updates(
    folder: Path, changes: dict[str, Any], table: pa.Table, start: np.ndarray
) -> tuple[float, float, int]:
    """Return seconds of an update, the peak of memory in GiB, and the number of parameters."""
    settings = settings_for(folder, optimizer="adamw", **changes)
    store = open_store("127.0.0.1")
    learner = Learner(settings, master_port=store.port)
    parameters = sum(parameter.numel() for parameter in learner._policy.parameters())
    reset_peak()
    rows = np.arange(table.num_rows)
    took = seconds(lambda: learner.update(table, rows, DAPO, start), rounds=2)
    return took, peak_gib(), parameters


@check(PART)
def updates_of_a_large_model() -> None:
    """Tokens per second, memory and model-FLOPs utilisation of a 1.7 B learner, and its offload."""
    vocabulary = size(151_936, 128)
    tokens, length = size(32_768, 480), size(4096, 60)
    rng = np.random.default_rng(0)
    count = tokens // length
    columns = {
        "token_ids": [rng.integers(0, vocabulary, length) for _ in range(count)],
        "loss_mask": [np.ones(length, np.uint8) for _ in range(count)],
        "rollout_logprobs": [np.full(length, -5.0) for _ in range(count)],
        "token_advantages": [rng.normal(size=length) for _ in range(count)],
    }
    schema = pa.schema([BATCH_SCHEMA.field(name) for name in columns])
    table = pa.table({k: pa.array(list(v)) for k, v in columns.items()}).cast(schema)
    start = np.full(tokens, -5.0, np.float32)
    shared = {
        "dtype": "bfloat16",
        "lr": 1e-6,
        "zero_stage": 2,
        "gradient_checkpointing": True,
        "tokens_per_micro_batch": size(16_384, 180),
        "timeout_s": 300.0,
    }
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        folder = large_policy(Path(place), vocabulary)
        for offload in (False, True):
            changes = shared | {"offload_optimizer": offload}
            took, peak, parameters = in_a_process(speed_of_updates, folder, changes, table, start)
            name = f"update of {parameters / 1e9:.2f} B parameters"
            name += ", optimizer offloaded" if offload else ""
            report(name, tokens / took, "tokens/s")
            if ON_GPU:
                report(f"{name}, peak", peak, "GiB")
                flops = 6 * parameters * tokens / took / 1e12
                report(f"{name}, utilisation", flops / BF16_PEAK_TFLOPS, "share")


def large_policy(folder: Path, vocabulary: int) -> Path:
    """Save a random Qwen3 of 1.7 B parameters in bfloat16; a small one on CPU."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=size(2048, 48),
        intermediate_size=size(6144, 96),
        num_hidden_layers=size(28, 2),
        num_attention_heads=size(16, 4),
        num_key_value_heads=size(8, 2),
        head_dim=size(128, 12),
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    )
    with torch.device(DEVICE):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.cpu().save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


@check(PART)
def weights_from_the_device_and_back() -> None:
    """Publishing from the device and reading into it: the same bits, and how fast."""
    rows = size(500_000, 4000)
    state = {f"layer.{i}": drawn(rows, 1000, seed=i) for i in range(8)}
    num_bytes = sum(tensor.nbytes for tensor in state.values())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for version in range(1, 6):
            started = time.perf_counter()
            manifest = publish_weights(state, directory=place, version=version)
            took = time.perf_counter() - started
            if version in (2, 5):
                name = "publishing, a new file" if version == 2 else "publishing, over an old file"
                report(name, num_bytes / took / 1e9, "GB/s")
        started = time.perf_counter()
        host = read_weights(manifest)
        report("verifying", num_bytes / (time.perf_counter() - started) / 1e9, "GB/s")
        took = seconds(lambda: on_device(host, manifest.tensors, DEVICE), rounds=1)
        report("to the device", num_bytes / max(took, 1e-9) / 1e9, "GB/s")
        arrived = on_device(host, manifest.tensors, DEVICE)
        wrong = sum(not torch.equal(arrived[name], tensor) for name, tensor in state.items())
        report("tensors that arrived changed", wrong, "tensors", at_most=0)
