"""Starts vLLM, and says in one sentence why it does not start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch
from vllm.config import WeightTransferConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerFactory
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from cast_ray.errors import EngineError
from cast_ray.runs.remote_directories import sound_model
from serve.engine.first_error import one_line
from serve.engine.overheard import Overheard
from serve.engine.stats import EngineFigures, logger_of
from serve.engine.vllm_args import loadable, vllm_arguments
from serve.messages import EngineOptions

WORK_GIB = 3.0
"""What an engine needs of a GPU besides weights and cache: activations, graphs, CUDA itself. An
estimate, not measured."""


def start_vllm(options: EngineOptions, figures: EngineFigures) -> tuple[AsyncLLM, Overheard]:
    """Start vLLM's processes and load the model; also return what they write.

    Raises:
        EngineError: vLLM does not start; the message is its first error.
        ModelError: a file of the model is missing or damaged.
    """
    model_dir = sound_model(options.model_dir)
    share = _share_of_gpu(options, model_dir)
    loggers: list[StatLoggerFactory] = [logger_of(figures)]
    if options.engine.export_metrics:
        loggers.append(RayPrometheusStatLogger)
    with Overheard() as heard:
        try:
            arguments = engine_arguments(
                replace(options, model_dir=str(loadable(model_dir))), share
            )
            return AsyncLLM.from_engine_args(arguments, stat_loggers=loggers), heard
        except Exception as error:  # vLLM raises anything that a broken file makes it raise
            failure = error
    reason = heard.first_error() or one_line(f"{type(failure).__name__}: {failure}")
    raise EngineError(f"vLLM does not start with the model {model_dir}: {reason}") from failure


def _share_of_gpu(options: EngineOptions, model_dir: Path) -> float | None:
    """Return which share of its GPU an engine needs; None on CPU.

    vLLM demands its share free at the start, 92% unless it is told, although it gets the size of
    its cache in bytes.

    Raises:
        EngineError: the memory is not free. On CPU the kernel would kill vLLM without a message.
    """
    engine, gib = options.engine, 2**30
    files = model_dir.glob("*.safetensors")
    weights = sum(file.stat().st_size for file in files) / gib
    if current_platform.is_cpu():
        free, place = psutil.virtual_memory().available / gib, "this machine"
        check_fits(model_dir, weights, engine.kv_cache_gib, free, place)
        return None
    free, total = (number / gib for number in torch.cuda.mem_get_info())
    place = f"its GPU of {total:.1f} GiB"
    weights /= engine.tensor_parallel_size
    return check_fits(model_dir, weights, engine.kv_cache_gib, free, place, WORK_GIB) / total


def check_fits(
    model_dir: Path, weights: float, cache: float, free: float, place: str, work: float = 0.0
) -> float:
    """Return the GiB that an engine needs.

    Raises:
        EngineError: more than are free.
    """
    needed = weights + cache + work
    if needed > free:
        besides = f", {work:g} to compute with" if work else ""
        raise EngineError(
            f"the engine needs {needed:.1f} GiB of memory ({cache:g} for keys and values, "
            f"{weights:.1f} for the weights of {model_dir}{besides}) and {place} has "
            f"{free:.1f} GiB free: lower engine.kv_cache_gib, or use a smaller model"
        )
    return needed


def engine_arguments(options: EngineOptions, share_of_gpu: float | None = None) -> AsyncEngineArgs:
    """Return vLLM's arguments of a run's engine.

    Args:
        options: of the engine.
        share_of_gpu: that must be free at the start; None on CPU.

    Raises:
        ConfigError: an option of ``engine.vllm`` is unknown or must be set elsewhere.
    """
    own: dict[str, Any] = {}
    if share_of_gpu is not None:
        own["gpu_memory_utilization"] = share_of_gpu
    if options.engine.tensor_parallel_size > 1:
        # In a placement group vLLM would choose Ray's executor, which wants a bundle for each GPU.
        own["distributed_executor_backend"] = "mp"
    arguments = vllm_arguments(
        options.engine,
        max_model_len=options.max_model_len,
        seed=options.seed,
        on_cpu=current_platform.is_cpu(),
        model=options.model_dir,
        weight_transfer_config=WeightTransferConfig(backend=options.engine.weight_backend),
        enable_sleep_mode=options.can_rest,
        skip_tokenizer_init=True,
        disable_log_stats=True,  # vLLM's own lines and metrics; ``EngineFigures`` gets them anyway
        **own,
    )
    return AsyncEngineArgs(**arguments)
