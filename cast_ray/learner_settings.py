"""What a learner is told at its start, and what it says about an update; no torch, no DeepSpeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cast_ray.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How the policy is trained; the same on every rank."""

    model_dir: str
    """Directory of a Hugging Face causal language model with safetensors weights."""
    lr: float
    """Learning rate of ``update``, constant."""
    betas: tuple[float, float]
    weight_decay: float
    max_grad_norm: float
    """Longer gradients are scaled down to this norm; 0 turns it off."""
    zero_stage: Literal[0, 1, 2, 3]
    """DeepSpeed ZeRO stage."""
    dtype: Literal["float32", "bfloat16"]
    """Of weights and activations; with bfloat16 the optimizer keeps float32 weights beside."""
    tokens_per_micro_batch: int
    """Padded tokens of one forward and backward pass; a longer trajectory stands alone."""
    seed: int
    timeout_s: float
    """Of every collective: after it a missing rank is an error on the others."""
    num_threads: int
    """CPU threads of one rank."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """sgd is plain gradient descent, for tests that read the gradient off the weights."""

    def __post_init__(self) -> None:
        if self.dtype == "bfloat16" and self.zero_stage == 0:
            raise ConfigError(
                "learner dtype bfloat16 needs zero_stage 1, 2 or 3: at 0 DeepSpeed would add up "
                "the gradients of the micro-batches in bfloat16"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one optimizer step was like, over all micro-batches and ranks."""

    loss: float
    grad_norm: float
    """Before it was clipped."""
    num_tokens: int
    """Tokens in the loss."""
    clip_fraction: float
    """Share of them that the clip left without gradient."""
    entropy: float
    """Mean over them of the policy's entropy, nats."""
    ratio_max: float
    """Largest ratio of a token's probability to that at the start of the step."""
    seconds: float
