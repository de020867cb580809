"""Plans a sweep: one trial for every combination of the given values.

Settings that differ in several keys are arms: names, each with its own list of ``key=value``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from cast_ray.algorithms.advantages import get_transform
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError
from cast_ray.files import read_yaml
from cast_ray.games.registry import comma_separated

SHARED = ("game", "tier", "policy.", "warm_start.", "puzzles.")
"""Keys of the warm start, which all trials share."""
_OWN = ("run_dir",)
"""Keys that the sweep sets for each trial."""
ARM = "arm"
"""Name of a trial's arm among its swept keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training run of a sweep."""

    name: str
    values: dict[str, str]
    """Its arm, and its value of each swept key as written."""
    overrides: list[str]
    """The same as arguments of ``cast-ray train``."""
    config: TrainConfig

    @property
    def setting(self) -> dict[str, str]:
        """Its values without the seed: trials with the same setting are repetitions."""
        return {key: value for key, value in self.values.items() if key != "seed"}


class SweepNote(TypedDict):
    """What a sweep's ``sweep.json`` says: ``SweepPlan.given``."""

    fixed: list[str]
    grid: dict[str, list[str]]
    arms: NotRequired[dict[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The trials of a sweep."""

    fixed: list[str]
    """``key=value`` of all trials."""
    grid: dict[str, list[str]]
    """The values of each swept key, arms first."""
    arms: dict[str, list[str]]
    """``key=value`` of each arm; {} = no arms."""
    trials: list[Trial]
    base: TrainConfig
    """Configuration of all trials, without the swept keys."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that determine the trials, as JSON values."""
        arms = {"arms": self.arms} if self.arms else {}
        return {"fixed": self.fixed, "grid": self.grid} | arms

    def extends(self, earlier: SweepNote) -> bool:
        """Return whether it contains all trials of another plan (its ``given``)."""
        return (
            sorted(self.fixed) == sorted(earlier["fixed"])
            and list(self.grid) == list(earlier["grid"])
            and all(set(values) <= set(self.grid[key]) for key, values in earlier["grid"].items())
            and all(self.arms.get(name) == own for name, own in earlier.get("arms", {}).items())
        )

    @property
    def needs_warm_start(self) -> bool:
        """Whether a start model must be taught first, for all trials."""
        return self.base.warm_start.steps > 0


def read_arms(file: Path) -> dict[str, list[str]]:
    """Read the arms of a YAML file: a ``key=value`` list by name.

    Raises:
        ConfigError: it is missing, or holds something else.
    """
    found = read_yaml(file)
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{file} must hold arms, one per line: name: [key=value, …]")
    for name, arm in found.items():
        if not isinstance(arm, list) or not all(isinstance(one, str) for one in arm):
            raise ConfigError(
                f"{file}, arm {name}: give a list of key=value such as [algorithm=dapo], or [], "
                f"got {repr(arm)[:80]}"
            )
    return {str(name): arm for name, arm in found.items()}


def plan_sweep(
    file: Path | None,
    overrides: Sequence[str],
    *,
    arms: Mapping[str, list[str]] | None = None,
) -> SweepPlan:
    """Return the trials of ``key=a,b,…`` overrides; ``key=value`` applies to all trials.

    Commas in brackets are part of a value: ``learner.betas=[0.9,0.95]`` is one. So are those of a
    described tier: ``tier=far@6x6x1,8-12,16``.

    Args:
        file: the configuration file of all trials; None = the quickstart's values.
        overrides: of the command line.
        arms: lists of ``key=value`` by name (``read_arms``), for settings that differ in several
            keys. Each arm is run with all combinations.

    Raises:
        ConfigError: nothing is swept, a key cannot be swept, or configurations of trials are
            invalid; the message has the errors of all trials.
    """
    fixed: list[str] = []
    grid: dict[str, list[str]] = {}
    overrides_of = dict(arms or {})
    if overrides_of:
        grid[ARM] = list(overrides_of)
    for override in overrides:
        key, _, text = override.partition("=")
        values = comma_separated(text)
        if len(values) < 2:
            fixed.append(override)
            continue
        if key in grid:
            raise ConfigError(f"{key} is swept twice: give all its values in one argument")
        if len(set(values)) < len(values):
            raise ConfigError(f"{override}: a value is repeated; give each once")
        grid[key] = values
    if not grid:
        raise ConfigError(
            "nothing is swept: give several values of a key, such as advantage.alpha=0,0.1, or "
            "a file with --arms"
        )
    base = load_config(file, fixed)
    of_arms = [_key(override) for arm in overrides_of.values() for override in arm]
    _check_keys([*map(_key, fixed), *grid, *of_arms], {*grid, *of_arms}, base)
    trials = _trials(file, fixed, grid, overrides_of)
    return SweepPlan(fixed=fixed, grid=grid, arms=overrides_of, base=base, trials=trials)


def _key(override: str) -> str:
    return override.partition("=")[0]


def _check_keys(keys: Sequence[str], swept: Collection[str], base: TrainConfig) -> None:
    for key in keys:
        if key in _OWN:
            raise ConfigError(f"{key} is set by the sweep for each trial: use --out instead")
    if base.policy.path:
        return
    for key in swept:
        if key.startswith(SHARED):
            raise ConfigError(
                f"{key} cannot be swept: all trials share one warm start, which depends on it; "
                "run one sweep per value, or give a trained policy.path"
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
            refused.append(f"{' '.join(f'{key}={value}' for key, value in own.items())}: {error}")
            continue
        trials.append(Trial(name=trial_name(own), values=own, overrides=overrides, config=config))
    if refused:
        raise ConfigError("; ".join(refused))
    names = {trial.name for trial in trials}
    if len(names) < len(trials):
        raise ConfigError(
            "two trials have the same name: give values that differ in letters or digits"
        )
    return trials


def trial_name(values: Mapping[str, str]) -> str:
    """Return a trial's name as a directory: the last part of each key, and its value."""
    parts = (f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
    return re.sub(r"[^\w.=+-]", "_", ",".join(parts)).replace("/", "_")
