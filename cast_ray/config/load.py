"""A configuration from its YAML file and ``key=value`` overrides: the only place with OmegaConf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.resources import MOVED, PRESETS
from cast_ray.config.train import TrainConfig
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.errors import ConfigError
from cast_ray.files import written_aside

_VALUES_OF: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "algorithm": lambda name: ALGORITHMS[name],
    "resources.preset": lambda name: PRESETS[name],
    # The warm start teaches a network that knows nothing; at its rate a trained one forgets all.
    "policy.path": lambda path: {"warm_start": {"steps": 0}} if path else {},
}
"""Keys whose word stands for a set of values."""
PRESET_KEYS = tuple(_VALUES_OF)
"""These keys."""


def load_config(file: Path | None, overrides: Sequence[str]) -> TrainConfig:
    """Return defaults, then the YAML file, then ``key=value`` overrides, checked.

    The values of an algorithm (``config_learning.ALGORITHMS``) and of a preset
    (``config_resources.PRESETS``) stand right below what names them, and so does ``warm_start.steps
    = 0`` below a ``policy.path``.

    Raises:
        ConfigError: an unreadable file, an unknown key or a bad value; key, value and what is
            allowed are named.
    """
    layers: list[tuple[DictConfig, str]] = []
    if file is not None:
        layers.append((_read(file), str(file)))
    layers += [(_parse(override), override) for override in overrides]
    merged = OmegaConf.structured(TrainConfig)
    words = {key: _where_named(key, layers, has_file=file is not None) for key in _VALUES_OF}
    for i, (layer, origin) in enumerate(layers):
        for key, named in words.items():
            if named is not None and i == named.below:
                merged = _with_values_of(key, merged, *layers[named.in_layer])
        merged = _merge(merged, layer, origin=origin)
    config = _to_object(merged)
    assert isinstance(config, TrainConfig)
    return config


def load_value_net_config(file: Path | None, overrides: Sequence[str]) -> ValueNetConfig:
    """Return the same of a value network's training: defaults, file, overrides, checked.

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
    nothing = "''" if override.endswith("=") else ""  # YAML would read none at all as null
    try:
        return OmegaConf.from_dotlist([override + nothing])
    except YAMLError as error:
        raise ConfigError(f"{override}: the value is not valid YAML: {_one_line(error)}") from None


@dataclass(frozen=True, slots=True)
class _Named:
    """Where a word stands for a set of values."""

    in_layer: int
    """The last that names it."""
    below: int
    """The values go right below this one: a file's own win over what it names itself, and a word
    on the command line wins over the file's values."""


def _where_named(
    key: str, layers: Sequence[tuple[DictConfig, str]], *, has_file: bool
) -> _Named | None:
    named_in = [i for i, (layer, _) in enumerate(layers) if _word(layer, key) is not None]
    return _Named(named_in[-1], min(named_in[-1], int(has_file))) if named_in else None


def _word(layer: DictConfig, key: str) -> object | None:
    """Return what a layer says for a key; None also where its section is no section."""
    try:
        return OmegaConf.select(layer, key)
    except OmegaConfBaseException:  # said when the layer is merged
        return None


def _with_values_of(key: str, base: object, layer: DictConfig, origin: str) -> object:
    """Return ``base`` with the values that the word in a layer stands for."""
    word = _word(layer, key)
    named = OmegaConf.create()
    OmegaConf.update(named, key, word)
    checked = _merge(base, named, origin=origin)
    assert isinstance(checked, DictConfig)
    return OmegaConf.merge(checked, dict(_VALUES_OF[key](OmegaConf.select(checked, key))))


def save_config(config: TrainConfig | ValueNetConfig, path: Path) -> None:
    """Write the configuration as resolved, as YAML that its loader reads back.

    Raises:
        EnvironmentSetupError: the file cannot be written; an older one is still there.
    """
    with written_aside(path) as aside:
        aside.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)))


def config_keys(kind: type = TrainConfig, prefix: str = "") -> Iterable[str]:
    """Yield every key of a configuration in dotted form."""
    for item in fields(kind):
        section = item.default_factory  # sections are the fields with a factory
        if isinstance(section, type) and is_dataclass(section):
            yield from config_keys(section, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name


def _merge(base: object, layer: object, *, origin: str, kind: type = TrainConfig) -> object:
    try:
        return OmegaConf.merge(base, layer)
    except OmegaConfBaseException as error:
        key = str(getattr(error, "full_key", None) or origin.partition("=")[0])
        section = key[: key.rfind(".") + 1]
        below = [name[len(section) :] for name in config_keys(kind) if name.startswith(section)]
        # A name with more below it is a section: named once.
        allowed = list(dict.fromkeys(section + name.partition(".")[0] for name in below))
        hint = "" if key in allowed else f" (keys there: {', '.join(allowed)})"
        if key in MOVED:
            hint = f" (it is {MOVED[key]} now)"
        raise ConfigError(f"{origin}: key {key}: {_one_line(error)}{hint}") from None


def _one_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0].strip()
