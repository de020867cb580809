"""Seconds from the learner's weights to an engine's, and of a plain copy of the same bytes.

All parts take turns in one run, so that other load affects all of them. The timed calls are those
of a run: ``publish_weights`` as the learner's first rank calls it, ``read_weights`` as the engine's
worker does, and the update of a real engine through Ray Serve. Files overwrite the spare file of an
old version, as in a run from its third update on.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cast_ray.cluster.session import ray_session
from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import EngineConfig
from cast_ray.errors import EnvironmentSetupError
from cast_ray.training.workers import shared_memory_dir
from cast_ray.weights.file import map_file, tensors_in
from cast_ray.weights.manifest import WeightManifest, publish_weights, read_weights
from serve.engine.deployment import deploy_engines
from serve.messages import EngineOptions

NUM_ROUNDS = 5
NUM_TRANSPORT_ROUNDS = 3
_MEMORY_NEEDED = 12 * 10**9
_TIMEOUT_S = 300.0
_COPIES = 4
"""The transport is also measured with this many times the model's bytes."""
_CONFIG = Qwen3Config(
    vocab_size=4096,
    hidden_size=1536,
    intermediate_size=4608,
    num_hidden_layers=18,
    num_attention_heads=12,
    num_key_value_heads=4,
    head_dim=128,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    architectures=["Qwen3ForCausalLM"],
    dtype="bfloat16",
)
"""501 M parameters: 1.0 GB in bfloat16."""


def bench_sync() -> dict[str, float]:
    """Return seconds and GB/s of the parts of a sync, medians over rounds; a GB is 10^9 bytes.

    ``memcpy``: the C library's, one thread, to memory that is in use already; ``memcpy_fresh``: to
    memory that the kernel has yet to find. ``publish``: the learner's bfloat16 tensors to the file,
    checksum included; ``publish_float32`` rounds them on the way. ``read``: the file proved and
    mapped. ``move`` is publish and read together: from the learner's tensors to tensors in the
    engine's worker, proved on both sides. The engine then ``load``s: it copies each layer and
    packs it for its kernels; and ``check``s: it proves every layer by using it. ``sync`` is all of
    it as the driver sees it, ``publish_float32`` and the update through Ray Serve.

    Raises:
        EnvironmentSetupError: not enough memory.
    """
    if (available := psutil.virtual_memory().available) < _MEMORY_NEEDED:
        raise EnvironmentSetupError(
            f"bench sync needs {_MEMORY_NEEDED / 1e9:.0f} GB of memory, {available / 1e9:.1f} GB "
            f"are free: end other programs"
        )
    folder = shared_memory_dir(f"bench-{os.getpid()}")
    try:
        state = _made_up_state()
        small = TransportRounds(folder / "weights", state).figures(NUM_ROUNDS)
        synced = _engine_figures(folder, state)
        copied = {f"{name}.{i}": state[name] for i in range(_COPIES) for name in state}
        large = TransportRounds(folder / "large", copied).figures(NUM_TRANSPORT_ROUNDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        **small,
        **synced,
        "sync_s": small["publish_float32_s"] + synced["update_s"],
        **{f"large_{name}": value for name, value in large.items()},
        "goal_over_memcpy": 3.0,
        "num_cores": float(len(os.sched_getaffinity(0))),
    }


