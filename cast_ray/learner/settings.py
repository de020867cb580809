"""What a learner is told at its start, and what it says about an update; no torch, no DeepSpeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How the policy is trained; the same on every rank."""

    model_dir: str
    """Directory of a Hugging Face causal language model with safetensors weights; to an actor also
    a URI."""
    lr: float
    """Learning rate of ``update``, constant."""
    betas: tuple[float, float]
    weight_decay: float
    max_grad_norm: float
    """Longer gradients are scaled down to this norm."""
    zero_stage: Literal[0, 1, 2, 3]
    """DeepSpeed ZeRO stage."""
    dtype: Literal["float32", "bfloat16"]
    """Of weights and activations; with bfloat16 the optimizer keeps float32 weights beside."""
    tokens_per_micro_batch: int
    """Tokens of one forward and backward pass; a longer trajectory stands alone."""
    seed: int
    timeout_s: float
    """Of every collective: after it a missing rank is an error on the others."""
    num_threads: int
    """CPU threads of one rank."""
    tokens_per_logit_chunk: int = 1024
    """Tokens whose logits exist at the same time."""
    lora_rank: int = 0
    """Of the adapters that are trained in place of the weights; 0 = none."""
    lora_alpha: int = 32
    gradient_checkpointing: bool = False
    offload_optimizer: bool = False
    reference_dir: str = ""
    """Model that the divergence is taken from; empty = the one in ``model_dir``."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """sgd is plain gradient descent, for tests that read the gradient off the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one optimizer step was like, over all micro-batches and ranks."""

    is_applied: bool
    """False: loss or gradient was not finite, and the weights are as before."""
    loss: float
    grad_norm: float
    """Before it was clipped."""
    num_tokens: int
    """Tokens in the loss."""
    clip_fraction: float
    """Share of them that the clip left without gradient."""
    entropy: float
    """Mean over them of the policy's entropy, nats."""
    kl: float
    """Mean over them of the divergence from the reference model, nats; 0 where none counts."""
    ratio_max: float
    """Largest ratio of a token's probability to that at the start of the step."""
    seconds: float
