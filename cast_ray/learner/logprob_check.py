"""Do the engine's logprobs still fit the learner's? Judged against their own healthy level.

No fixed alarm sees a layer that stayed behind: a real update moves logprobs by less than the
kernels' rounding does. So the bytes and every layer are compared at each sync (``serve``), and the
logprob difference is watched here for what creeps up over steps.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import losses
from cast_ray.algorithms.objective import Objective
from cast_ray.errors import WeightSyncError
from cast_ray.learner.batching import flat_column, loss_mask

logger = logging.getLogger(__name__)

_LARGEST_HEALTHY = 0.1
"""A mean difference above this is not healthy in any arithmetic the engines offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobDifference:
    """|rollout - learner| logprob over the tokens in the loss, in nats."""

    mean: float
    largest: float
    num_tokens: int
    kl: float
    """Mean estimate of KL(rollout || learner), in nats."""
    share_beyond_cap: float
    """Share of tokens that the rollout correction touches."""


def logprob_difference(
    batch: pa.Table, learner_logprobs: np.ndarray, objective: Objective
) -> LogprobDifference:
    """Compare the engine's logprobs with the learner's for the same tokens and weights.

    Args:
        batch: columns of ``ROLLOUT_SCHEMA``.
        learner_logprobs: ``[N]`` over all tokens of the table, before any update.
        objective: says which ratios are too large (its cap, and whether tokens are left out).
    """
    in_loss = loss_mask(batch)
    if not in_loss.any():
        return LogprobDifference(mean=0.0, largest=0.0, num_tokens=0, kl=0.0, share_beyond_cap=0.0)
    rollout_logprobs = flat_column(batch, "rollout_logprobs")[in_loss]
    log_ratio = (learner_logprobs[in_loss] - rollout_logprobs).astype(np.float64)
    cap = objective.rollout_correction_cap
    is_beyond = log_ratio > np.log(cap)
    if objective.rollout_correction == "mask":
        is_beyond = ~losses.is_within_cap(learner_logprobs[in_loss], rollout_logprobs, cap=cap)
    return LogprobDifference(
        mean=float(np.abs(log_ratio).mean()),
        largest=float(np.abs(log_ratio).max()),
        num_tokens=int(in_loss.sum()),
        # The tokens are the engine's: exp(x) - x - 1 is right in the mean and never negative.
        kl=float((np.exp(log_ratio) - log_ratio - 1).mean()),
        share_beyond_cap=float(is_beyond.mean()),
    )


class LogprobAlarm:
    """Remembers the healthy level and judges every later step by it."""

    def __init__(
        self, *, warn_ratio: float, stop_ratio: float, healthy: float | None = None
    ) -> None:
        """Take ratios of ``SyncConfig``; ``healthy`` is known when a run is resumed."""
        self._warn_ratio = warn_ratio
        self._stop_ratio = stop_ratio
        self.healthy = healthy

    def judge(self, difference: LogprobDifference) -> None:
        """Take the first difference as the healthy level; warn or stop at its multiples.

        A difference over no token at all says nothing.

        Raises:
            WeightSyncError: the difference is at least ``stop_ratio`` times the healthy level, or
                the very first is too large to be one.
        """
        if not difference.num_tokens:
            return
        # Asked the other way round, so that a difference that is no number stops the run too.
        if self.healthy is None:
            if not difference.mean <= _LARGEST_HEALTHY:
                raise WeightSyncError(
                    f"engine and learner differ by {difference.mean:.3g} nats a token right after "
                    "the first sync: check that both load the same model and that the engine "
                    "samples with temperature 1"
                )
            self.healthy = difference.mean
            return
        ratio = difference.mean / max(self.healthy, np.finfo(np.float32).eps)
        if not ratio < self._stop_ratio:
            raise WeightSyncError(
                f"engine and learner differ by {difference.mean:.3g} nats a token, {ratio:.0f} "
                f"times the level at the start ({self.healthy:.3g}): the engine does not hold the "
                "learner's weights; look at layer_error in metrics.parquet and at the engine's log"
            )
        if ratio >= self._warn_ratio:
            logger.warning(
                "engine and learner differ by %.3g nats a token, %.1f times the level at the start",
                difference.mean,
                ratio,
            )