class TransportRounds:
    """Writes one state to files and reads it back, and copies it for comparison."""

    def __init__(self, folder: Path, state: dict[str, torch.Tensor]) -> None:
        self._folder, self._state = folder, state
        self._num_bytes = sum(tensor.nbytes for tensor in state.values())
        self._rounds: dict[str, list[float]] = {}
        # Four copies of the model go to a quarter of the memory, or they would not fit.
        unique = {tensor.data_ptr(): tensor.nbytes for tensor in state.values()}
        self._target = torch.zeros(sum(unique.values()), dtype=torch.uint8)
        self._version = 0

    def figures(self, num_rounds: int) -> dict[str, float]:
        """Measure in turns; return medians, speeds and ratios."""
        for _ in range(2):  # creates a version and a spare file
            self._timed_publish("", None)
        self._rounds.clear()
        for _ in range(num_rounds):
            self._time("memcpy_s", self._copy)
            self._time("memcpy_fresh_s", self._copy_fresh)
            manifest = self._timed_publish("publish_s", None)
            self._time("read_s", lambda manifest=manifest: read_weights(manifest))
            self._time("map_s", lambda manifest=manifest: tensors_in(map_file(Path(manifest.path))))
            one = self._timed_publish("publish_one_thread_s", 1)
            self._time("read_one_thread_s", lambda one=one: read_weights(one, num_threads=1))
            if self._num_bytes < 2 * 10**9:  # otherwise float32 would not fit as well
                self._float32_round()
        shutil.rmtree(self._folder)
        return self._summary()

    def _summary(self) -> dict[str, float]:
        found = {name: median(times) for name, times in self._rounds.items()}
        move = found["publish_s"] + found["read_s"]
        gigabytes = self._num_bytes / 1e9
        return {
            "gigabytes": gigabytes,
            **found,
            "move_s": move,
            "memcpy_gb_per_s": gigabytes / found["memcpy_s"],
            "publish_gb_per_s": gigabytes / found["publish_s"],
            "read_gb_per_s": gigabytes / found["read_s"],
            "move_over_memcpy": move / found["memcpy_s"],
            "move_over_memcpy_fresh": move / found["memcpy_fresh_s"],
        }

    def _time(self, name: str, call: Callable[[], object]) -> None:
        started = time.perf_counter()
        call()
        self._rounds.setdefault(name, []).append(time.perf_counter() - started)

    def _timed_publish(
        self,
        name: str,
        num_threads: int | None,
        *,
        state: dict[str, torch.Tensor] | None = None,
    ) -> WeightManifest:
        self._version += 1
        started = time.perf_counter()
        manifest = publish_weights(
            self._state if state is None else state,
            directory=self._folder,
            version=self._version,
            dtype="bfloat16",
            keep=1,
            num_threads=num_threads,
        )
        self._rounds.setdefault(name, []).append(time.perf_counter() - started)
        return manifest

    def _float32_round(self) -> None:
        wide = {name: tensor.float() for name, tensor in self._state.items()}
        self._timed_publish("publish_float32_s", None, state=wide)
        self._timed_publish("publish_float32_one_thread_s", 1, state=wide)

    def _copy(self) -> None:
        self._copy_to(self._target)

    def _copy_fresh(self) -> None:
        self._copy_to(torch.empty_like(self._target))

    def _copy_to(self, target: torch.Tensor) -> None:
        """Copy the tensors one after the other, from the start again at the end of the memory."""
        place = 0
        for tensor in self._state.values():
            if place + tensor.nbytes > len(target):
                place = 0
            ctypes.memmove(target.data_ptr() + place, tensor.data_ptr(), tensor.nbytes)
            place += tensor.nbytes


def _made_up_state() -> dict[str, torch.Tensor]:
    """Return tensors of small random values that repeat, as drawing all takes a minute."""
    with torch.device("meta"):
        shapes = {
            name: parameter.shape
            for name, parameter in Qwen3ForCausalLM(_CONFIG).named_parameters()
        }
    pattern = torch.randn(2**20, generator=torch.Generator().manual_seed(0)) * 0.02
    pattern = pattern.bfloat16()
    return {
        name: pattern.repeat(-(-shape.numel() // len(pattern)))[: shape.numel()].view(shape)
        for name, shape in shapes.items()
    }


def _engine_figures(folder: Path, state: dict[str, torch.Tensor]) -> dict[str, float]:
    """Update a real engine repeatedly; return its worker's times and the total."""
    model = folder / "model"
    start = publish_weights(state, directory=model, version=0)
    Path(start.path).rename(model / "model.safetensors")
    _CONFIG.save_pretrained(model)
    weights = folder / "weights"
    rounds: dict[str, list[float]] = {}
    with ray_session(num_cpus=3):
        engines = deploy_engines(
            f"bench-{os.getpid()}",
            EngineOptions(
                engine=EngineConfig(
                    kv_cache_gib=0.25,
                    max_num_seqs=8,
                    num_threads=len(os.sched_getaffinity(0)),
                    start_timeout_s=_TIMEOUT_S,
                    update_timeout_s=_TIMEOUT_S,
                ),
                model_dir=str(model),
                max_model_len=1024,
                seed=0,
                stall_timeout_s=_TIMEOUT_S,
                probe_timeout_s=_TIMEOUT_S,
            ),
            ResourcesConfig(),
            weights_directory=str(weights),
        )
        try:
            for version in range(1, NUM_ROUNDS + 2):
                manifest = publish_weights(state, directory=weights, version=version, keep=1)
                started = time.perf_counter()
                [receipt] = engines.update_weights(manifest, timeout_s=_TIMEOUT_S).receipts
                for name, value in {
                    "update_s": time.perf_counter() - started,
                    "engine_read_s": receipt.seconds_read,
                    "engine_load_s": receipt.seconds_load,
                    "engine_check_s": receipt.seconds_check,
                }.items():
                    rounds.setdefault(name, []).append(value)
        finally:
            engines.remove()
    # The first update allocates and warms up.
    return {name: median(values[1:]) for name, values in rounds.items()}
