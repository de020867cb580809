"""Do the engine's logprobs still match the learner's? Compared with their own healthy level.

No fixed threshold notices a layer with old weights: an update moves logprobs by less than the
kernels' rounding does. So each sync compares bytes and layers (``serve``), and here the logprob
difference is watched for a drift over steps.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import losses
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.config.train import SyncConfig
from cast_ray.errors import WeightSyncError
from cast_ray.learner.batching import flat_column, loss_mask

logger = logging.getLogger(__name__)

_LARGEST_HEALTHY = 0.1
"""A mean difference above this is not healthy in any precision that the engines offer."""


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
    batch: pa.Table, learner_logprobs: np.ndarray, objective: ObjectiveConfig
) -> LogprobDifference:
    """Compare the engine's logprobs with the learner's for the same tokens and weights.

    Args:
        batch: columns of ``ROLLOUT_SCHEMA``.
        learner_logprobs: ``[N]`` over all tokens of the table, before any update.
        objective: with its ``rollout_correction`` and cap.
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
        # The tokens are the engine's: exp(x) - x - 1 is unbiased and never negative.
        kl=float((np.exp(log_ratio) - log_ratio - 1).mean()),
        share_beyond_cap=float(is_beyond.mean()),
    )


class LogprobAlarm:
    """Remembers the healthy level and compares every later step with it."""

    def __init__(self, config: SyncConfig, *, healthy: float | None = None) -> None:
        """Take the section ``sync``; ``healthy`` is known when a run is resumed."""
        self._config = config
        self.healthy = healthy

    def judge(self, difference: LogprobDifference) -> None:
        """Take the first difference as the healthy level; warn or stop at its multiples.

        A difference without any token is ignored.

        Raises:
            WeightSyncError: the difference is at least ``stop_ratio`` times the healthy level, or
                the very first is too large to be one.
        """
        if not difference.num_tokens:
            return
        # The conditions are negated so that NaN stops the run too.
        if self.healthy is None:
            if not difference.mean <= _LARGEST_HEALTHY:
                raise WeightSyncError(
                    f"engine and learner differ by {difference.mean:.3g} nats per token right "
                    "after the first sync: check that both load the same model and that the engine "
                    "samples at temperature 1"
                )
            self.healthy = difference.mean
            return
        ratio = difference.mean / max(self.healthy, np.finfo(np.float32).eps)
        if not ratio < self._config.stop_ratio:
            raise WeightSyncError(
                f"engine and learner differ by {difference.mean:.3g} nats per token, {ratio:.0f} "
                f"times the level at the start ({self.healthy:.3g}): the engine does not hold the "
                "learner's weights; see layer_error in metrics.parquet and the engine's log"
            )
        if ratio >= self._config.warn_ratio:
            logger.warning(
                "engine and learner differ by %.3g nats per token, %.1f times the first level",
                difference.mean,
                ratio,
            )
