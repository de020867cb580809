"""A configuration from a YAML file and ``key=value`` overrides; nothing else uses OmegaConf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.reference import config_values
from cast_ray.config.resources import PRESETS
from cast_ray.config.train import TrainConfig
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.errors import ConfigError
from cast_ray.files import written_aside

_VALUES_OF: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "algorithm": lambda name: ALGORITHMS[name],
    "resources.preset": lambda name: PRESETS[name],
    # The warm start is for an untrained network; its learning rate would ruin a trained one.
    "policy.path": lambda path: {"warm_start": {"steps": 0}} if path else {},
}
"""From a key whose value stands for other values to the function that returns these."""
PRESET_KEYS = tuple(_VALUES_OF)


def load_config(file: Path | None, overrides: Sequence[str]) -> TrainConfig:
    """Return defaults, then the YAML file, then ``key=value`` overrides, checked.

    The values that an algorithm (``learning.ALGORITHMS``) or a preset (``resources.PRESETS``)
    stands for are merged right below what names it, and so is ``warm_start.steps = 0`` below a
    ``policy.path``.

    Raises:
        ConfigError: an unreadable file, an unknown key or a bad value; the message names the key,
            the value and what is allowed.
    """
    layers: list[tuple[DictConfig, str]] = []
    if file is not None:
        layers.append((_read(file), str(file)))
    layers += [(_parse(override), override) for override in overrides]
    merged = OmegaConf.structured(TrainConfig)
    naming = {key: _naming_layer(key, layers) for key in _VALUES_OF}
    for i, (layer, origin) in enumerate(layers):
        for key, named in naming.items():
            # A file's values win over those that it names, but not over those named by an override.
            if named is not None and i == min(named, int(file is not None)):
                merged = _with_values_of(key, merged, *layers[named])
        merged = _merge(merged, layer, origin=origin)
    config = _to_object(merged)
    assert isinstance(config, TrainConfig)
    return config


def load_value_net_config(file: Path | None, overrides: Sequence[str]) -> ValueNetConfig:
    """Return the same for a value network's training.

    Raises:
        ConfigError: as for ``load_config``.
    """
    merged: object = OmegaConf.structured(ValueNetConfig)
    if file is not None:
        merged = _merge(merged, _read(file), origin=str(file), kind=ValueNetConfig)
    for override in overrides:
        merged = _merge(merged, _parse(override), origin=override, kind=ValueNetConfig)
    config = _to_object(merged)
    assert isinstance(config, ValueNetConfig)
    return config


def _to_object(merged: object) -> object:
    try:
        return OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(_one_line(error)) from None


def _read(file: Path) -> DictConfig:
    if not file.is_file():
        raise ConfigError(f"the configuration file {file} does not exist")
    try:
        layer = OmegaConf.load(file)
    except (YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {_one_line(error)}") from None
    if not isinstance(layer, DictConfig):
        raise ConfigError(f"{file} must hold key: value lines, not a list or a single value")
    return layer


def _parse(override: str) -> DictConfig:
    if "=" not in override:
        raise ConfigError(f"{override!r} is not of the form key=value")
    nothing = "''" if override.endswith("=") else ""  # YAML would read no value as null
    try:
        return OmegaConf.from_dotlist([override + nothing])
    except YAMLError as error:
        raise ConfigError(f"{override}: the value is not valid YAML: {_one_line(error)}") from None


def _naming_layer(key: str, layers: Sequence[tuple[DictConfig, str]]) -> int | None:
    """Return the last layer that sets a key of ``PRESET_KEYS``."""
    naming = [i for i, (layer, _) in enumerate(layers) if _value(layer, key) is not None]
    return naming[-1] if naming else None


def _value(layer: DictConfig, key: str) -> object | None:
    """Return what a layer sets a key to; None also if its section is not a mapping."""
    try:
        return OmegaConf.select(layer, key)
    except OmegaConfBaseException:  # reported when the layer is merged
        return None


def _with_values_of(key: str, base: object, layer: DictConfig, origin: str) -> object:
    """Return ``base`` with the values that a key's value in a layer stands for."""
    named = OmegaConf.create()
    OmegaConf.update(named, key, _value(layer, key))
    checked = _merge(base, named, origin=origin)
    assert isinstance(checked, DictConfig)
    return OmegaConf.merge(checked, dict(_VALUES_OF[key](OmegaConf.select(checked, key))))


def save_config(config: TrainConfig | ValueNetConfig, path: Path) -> None:
    """Write the resolved configuration as YAML that its loader reads back.

    Raises:
        EnvironmentSetupError: the file cannot be written; an existing one is unchanged.
    """
    with written_aside(path) as aside:
        aside.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))


def config_keys(kind: type = TrainConfig) -> Iterator[str]:
    """Yield every key of a configuration in dotted form."""
    return (key for key, _ in config_values(kind()))


def _merge(base: object, layer: object, *, origin: str, kind: type = TrainConfig) -> object:
    try:
        return OmegaConf.merge(base, layer)
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", None) or origin.partition("=")[0])
        section = key[: key.rfind(".") + 1]
        below = [name[len(section) :] for name in config_keys(kind) if name.startswith(section)]
        # A name with more below it is a section: listed once.
        allowed = list(dict.fromkeys(section + name.partition(".")[0] for name in below))
        hint = "" if key in allowed else f" (keys there: {', '.join(allowed)})"
        raise ConfigError(f"{origin}: key {key}: {_one_line(error)}{hint}") from None


def _one_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0].strip()
