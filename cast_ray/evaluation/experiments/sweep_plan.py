"""The trials of a sweep: every combination of the values that were given for some keys.

What differs in more than one key goes into arms: names, each with its own ``key=value`` list.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cast_ray.algorithms.advantages import get_transform
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError

_OPEN, _CLOSE = "([{", ")]}"
SHARED = ("game", "tier", "policy.", "warm_start.", "puzzles.")
"""What the warm start depends on, which all trials share."""
_OWN = ("run_dir",)
"""What the sweep itself says of each trial."""
ARM = "arm"
"""The key under which a trial's arm stands beside its swept keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training run of a sweep."""

    name: str
    values: dict[str, str]
    """Its arm and its value of each swept key, as written."""
    overrides: list[str]
    """What they say to ``cast-ray train``."""
    config: TrainConfig

    @property
    def setting(self) -> dict[str, str]:
        """Its values but for the seed: trials that differ in it alone are repetitions."""
        return {key: value for key, value in self.values.items() if key != "seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What a sweep runs."""

    fixed: list[str]
    """``key=value`` of all trials."""
    grid: dict[str, list[str]]
    """The values of each swept key, arms first."""
    arms: dict[str, list[str]]
    """What each arm says beside the rest; {} = there are none."""
    trials: list[Trial]
    base: TrainConfig
    """Of all trials, but for the swept keys."""

    @property
    def given(self) -> dict[str, Any]:
        """What the trials were made from, for JSON."""
        arms = {"arms": self.arms} if self.arms else {}
        return {"fixed": self.fixed, "grid": self.grid} | arms

    def goes_on_with(self, earlier: Mapping[str, Any]) -> bool:
        """Return whether it has all trials of another plan (its ``given``), maybe among more."""
        return (
            sorted(self.fixed) == sorted(earlier["fixed"])
            and list(self.grid) == list(earlier["grid"])
            and all(set(values) <= set(self.grid[key]) for key, values in earlier["grid"].items())
            and all(self.arms.get(name) == own for name, own in earlier.get("arms", {}).items())
        )

    @property
    def needs_warm_start(self) -> bool:
        """Whether there is a policy to be taught first, once for all trials."""
        return not self.base.policy.path and self.base.warm_start.steps > 0


def read_arms(file: Path) -> dict[str, list[str]]:
    """Return each arm's ``key=value`` list, by name, of a YAML file.

    Raises:
        ConfigError: it is not there, or holds something else.
    """
    if not file.is_file():
        raise ConfigError(f"the file of arms {file} does not exist")
    try:
        found = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{file} must hold arms, a line each: name: [key=value, …]")
    for name, arm in found.items():
        if not isinstance(arm, list) or not all(isinstance(one, str) for one in arm):
            raise ConfigError(
                f"{file}, arm {name}: give a list of key=value, such as [algorithm=dapo], or an "
                f"empty one, not {arm!r}"
            )
    return {str(name): arm for name, arm in found.items()}


def plan_sweep(
    file: Path | None,
    overrides: Sequence[str],
    *,
    arms: Mapping[str, list[str]] | None = None,
) -> SweepPlan:
    """Return the trials of ``key=a,b,…`` overrides; ``key=value`` alone is the same in all.

    Commas inside brackets belong to a value: ``learner.betas=[0.9,0.95]`` is one.

    Args:
        file: the configuration file of all trials; None = the quickstart's values.
        overrides: of the command line.
        arms: lists of ``key=value`` by name (``read_arms``): what is compared where that differs in
            more than one key. All combinations are run in each arm.

    Raises:
        ConfigError: nothing is swept, a key is not for sweeping, or a trial's configuration is
            refused; all refusals are named.
    """
    fixed: list[str] = []
    grid: dict[str, list[str]] = {}
    overrides_of = dict(arms or {})
    if overrides_of:
        grid[ARM] = list(overrides_of)
    for override in overrides:
        key, _, text = override.partition("=")
        values = _values(text)
        if len(values) < 2:
            fixed.append(override)
            continue
        if key in grid:
            raise ConfigError(f"{key} is swept twice: give all its values at once")
        if len(set(values)) < len(values):
            raise ConfigError(f"{override}: a value is there twice")
        grid[key] = values
    if not grid:
        raise ConfigError(
            "nothing is swept: give two or more values of some key, such as advantage.alpha=0,0.1, "
            "or a file of --arms"
        )
    base = load_config(file, fixed)
    of_arms = [_key(override) for arm in overrides_of.values() for override in arm]
    _check_keys([*map(_key, fixed), *grid, *of_arms], {*grid, *of_arms}, base)
    trials = _trials(file, fixed, grid, overrides_of)
    return SweepPlan(fixed=fixed, grid=grid, arms=overrides_of, base=base, trials=trials)


def _key(override: str) -> str:
    return override.partition("=")[0]


def _values(text: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _check_keys(keys: Sequence[str], swept: Collection[str], base: TrainConfig) -> None:
    for key in keys:
        if key in _OWN:
            raise ConfigError(f"{key} is given by the sweep to each trial: use --out for all")
    if base.policy.path:
        return
    for key in swept:
        if key.startswith(SHARED):
            raise ConfigError(
                f"{key} cannot be swept: all trials share one warm start, which depends on it; "
                "make a sweep for each value, or give a trained policy.path"
            )


def _trials(
    file: Path | None,
    fixed: list[str],
    grid: dict[str, list[str]],
    overrides_of: dict[str, list[str]],
) -> list[Trial]:
    trials, refused = [], []
    for values in itertools.product(*grid.values()):
        own = dict(zip(grid, values, strict=True))
        overrides = [
            override
            for key, value in own.items()
            for override in (overrides_of[value] if key == ARM else [f"{key}={value}"])
        ]
        try:
            config = load_config(file, [*fixed, *overrides])
            get_transform(config.advantage.transform)
        except ConfigError as error:
            refused.append(f"{_words(own)}: {error}")
            continue
        trials.append(Trial(name=trial_name(own), values=own, overrides=overrides, config=config))
    if refused:
        raise ConfigError("; ".join(refused))
    names = {trial.name for trial in trials}
    if len(names) < len(trials):
        raise ConfigError("two trials would have the same name: shorten the values")
    return trials


def _words(values: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def trial_name(values: Mapping[str, str]) -> str:
    """Return a name that can be a directory's: the last word of each key, and its value."""
    parts = (f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
    return re.sub(r"[^\w.=+-]", "_", ",".join(parts)).replace("/", "_")
