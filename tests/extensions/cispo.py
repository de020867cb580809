"""CISPO (MiniMax-M1): the ratio is a clipped weight without gradient, so that no token is lost."""

from torch import Tensor

from cast_ray.algorithms.objective import TokenInputs
from cast_ray.config.learning import ObjectiveConfig


def cispo(ratio: Tensor, tokens: TokenInputs, objective: ObjectiveConfig) -> Tensor:
    """Return ``[n]`` losses."""
    weight = ratio.detach().clamp(max=1 + objective.clip_high)
    return -weight * tokens.advantages * tokens.learner_logprobs
