"""How a version comes to one engine where the learner broadcasts it; importable without vLLM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cast_ray.weight_broadcast import GIVE_UP_SHARE
from cast_ray.weight_group import Meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRoute:
    """An engine's place in a broadcast."""

    meeting: Meeting
    first_rank: int
    """Of the engine's first worker; the others follow."""

    def update_fields(self, timeout_s: float) -> dict[str, Any]:
        """Return what ``BroadcastUpdate`` has beside manifest and receipt.

        Args:
            timeout_s: of the whole update; the workers give up before that.
        """
        return {
            **asdict(self.meeting),
            "first_rank": self.first_rank,
            "timeout_s": timeout_s * GIVE_UP_SHARE,
        }
