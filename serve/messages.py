"""What engines and their clients exchange, importable without vLLM.

vLLM takes ten seconds and a gigabyte to import; a driver and its env runners need neither.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from cast_ray.config.train import EngineConfig

FILE_BACKEND = "cast_ray_file"
BROADCAST_BACKEND = "cast_ray_broadcast"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What each engine of a run is started with."""

    engine: EngineConfig
    """The section of the configuration."""
    model_dir: str
    """A Hugging Face model directory, or its URI; holds version 0. No tokenizer is needed."""
    max_model_len: int
    """Prompt and answer together, in tokens."""
    seed: int
    """Of the engine itself; requests bring their own."""
    stall_timeout_s: float
    """An engine with requests that produced no token for this long is stalled; an idle one is
    probed after this long."""
    probe_timeout_s: float
    """A probe unanswered for this long means a stalled engine."""
    can_rest: bool = False
    """Whether the engine can lend its GPU's memory to the learner; not on CPU."""


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """An engine's totals since its start, and its present state.

    The difference between two totals is what a step used. The engine itself counts in one and
    gives out copies.
    """

    engine_id: str
    """Drawn at each start: if it changes, the engine was restarted and its totals began at 0."""
    replica_pid: int
    """Process of the Serve replica."""
    core_pids: tuple[int, ...]
    """The processes in which vLLM computes."""
    weight_version: int
    """The version that new requests are answered with."""
    seconds_running: float = 0.0
    """Time during which at least one request was in the engine."""
    num_requests: int = 0
    """Requests that ended, in whatever way; the health check's probes do not count."""
    num_generated_tokens: int = 0
    """In finished requests."""
    num_refused: int = 0
    """Requests that no engine could answer."""
    seconds_queued: float = 0.0
    """Summed over finished requests, from arrival at vLLM's scheduler to the first computation."""
    prefix_query_tokens: int = 0
    """Prompt tokens looked up in the prefix cache."""
    prefix_hit_tokens: int = 0
    """Prompt tokens found there."""
    num_running: int = 0
    """Requests computed in the last step."""
    num_waiting: int = 0
    """Requests in the queue of vLLM's scheduler in the last step."""
    kv_usage: float = 0.0
    """Share of the memory for keys and values in use in the last step, 0 to 1."""
    seconds_since_progress: float = 0.0
    """Since the last token; grows while the engine is idle."""
    replica_bytes: int = 0
    """Resident memory of the replica's process."""
    core_bytes: int = 0
    """Resident memory of vLLM's processes, summed; shared pages count once per process."""

    @classmethod
    def of_new_engine(cls) -> EngineStats:
        """Return the statistics of an engine that this process starts."""
        return cls(
            engine_id=uuid.uuid4().hex, replica_pid=os.getpid(), core_pids=(), weight_version=0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightReceipt:
    """What an engine found after loading weights; the worst of its ranks."""

    version: int
    num_checks: int = 0
    """Tensors compared, each in the layer that uses it, summed over ranks."""
    worst_relative_error: float = 0.0
    num_moved: int = 0
    """Parameters that lie elsewhere since the update; an error where CUDA graphs were captured."""
    seconds_read: float = 0.0
    """Reading and checksumming the file, or receiving a broadcast and its digest."""
    seconds_load: float = 0.0
    seconds_check: float = 0.0
    error: str = ""
    """Empty when every layer holds what was sent."""
    is_changed: bool = False
    """Whether the engine's weights were touched; False when the new ones were refused."""
    is_broken: bool = False
    """Whether the error is an interrupted broadcast, which may be repeated."""
