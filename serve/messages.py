"""What travels between the engines and those who use them, importable without vLLM.

vLLM takes ten seconds and a gigabyte to import; a driver and its env runners need neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

FILE_BACKEND = "cast_ray_file"
BROADCAST_BACKEND = "cast_ray_broadcast"


class EngineOptions(TypedDict):
    """The arguments of ``PolicyEngine.start``, all of them required."""

    model_dir: str
    """A Hugging Face model directory, or its URI; no tokenizer is needed."""
    weight_version: int
    """The version that ``model_dir`` holds."""
    dtype: str
    """``bfloat16`` or ``float32``."""
    max_model_len: int
    """Prompt and answer together, in tokens."""
    max_num_seqs: int
    """Answers generated at the same time; more wait."""
    kv_cache_gib: float
    """Memory for keys and values."""
    block_size: int
    """Tokens in a block of the prefix cache; on CPU a multiple of 32."""
    seed: int
    """Of the engine itself; requests bring their own."""
    tensor_parallel_size: int
    """Workers that hold one engine together, each a share of every layer."""
    weight_backend: str
    """Name of a weight-transfer backend that is registered with vLLM."""
    update_timeout_s: float
    """Limit for one weight update, and for a request that waits for newer weights."""
    stall_timeout_s: float
    """An engine with requests that brought no token for so long is stalled; an idle one gets a
    probe after so long."""
    probe_timeout_s: float
    """A probe unanswered for so long means a stalled engine."""
    export_metrics: bool
    """Whether vLLM's own Prometheus metrics go to Ray's metrics agent."""
    can_rest: NotRequired[bool]
    """Whether the engine can give its GPU's memory to others for a while; not on CPU."""
    enforce_eager: NotRequired[bool]
    """Whether the model runs layer by layer, without compilation and CUDA graphs; left out = so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Totals since the engine's start, whose differences are what a step used; and the moment."""

    engine_id: str
    """Drawn at the start: another one means that the engine was started again, totals at zero."""
    replica_pid: int
    """Process of the Serve replica."""
    core_pids: tuple[int, ...]
    """Processes that vLLM computes in."""
    weight_version: int
    """The version that new requests are answered with."""
    seconds_running: float
    """Time during which at least one request was in the engine."""
    num_requests: int
    """Ended ones, however they ended; probes of the health check do not count."""
    num_generated_tokens: int
    """Of finished requests."""
    num_refused: int
    """Requests that no engine could answer."""
    seconds_queued: float
    """Between arrival at vLLM's scheduler and the first computation, summed over finished
    requests."""
    num_preemptions: int
    """Requests that lost their keys and values to others and were computed again."""
    prefix_query_tokens: int
    """Prompt tokens that were looked up in the prefix cache."""
    prefix_hit_tokens: int
    """Those of them that were found there."""
    num_running: int
    """Requests computed with in the last step."""
    num_waiting: int
    """Requests in the queue of vLLM's scheduler in the last step."""
    kv_usage: float
    """Share of the memory for keys and values that was in use in the last step, 0 to 1."""
    seconds_since_progress: float
    """Since the last token; an idle engine's grows."""
    replica_bytes: int
    """Resident memory of the replica's process."""
    core_bytes: int
    """Resident memory of vLLM's processes together; what they share counts in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightReceipt:
    """What an engine found after loading weights; of several ranks, the worst."""

    version: int
    num_checks: int
    """Tensors compared, each in the layer that uses it; of all ranks, each with its share."""
    worst_layer: str
    """The tensor with the largest relative error; empty when none was compared."""
    worst_relative_error: float
    seconds_read: float
    """Reading the file and its checksum, or receiving a broadcast and its digest."""
    seconds_load: float
    seconds_check: float
    error: str
    """Empty when every layer holds what was sent."""
    is_changed: bool
    """Whether the engine's weights were touched; False when what came was refused."""
    is_broken: bool
    """Whether the error is a broadcast that broke off, which another try may mend."""
