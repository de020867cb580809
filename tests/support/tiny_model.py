"""A Qwen3 small enough for tests: real architecture, tied head, no tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cast_ray.rollout.generate import GenerateRequest

VOCAB_SIZE = 512
STOP_TOKEN_ID = 2
PROMPT = tuple(range(10, 60))


def build_tiny_model(
    directory: Path, *, seed: int, num_key_value_heads: int = 2
) -> Qwen3ForCausalLM:
    """Save a model of 0.9 M random parameters in Hugging Face format and return it.

    Weights have a standard deviation of 0.05: at the usual 0.02 a net of this size predicts an
    almost uniform distribution, and a wrong layer would hardly move a logprob.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=num_key_value_heads,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.05,
        eos_token_id=STOP_TOKEN_ID,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(directory)
    return model.eval()


def a_request(seed: int = 0, max_tokens: int = 64, **changes: object) -> GenerateRequest:
    """Return a request for as many tokens as asked for: nothing ends it but a rare token."""
    request = GenerateRequest(
        token_ids=PROMPT,
        max_tokens=max_tokens,
        temperature=1.0,
        top_p=1.0,
        seed=seed,
        stop_token_ids=(VOCAB_SIZE - 1,),
    )
    return replace(request, **changes)
