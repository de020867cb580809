"""vLLM's engine arguments, the same for training's engines and for the served model.

What the configuration's open section ``engine.vllm`` says is merged last, so that an option of
vLLM needs no code here. Imports no vLLM: a driver checks the section before anything starts.
"""

from __future__ import annotations

import ast
import atexit
import difflib
import glob
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cast_ray.config.train import EngineConfig
from cast_ray.errors import ConfigError

MIN_BATCHED_TOKENS = 8192
"""Prompt tokens of one step on CPU, unless the longest conversation needs more."""

_KEYS = {
    "dtype": "engine.dtype",
    "max_model_len": "engine.max_model_len",
    "max_num_seqs": "engine.max_num_seqs",
    "kv_cache_memory_bytes": "engine.kv_cache_gib",
    "tensor_parallel_size": "engine.tensor_parallel_size",
    "weight_transfer_config": "engine.weight_backend",
    "pipeline_parallel_size": "engine.tensor_parallel_size",
    "data_parallel_size": "resources.engines",
    "enable_sleep_mode": "resources.share_gpu",
    "seed": "seed",
}
_REFUSED = {option: f"set {key} instead" for option, key in _KEYS.items()} | {
    "model": "set policy.path, or name another model to cast-ray serve",
    "model_weights": "set policy.path, or name another model to cast-ray serve",
    "served_model_name": "set it with cast-ray serve --name",
    "tokenizer": "engines take and return token ids",
    "skip_tokenizer_init": "engines take and return token ids",
    "logprobs_mode": "training needs the logprobs of the unmodified distribution",
    "generation_config": "the model's own sampling values would falsify the logprobs",
    "override_generation_config": "its sampling values would falsify the logprobs",
    "quantization": "every layer is compared bit by bit with the weights that were sent",
    "quantization_config": "every layer is compared bit by bit with the weights that were sent",
    "worker_cls": "weight updates need vLLM's own worker",
    "worker_extension_cls": "weight updates need vLLM's own worker",
    "disable_log_stats": "the run's metrics and the health check read vLLM's statistics",
    "trust_remote_code": "code that comes with a model is never executed",
}
"""Options that are not the user's to set in ``engine.vllm``, and why or where they are set."""


def vllm_arguments(
    engine: EngineConfig, *, max_model_len: int, seed: int, on_cpu: bool, **own: Any
) -> dict[str, Any]:  # Any: vLLM's arguments have many types
    """Return the keyword arguments of vLLM's ``AsyncEngineArgs``.

    Args:
        engine: the configuration's section.
        max_model_len: prompt and answer together, in tokens.
        seed: of the engine; requests bring their own.
        on_cpu: whether the engine computes on a CPU. On a GPU vLLM's defaults are right: prompts in
            chunks, CUDA graphs, asynchronous scheduling.
        own: what only this use of vLLM sets; overrides the shared arguments.

    Raises:
        ConfigError: an option of ``engine.vllm`` is unknown or must be set elsewhere.
    """
    check_vllm_options(engine.vllm)
    shared = {
        "dtype": engine.dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": engine.max_num_seqs,
        "kv_cache_memory_bytes": int(engine.kv_cache_gib * 1024**3),
        "seed": seed,
        "tensor_parallel_size": engine.tensor_parallel_size,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "trust_remote_code": False,
    }
    needed_on_cpu = {
        "block_size": 32,  # a multiple of it; smaller blocks would share more of a prompt
        # vLLM cannot combine seeds with prompts in chunks there: each prompt must fit one step.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_model_len, MIN_BATCHED_TOKENS),
        "enforce_eager": True,  # compiling takes minutes at each start
    }
    return shared | (needed_on_cpu if on_cpu else {}) | own | dict(engine.vllm)


def loadable(model_dir: Path) -> Path:
    """Return a path of a model directory that vLLM's loader does not take as a pattern.

    It looks for weights by ``glob``, to which ``[1]`` in a folder's name means another folder.
    """
    if glob.escape(str(model_dir)) == str(model_dir):
        return model_dir
    folder = Path(tempfile.mkdtemp(prefix="cast-ray-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    link = folder / "model"
    link.symlink_to(model_dir.absolute(), target_is_directory=True)
    return link


def check_vllm_options(options: Mapping[str, Any]) -> None:
    """Refuse an ``engine.vllm`` section that vLLM or this project would not accept.

    Unknown names can be found only where vLLM is installed.

    Raises:
        ConfigError: an option is unknown or must be set elsewhere.
    """
    for name in options:
        if name in _REFUSED:
            raise ConfigError(f"engine.vllm.{name} cannot be set: {_REFUSED[name]}")
    known = vllm_option_names() if options else frozenset()
    for name in options:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = "".join(f"; did you mean {_KEYS.get(k, f'engine.vllm.{k}')}?" for k in close)
            raise ConfigError(f"engine.vllm.{name}: vLLM has no engine argument {name}{hint}")


@cache
def vllm_option_names() -> frozenset[str]:
    """Return the fields of vLLM's ``AsyncEngineArgs``; empty where vLLM is not installed.

    Read from the source, because importing vLLM takes ten seconds and a gigabyte.
    """
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    source = Path(spec.submodule_search_locations[0], "engine", "arg_utils.py").read_text()
    return frozenset(
        field.target.id
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )
