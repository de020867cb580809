"""Tiers that users describe: a YAML file of sizes, costs and turns, as one text that says it all.

The text stands wherever a tier's name does (configuration, puzzle files, trajectories), so a run
needs the file only when it starts. ``cast_ray.games.registry.find_tier`` reads it.
"""

from __future__ import annotations

from pathlib import Path

from cast_ray.errors import ConfigError
from cast_ray.files import read_yaml

TASKS_TIER = "tasks"
"""The only tier of an environment of the user's (``cast_ray.envs.tasks``)."""
ENVIRONMENTS = "cast_ray.environments"
"""``[project.entry-points."cast_ray.environments"]`` in the pyproject.toml of a package."""
_KEYS = ("rows", "cols", "num_pieces", "min_cost", "max_cost", "turn_budget")
_MAX_NAME = 40
_KNOWN = {"boxoban": "boxoban@10x10x4,1-150,150"}
"""Of collections that many people train on, where building all tiers' puzzles leaves them out."""


def described_tier(tier: str) -> str:
    """Return ``NAME@ROWSxCOLSxPIECES,MIN-MAX,TURNS`` for a YAML file; any other text as it is.

    Args:
        tier: a tier's name, ``boxoban``, or a file with ``rows``, ``cols``, ``num_pieces``
            (0 = any), ``min_cost``, ``max_cost`` and ``turn_budget``; the file's name is the
            tier's.

    Raises:
        ConfigError: the file cannot be read, lacks a key or has another, or a value is no number or
            out of range.
    """
    file = Path(tier)
    if file.suffix not in (".yaml", ".yml"):
        return _KNOWN.get(tier, tier)
    values = read_yaml(file)
    items = values.items() if isinstance(values, dict) else ()
    given = {str(key)[:_MAX_NAME]: value for key, value in items}
    if set(given) != set(_KEYS):
        raise ConfigError(f"{file} must have the keys {', '.join(_KEYS)}, got {', '.join(given)}")
    for key, value in given.items():
        low = 0 if key in ("rows", "cols", "num_pieces") else 1
        if type(value) is not int or not low <= value < 10**6:
            raise ConfigError(
                f"{file}: {key} must be a whole number from {low}, got {repr(value)[:80]}"
            )
    if given["min_cost"] > given["max_cost"]:
        raise ConfigError(f"{file}: min_cost {given['min_cost']} is above {given['max_cost']}")
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in file.stem)
    rows, cols, pieces, low, high, turns = (given[key] for key in _KEYS)
    return f"{name[:_MAX_NAME]}@{rows}x{cols}x{pieces},{low}-{high},{turns}"
