"""What travels between the engines and those who use them, importable without vLLM.

vLLM takes ten seconds and a gigabyte to import; a driver and its environment actors need neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class EngineOptions(TypedDict):
    """The arguments of ``PolicyEngine.start``, all of them required."""

    model_dir: str
    """A Hugging Face model directory; no tokenizer is needed."""
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
    stall_timeout_s: float
    """After so long without an answer a health check sends a probe."""
    probe_timeout_s: float
    """A probe unanswered for so long means a stalled engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Totals since the engine's start; the difference of two is what a step used."""

    weight_version: int
    """The version that new requests are answered with."""
    seconds_running: float
    """Time during which at least one request was in the engine."""
    num_requests: int
    num_generated_tokens: int


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
    """Reading the file and its checksum."""
    seconds_load: float
    seconds_check: float
    error: str
    """Empty when every layer holds what was sent."""
    is_changed: bool
    """Whether the engine's weights were touched; False when the file was refused."""
