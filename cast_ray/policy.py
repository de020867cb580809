"""The policy network as a Hugging Face directory: loaded, narrowed to what is needed, saved.

What trains it is ``cast_ray.learner``; nothing here knows DeepSpeed or Ray.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from cast_ray.checkpoint import make_partial, publish, save_refusals_named
from cast_ray.errors import ModelError

TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)
"""Copied unchanged, so that a saved policy reads text exactly as the one it came from."""


class HeadInput:
    """Hands the output head only the hidden states of the wanted positions.

    A pre-hook of the head instead of a forward pass of our own: whatever a model does to its
    logits afterwards still happens, and no row of vocabulary size is computed in vain. The
    model's logits are then ``[n, V]``, in row-major order of the wanted positions.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.wanted: Tensor | None = None
        """``[B, L]`` bool, set before every forward pass."""
        head = model.get_output_embeddings()
        if head is None:
            raise ModelError(f"{type(model).__name__} has no output head: give a causal model")
        head.register_forward_pre_hook(self._select)

    def _select(self, _head: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        assert self.wanted is not None
        return (inputs[0][self.wanted],)


def load_policy(directory: Path, *, dtype: torch.dtype) -> PreTrainedModel:
    """Load a causal language model from local safetensors, running no code of its own.

    Raises:
        ModelError: the directory is missing, is no causal language model, or lacks weights.
    """
    if not (directory / "config.json").is_file():
        raise ModelError(f"{directory} holds no config.json: give a Hugging Face model directory")
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(  # Any: annotated as one model
            directory,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{directory} cannot be loaded as a causal model: {error}") from error
    model, loading = loaded
    if loading["missing_keys"]:
        raise ModelError(
            f"{directory} lacks the weights {sorted(loading['missing_keys'])[:3]} "
            "and would be trained from random ones: give a complete model"
        )
    return model


def save_policy(
    model: PreTrainedModel, state: dict[str, Tensor], directory: Path, *, tokenizer_dir: Path
) -> None:
    """Write configuration, the given weights and the tokenizer of ``tokenizer_dir``.

    The directory appears only when it is whole, and replaces an older one.

    Raises:
        EnvironmentSetupError: it cannot be written.
    """
    with save_refusals_named(directory):
        partial = make_partial(directory)
        model.save_pretrained(partial, state_dict=state)
        for pattern in TOKENIZER_FILES:
            for path in tokenizer_dir.glob(pattern):
                shutil.copy(path, partial)
        publish(partial, directory)
