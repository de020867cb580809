"""What a run of a pretrained model begins with: the paper's values in place of the small policy's.

The defaults of ``cast_ray.config.train`` are the small policy's: its learning rate would ruin a
pretrained model within a step, and its answers have eight tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cast_ray.config.reference import config_values
from cast_ray.config.train import TrainConfig

SMALL_POLICY_KEY = "cast_ray_small_policy"
"""True in the ``config.json`` of the models that a run builds, and of what they become."""
LORA_LR = 1e-5
"""Of adapters: ten times that of all weights, the usual ratio."""
_PRETRAINED = {
    "learner": {"lr": 1e-6, "betas": (0.9, 0.999), "gradient_checkpointing": True},
    "advantage": {"alpha": 0.1},
    "rollout": {"max_answer_tokens": 16384},
    # Only where it is asked for; slow enough for a model that can already read.
    "warm_start": {"steps": 0, "lr": 1e-5, "careless_steps": 0},
}


def values_for(path: str, *, with_lora: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return what ``policy.path`` stands for; sections and keys as in the configuration.

    Args:
        path: of a model directory, its URI or its name; empty = the small policy.
        with_lora: whether adapters are trained.
    """
    if not path:
        return {}
    if is_small_policy(path):
        return {"warm_start": {"steps": 0}}
    learner = _PRETRAINED["learner"] | ({"lr": LORA_LR} if with_lora else {})
    return {**_PRETRAINED, "learner": learner}


def is_small_policy(path: str) -> bool:
    """Return whether a local model directory holds a small policy of ours; a URI is not read."""
    try:
        return bool(json.loads((Path(path) / "config.json").read_text()).get(SMALL_POLICY_KEY))
    except (OSError, ValueError, AttributeError):  # the run names what is wrong with it
        return False


def pretrained_note(config: TrainConfig) -> str:
    """Return the values that a run of a pretrained model has for the keys above; else nothing."""
    path = config.policy.path
    if not path or is_small_policy(path):
        return ""
    keys = [f"{section}.{key}" for section, values in _PRETRAINED.items() for key in values]
    values = dict(config_values(config))
    shown = ", ".join(f"{key}={values[key]}" for key in keys)
    return f"{path} is a pretrained model, which has other defaults (the paper's); now {shown}"
