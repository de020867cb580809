"""What a rank of the learner is given at its start, and what an update reports; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cast_ray.config.learning import LearnerConfig
from cast_ray.rollout.chat_template import ChatPieces


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How the policy is trained; the same on every rank."""

    config: LearnerConfig
    """The section ``learner``."""
    model_dir: str
    """Directory of a Hugging Face causal language model with safetensors weights; an actor also
    takes a URI."""
    reference_dir: str
    """Model that the divergence is taken from; empty = the one in ``model_dir``."""
    seed: int
    pieces: ChatPieces | None = None
    """Stored with saved models; None = a saved model is read by its own chat template."""
    sources: Mapping[str, bytes] = field(default_factory=dict)
    """Of the user's functions in files of the driver's host, by name (``cast_ray.functions``)."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """sgd is plain gradient descent, for tests that read the gradient off the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """What one optimizer step did, over all micro-batches and ranks."""

    is_applied: bool
    """False: loss or gradient was not finite, and the weights are as before."""
    loss: float
    grad_norm: float
    """Before clipping."""
    num_tokens: int
    """Tokens in the loss."""
    clip_fraction: float
    """Share of them that the clip left without gradient."""
    entropy: float
    """Mean over them of the policy's entropy, nats."""
    kl: float
    """Mean over them of the divergence from the reference model, nats; 0 without a reference."""
    seconds: float
