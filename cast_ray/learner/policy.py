"""The policy network: loaded from a Hugging Face directory, called on packed sequences, saved.

``cast_ray.learner.learner`` trains it; nothing here knows DeepSpeed or Ray.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from cast_ray.errors import ModelError
from cast_ray.learner.attention import ATTENTION
from cast_ray.learner.logprobs import token_logprobs
from cast_ray.rollout.chat_template import ChatPieces, store_chat_pieces
from cast_ray.runs.directories import make_partial, publish, save_refusals_named
from cast_ray.runs.remote_directories import sound_model

TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)
"""Copied unchanged, so that a saved policy reads text exactly like the original."""

_LARGEST_ROUNDING = 0.03
"""Share of a hidden state's norm: experts multiply in other groupings, also in bfloat16."""

_FAILURES = (
    OSError, ValueError, TypeError, AttributeError, LookupError, RuntimeError, ImportError,
    ArithmeticError, StrictDataclassError,
)  # fmt: skip
"""What transformers raises for what is wrong in a model's files."""


class PackedPolicy(torch.nn.Module):
    """A causal language model as a function from packed sequences to logprobs of their tokens.

    The output head is not called: its weights go to ``token_logprobs``, which never holds the
    logits of all tokens, and only the positions that predict a wanted token get any.
    """

    def __init__(self, model: PreTrainedModel, *, tokens_per_logit_chunk: int) -> None:
        """Wrap a model that was loaded with ``load_policy``.

        Raises:
            ModelError: the model has no output head, changes its logits after it, needs attention
                that ``packed_attention`` does not support, or mixes packed sequences.
        """
        super().__init__()
        head = model.get_output_embeddings()
        if head is None:
            raise ModelError(
                f"{type(model).__name__} has no output head: use a causal language model"
            )
        self.model = model
        # This module's own, because ZeRO 3 gathers a module's own weights before its forward pass.
        self.head_weight = head.weight
        self.head_bias = getattr(head, "bias", None)
        self._tokens_per_logit_chunk = tokens_per_logit_chunk
        self._refuse_altered_logits()
        self._refuse_mixed_sequences()

    def forward(
        self,
        token_ids: Tensor,
        position_ids: Tensor,
        sequence_lengths: tuple[int, ...],
        predicts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return logprob and entropy of tokens; shapes as in ``batching.PackedBatch``.

        Args:
            token_ids: ``[1, N]``.
            position_ids: ``[1, N]``.
            sequence_lengths: tokens of each packed sequence.
            predicts: ``[n]`` positions whose next token is wanted.

        Returns:
            ``[n]`` float32 each, in the order of ``predicts``.
        """
        hidden = self._hidden(token_ids, position_ids, sequence_lengths)
        return token_logprobs(
            hidden[predicts],
            self.head_weight,
            self.head_bias,
            token_ids[0, predicts + 1],
            tokens_per_chunk=self._tokens_per_logit_chunk,
        )

    def _hidden(
        self, token_ids: Tensor, position_ids: Tensor, sequence_lengths: tuple[int, ...]
    ) -> Tensor:
        return self.model.base_model(
            input_ids=token_ids,
            position_ids=position_ids,
            use_cache=False,
            sequence_lengths=sequence_lengths,
        ).last_hidden_state[0]

    def _refuse_altered_logits(self) -> None:
        """Raise ModelError if the model's logits are not the output head of its hidden states."""
        token_ids = torch.arange(4).view(1, -1)
        with torch.no_grad():
            hidden = self._hidden(token_ids, token_ids, (4,))
            ours = torch.nn.functional.linear(hidden, self.head_weight, self.head_bias)
            theirs = self.model(
                input_ids=token_ids,
                position_ids=token_ids,
                use_cache=False,
                sequence_lengths=(4,),
            ).logits[0]
        if not torch.equal(ours, theirs):
            raise ModelError(
                f"{type(self.model).__name__} changes its logits after the output head (scales or "
                "caps them), which the learner does not do: use a model without that"
            )

    def _refuse_mixed_sequences(self) -> None:
        """Raise ModelError if a sequence changes the hidden states of the one packed after it.

        Recurrent layers and convolutions do that, and attention other than ``packed_attention``.
        """
        position_ids = torch.arange(4).repeat(2).view(1, -1)
        with torch.no_grad():
            first, second = (
                self._hidden(torch.tensor([[*front, 0, 1, 2, 3]]), position_ids, (4, 4))[4:]
                for front in ((0, 1, 2, 3), (3, 3, 1, 0))
            )
        change, size = (hidden.float().norm(dim=1) for hidden in (first - second, first))
        if not bool((change <= _LARGEST_ROUNDING * size).all()):
            raise ModelError(
                f"{type(self.model).__name__} lets packed sequences see each other (by recurrent "
                "layers or its own attention): use a model whose layers mix tokens by attention "
                "alone"
            )


def load_policy(directory: Path, *, dtype: torch.dtype) -> PreTrainedModel:
    """Load a causal language model from local safetensors, without running code from there.

    Its attention is that of ``packed_attention``.

    Raises:
        ModelError: the directory is missing or damaged, is no causal language model, or lacks
            weights.
    """
    sound_model(directory, is_trained=True)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(  # Any: annotated as one model
            directory,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by their names
            attn_implementation=ATTENTION,
        )
    except _FAILURES as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise ModelError(f"{directory} cannot be loaded as a causal model: {reason}") from error
    model, loading = loaded
    missing = [*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"])]
    if missing:
        raise ModelError(
            f"{directory} lacks the weights {sorted(missing)[:3]} (or their shapes differ from its "
            "config.json), which would start at random values: give a complete model"
        )
    return model


def save_policy(
    model: PreTrainedModel,
    state: dict[str, Tensor],
    directory: Path,
    *,
    tokenizer_dir: Path,
    pieces: ChatPieces | None = None,
) -> None:
    """Write configuration, the given weights and the tokenizer of ``tokenizer_dir``.

    The directory appears only when it is complete, and replaces an older one. Any reader of Hugging
    Face directories can load it, also if the model has adapters.

    Args:
        model: gives the configuration.
        state: all weights, under the names of the model without adapters; they are rounded to
            the type that the configuration names.
        directory: to write.
        tokenizer_dir: whose tokenizer is copied.
        pieces: of the chat template, stored with it.

    Raises:
        EnvironmentSetupError: it cannot be written.
    """
    with save_refusals_named(directory):
        partial = make_partial(directory)
        rounded = {name: weight.to(model.config.dtype) for name, weight in state.items()}
        _skeleton(model).save_pretrained(partial, state_dict=rounded)
        for pattern in TOKENIZER_FILES:
            for path in tokenizer_dir.glob(pattern):
                shutil.copy(path, partial)
        if pieces:
            store_chat_pieces(pieces, partial)
        publish(partial, directory)


def _skeleton(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model without weights and adapters: transformers saves adapters alone."""
    with torch.device("meta"):
        # A copy, because saving turns the dtype into text, which the next save cannot read.
        config = copy.deepcopy(model.config)
        skeleton: Any = type(model)(config)  # Any: .to is annotated as a bare function
    skeleton.generation_config = model.generation_config
    wanted: Any = skeleton  # Any: transformers annotates this method for other arguments
    return wanted.to(model.config.dtype)  # saved as the type in config.json
