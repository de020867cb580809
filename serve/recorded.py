"""Conversations as they were played, to be played again without an environment."""

from __future__ import annotations

from dataclasses import dataclass

from cast_ray.generation import GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded episode."""

    first: GenerateRequest
    """Its first turn; the others differ in prompt and seed."""
    seeds: tuple[int, ...]
    """``[T]`` of all turns."""
    observations: tuple[tuple[int, ...], ...]
    """``[T - 1]`` tokens behind the answers."""
