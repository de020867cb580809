"""vLLM's start: its arguments, and one sentence where it fails.

The core starts in a process of its own. What goes wrong there is written to that process's
standard error, a hundred lines of it, and the caller is told to look above. So what the process
writes is overheard while vLLM starts, and its first error is the sentence.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psutil
from vllm.config import WeightTransferConfig
from vllm.config.model import ModelDType
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerFactory
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from cast_ray.errors import EngineError
from cast_ray.runs.remote_directories import localized
from serve.engine.first_error import first_error, one_line
from serve.engine.stats import EngineFigures, logger_of
from serve.messages import EngineOptions

MIN_BATCHED_TOKENS = 8192
"""Prompt tokens of one step, where the model's length does not ask for more."""
KEPT_BYTES = 2**20
"""Of what vLLM's processes write while they start, from the beginning: the first error counts."""


def start_vllm(options: EngineOptions, figures: EngineFigures) -> AsyncLLM:
    """Start vLLM's processes and load the model.

    Raises:
        EngineError: vLLM does not start; the message is its first error.
    """
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    options = {**options, "model_dir": str(localized(options["model_dir"]))}
    if not (Path(options["model_dir"]) / "config.json").is_file():
        raise EngineError(f"there is no config.json in {options['model_dir']}: no model to start")
    _check_memory(options)
    loggers: list[StatLoggerFactory] = [logger_of(figures)]
    if options["export_metrics"]:
        loggers.append(RayPrometheusStatLogger)
    with _overheard() as heard:
        try:
            return AsyncLLM.from_engine_args(engine_arguments(options), stat_loggers=loggers)
        except Exception as error:  # vLLM raises what a broken file makes it raise
            failure = error
    said = one_line(f"{type(failure).__name__}: {failure}")
    reason = first_error(heard.decode(errors="replace")) or said
    raise EngineError(
        f"vLLM does not start with the model {options['model_dir']}: {reason}"
    ) from failure


@contextmanager
def _overheard() -> Iterator[bytearray]:
    """Collect what this process and those that it starts write to standard output and error.

    It still goes where it went. Processes started within keep writing through us until they end.
    """
    heard = bytearray()
    source, sink = os.pipe()
    kept = [os.dup(1), os.dup(2)]

    def forward() -> None:
        while data := os.read(source, 2**16):
            heard.extend(data[: KEPT_BYTES - len(heard)])
            os.write(kept[1], data)
        os.close(source)
        os.close(kept[1])

    thread = threading.Thread(target=forward, name="overheard", daemon=True)
    thread.start()
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield heard
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        os.close(kept[0])
        # Ends at once when no process holds the pipe any more, as after a failure; else never.
        thread.join(timeout=0.5)


def _check_memory(options: EngineOptions) -> None:
    """Refuse what cannot fit, where vLLM would be ended by the kernel without a word."""
    if not current_platform.is_cpu():
        return  # vLLM itself measures a device's memory, and says so
    files = Path(options["model_dir"]).glob("*.safetensors")
    weights = sum(file.stat().st_size for file in files) / 2**30
    free = psutil.virtual_memory().available / 2**30
    needed = options["kv_cache_gib"] + weights
    if needed > free:
        raise EngineError(
            f"the engine needs {needed:.1f} GiB of memory ({options['kv_cache_gib']:g} for keys "
            f"and values, {weights:.1f} for the weights of {options['model_dir']}) and this "
            f"machine has {free:.1f} GiB free: lower engine.kv_cache_gib, or use a smaller model"
        )


def engine_arguments(options: EngineOptions) -> AsyncEngineArgs:
    """Return what vLLM is told, the same for every use of an engine."""
    return AsyncEngineArgs(
        model=options["model_dir"],
        dtype=cast(ModelDType, options["dtype"]),
        max_model_len=options["max_model_len"],
        max_num_seqs=options["max_num_seqs"],
        kv_cache_memory_bytes=int(options["kv_cache_gib"] * 1024**3),
        block_size=options["block_size"],
        seed=options["seed"],
        tensor_parallel_size=options["tensor_parallel_size"],
        weight_transfer_config=WeightTransferConfig(backend=options["weight_backend"]),
        # Seeds and prompts in chunks do not go together on CPU: each must fit one step.
        enable_chunked_prefill=False,
        max_num_batched_tokens=max(options["max_model_len"], MIN_BATCHED_TOKENS),
        enable_prefix_caching=True,
        enforce_eager=options.get("enforce_eager", True),
        enable_sleep_mode=options.get("can_rest", False),
        skip_tokenizer_init=True,
        generation_config="vllm",
        logprobs_mode="raw_logprobs",
        disable_log_stats=True,  # vLLM's own lines and metrics; ``EngineFigures`` is told anyway
    )
