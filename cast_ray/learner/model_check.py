"""What will happen to a model directory here: whether it plays, whether it can be trained, and why.

Its weights are not loaded: their files are checked, and a small random model of the same kind says
what the learner would refuse.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from cast_ray.errors import ModelError
from cast_ray.learner.attention import ATTENTION
from cast_ray.learner.policy import PackedPolicy
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import APPEND_ONLY, FAMILIES, read_chat_pieces
from cast_ray.runs.model_files import model_fault, num_values
from cast_ray.runs.remote_directories import sound_model

_GIB = 2**30
_BYTES_PER_WEIGHT = 2
"""In an engine: bfloat16."""
_BYTES_PER_TRAINED_WEIGHT = 16
"""Weight and gradient in bfloat16; weight, mean and variance of AdamW in float32."""
_SMALL_VOCABULARY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """What was found; all sizes are arithmetic."""

    directory: str
    num_parameters: int
    context_length: int
    """In tokens; 0 = not said."""
    chat_template: str
    """``own``, or the ``policy.chat_template`` that is needed; empty = none is right."""
    end_ids: tuple[int, ...]
    """Of the tokens that end an answer."""
    engine_gib: float
    """Of the weights in one engine, besides its cache."""
    cache_tokens_per_gib: int
    """Keys and values of how many tokens fit into one GiB of ``engine.kv_cache_gib``."""
    learner_gib: float
    """Weights, gradients and AdamW of all ranks together; activations come on top."""
    refused_by_both: str
    """Why it can neither play nor be trained; empty = it plays."""
    refused_by_learner: str
    """Why it cannot be trained; empty = it can."""

    @property
    def verdict(self) -> str:
        """One of three phrases, from what is refused."""
        if self.refused_by_both:
            return "cannot be used"
        return "plays, cannot be trained" if self.refused_by_learner else "plays, can be trained"


def check_model(location: str | Path) -> ModelReport:
    """Examine a model directory, its URI, or a hub's model by its commit.

    Raises:
        ModelError: it is none, or a file is damaged or missing.
        StorageError, RunDirectoryError: it cannot be fetched.
    """
    directory = sound_model(location)
    try:
        config: Any = AutoConfig.from_pretrained(  # Any: each kind of model has its own
            directory, local_files_only=True, trust_remote_code=False
        ).get_text_config()
    except (ValueError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{directory} is no model that transformers knows ({reason})") from error
    parameters = num_values(directory)
    template, end_ids, refusal = _template(directory)
    is_quantised = model_fault(directory, with_weights=False, is_trained=True)
    return ModelReport(
        directory=str(directory),
        num_parameters=parameters,
        context_length=int(getattr(config, "max_position_embeddings", 0) or 0),
        chat_template=template,
        end_ids=end_ids,
        engine_gib=parameters * _BYTES_PER_WEIGHT / _GIB,
        cache_tokens_per_gib=int(_GIB / _cache_bytes(config)),
        learner_gib=parameters * _BYTES_PER_TRAINED_WEIGHT / _GIB,
        refused_by_both=refusal,
        refused_by_learner=is_quantised or refusal or _refusal_of_learner(config),
    )


def report_lines(report: ModelReport) -> list[str]:
    """Return a report as lines for people."""
    template = {"own": "its own, kept as it is", "": "none that is right"}
    shown = template.get(report.chat_template, f"policy.chat_template={report.chat_template}")
    rows = [
        ("verdict", report.verdict),
        ("parameters", f"{report.num_parameters:,}"),
        ("context", f"{report.context_length:,} tokens"),
        ("chat template", shown),
        ("an answer ends with", ", ".join(map(str, report.end_ids)) or "unknown"),
        ("engine", f"{report.engine_gib:.1f} GiB in bfloat16, and engine.kv_cache_gib"),
        ("cache", f"{report.cache_tokens_per_gib:,} tokens in one GiB"),
        ("learner", f"{report.learner_gib:.1f} GiB over all ranks, and activations"),
        ("learner, adapters", f"{report.engine_gib:.1f} GiB, and activations"),
        ("refused", report.refused_by_both or report.refused_by_learner),
    ]
    return [f"{name:<20}{text}" for name, text in rows if text]


def _template(directory: Path) -> tuple[str, tuple[int, ...], str]:
    """Return the template that fits, the ids that end an answer, and why none does."""
    first = ""
    for name in ("", APPEND_ONLY, *FAMILIES):
        try:
            tokenizer = ChatTokenizer(directory, read_chat_pieces(directory, name))
        except ModelError as error:
            first = first or str(error)
        else:
            return name or "own", tuple(tokenizer.end_ids), ""
    return "", (), first


def _cache_bytes(config: Any) -> int:
    """Return the bytes of one token's keys and values in bfloat16."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * width * _BYTES_PER_WEIGHT


def _refusal_of_learner(config: Any) -> str:
    """Return why the learner would refuse models of this kind; empty if it would not."""
    small = copy.deepcopy(config)
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    small.num_hidden_layers = max(2, len(kinds))
    if kinds:
        small.layer_types = (kinds * 2)[: small.num_hidden_layers]
    small.vocab_size = _SMALL_VOCABULARY
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(small, name, None)
    build: Callable[..., Any] = AutoModelForCausalLM.from_config  # annotated as one model
    try:
        model = build(small, dtype=torch.float32, attn_implementation=ATTENTION)
        PackedPolicy(model.eval(), tokens_per_logit_chunk=_SMALL_VOCABULARY)
    except ModelError as error:
        return str(error)
    except (ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
        return f"{type(config).__name__}: {' '.join(str(error).split())}"
    return ""
