"""Checks of configuration values: each names the key, the rule and the value that breaks it."""

from __future__ import annotations

import math

from cast_ray.errors import ConfigError


def require(condition: bool, key: str, rule: str, value: object) -> None:
    """Raise ConfigError unless the condition holds and the value is finite."""
    if not condition or value in (math.inf, -math.inf):
        raise ConfigError(f"{key} must be {rule}, got {value!r}")


def at_least(low: float, section: object, prefix: str, *names: str) -> None:
    """Raise ConfigError unless these fields of a section are >= ``low``."""
    for name in names:
        value = getattr(section, name)
        require(value >= low, prefix + name, f">= {low}", value)


def above(low: float, section: object, prefix: str, *names: str) -> None:
    """Raise ConfigError unless these fields of a section are > ``low``."""
    for name in names:
        value = getattr(section, name)
        require(value > low, prefix + name, f"> {low}", value)


def between(low: float, high: float, section: object, prefix: str, *names: str) -> None:
    """Raise ConfigError unless these fields of a section lie between two values, or at one."""
    for name in names:
        value = getattr(section, name)
        require(low <= value <= high, prefix + name, f"between {low} and {high}", value)
