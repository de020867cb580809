"""The games for Gymnasium: text for language models, arrays for value networks."""

from cast_ray.envs.gym.registry import (
    NUMERIC_IDS,
    NUMERIC_RULES,
    TEXT_IDS,
    get_numeric_rules,
    make_numeric_env,
    make_text_env,
    widest_tier,
)

__all__ = [
    "NUMERIC_IDS",
    "NUMERIC_RULES",
    "TEXT_IDS",
    "get_numeric_rules",
    "make_numeric_env",
    "make_text_env",
    "widest_tier",
]
