"""A configuration from a YAML file and ``key=value`` overrides; nothing else uses OmegaConf."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.pretrained import values_for
from cast_ray.config.reference import config_values
from cast_ray.config.resources import PRESETS
from cast_ray.config.tiers import ENVIRONMENTS, TASKS_TIER, described_tier
from cast_ray.config.train import TrainConfig
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.errors import ConfigError
from cast_ray.files import written_aside
from cast_ray.functions import pinned_name

_VALUES_OF: Mapping[str, Callable[[Any, bool], Mapping[str, Any]]] = {
    "algorithm": lambda name, _: ALGORITHMS[name],
    "resources.preset": lambda name, _: PRESETS[name],
    "policy.path": lambda path, with_lora: values_for(path, with_lora=with_lora),
    "game": lambda name, _: _game_values(name),
}
"""From a key whose value stands for other values to the function that returns these, of that value
and of whether adapters are trained."""
PRESET_KEYS = tuple(_VALUES_OF)
_STORED_BYTES = 1 << 20
_INTERPOLATION = re.compile(r"(\\*)\$\{")
Layer: TypeAlias = tuple[DictConfig, str]
"""Values that win over earlier ones, and where they come from, for messages."""


def _game_values(name: str) -> Mapping[str, Any]:  # Any: values of the configuration
    """Return what an environment of the user's stands for; nothing for a game or benchmark.

    It has one tier, and no solver that could demonstrate good play.
    """
    is_own = ":" in str(name) or entry_points(group=ENVIRONMENTS, name=name)
    return {"tier": TASKS_TIER, "warm_start": {"steps": 0}} if is_own else {}


def load_config(
    file: Path | None, overrides: Sequence[str], *, is_stored: bool = False
) -> TrainConfig:
    """Return defaults, then the YAML file, then ``key=value`` overrides, checked.

    A stored file came with a run, perhaps a stranger's: OmegaConf's interpolations in it, such as
    ``${oc.env:HOME}``, are text.

    The values that an algorithm (``learning.ALGORITHMS``) or a preset (``resources.PRESETS``)
    stands for are merged right below what names it, and so is what a model stands for
    (``pretrained.values_for``) below its ``policy.path``.

    Raises:
        ConfigError: an unreadable file, an unknown key or a bad value; the message names the key,
            the value and what is allowed.
    """
    layers = _layers(file, overrides, kind=TrainConfig, is_stored=is_stored)
    try:
        return resolve(layers, has_file=file is not None)
    except ConfigError as error:
        if file is None or overrides or str(file) in str(error):
            raise
        raise ConfigError(f"{file}: {error}") from None


def resolve(layers: Sequence[Layer], *, has_file: bool) -> TrainConfig:
    """Return defaults, then layers, checked; ``has_file``: the first one is a whole file's.

    Raises:
        ConfigError: as for ``load_config``.
    """
    config = _checked(_merged(_defaults(TrainConfig), layers, has_file=has_file))
    assert isinstance(config, TrainConfig)
    pinned = {key: pinned_name(key, name) for key, name in config.functions.items()}
    return replace(config.with_values(pinned), tier=described_tier(config.tier))


def merged_layers(layers: Sequence[Layer], *, has_file: bool) -> dict[str, Any]:
    """Return what layers set, nested and unchecked, so that ``resolve`` of it alone is the same.

    What a preset in a later layer stands for is written out: in one layer a file's values would
    win over it.
    """
    base = OmegaConf.create({}, flags={"allow_objects": True})
    found = OmegaConf.to_container(_merged(base, layers, has_file=has_file))
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def mapping_layer(values: Mapping[str, Any], origin: str) -> Layer:
    """Return nested values as a layer; they may hold objects, such as search spaces."""
    return OmegaConf.create(dict(values), flags={"allow_objects": True}), origin


def yaml_layer(file: Path) -> Layer:
    """Return a YAML file as a layer.

    Raises:
        ConfigError: it is missing, or is not YAML of sections.
    """
    return _read(file), str(file)


def load_value_net_config(
    file: Path | None, overrides: Sequence[str], *, is_stored: bool = False
) -> ValueNetConfig:
    """Return the same for a value network's training.

    Raises:
        ConfigError: as for ``load_config``.
    """
    base = _defaults(ValueNetConfig)
    layers = _layers(file, overrides, kind=ValueNetConfig, is_stored=is_stored)
    for layer, origin in layers:
        base = _merge(base, layer, origin=origin, kind=ValueNetConfig)
    config = _checked(base)
    assert isinstance(config, ValueNetConfig)
    return replace(config, tier=described_tier(config.tier))


@cache
def _structured(kind: type) -> DictConfig:
    """Return a configuration's defaults, not to be changed: to make them takes 60 ms."""
    return OmegaConf.structured(kind)


def _defaults(kind: type) -> DictConfig:
    return copy.deepcopy(_structured(kind))


def _layers(
    file: Path | None, overrides: Sequence[str], *, kind: type, is_stored: bool
) -> list[Layer]:
    read = _read_stored if is_stored else _read
    given = [] if file is None else [(read(file), str(file))]
    defaults = _structured(kind)
    return given + [(_parse(override, defaults), override) for override in overrides]


def _merged(base: DictConfig, layers: Sequence[Layer], *, has_file: bool) -> DictConfig:
    """Return ``base``, changed: layers merged in order, each below what it names."""
    naming = {key: _naming_layer(key, layers) for key in PRESET_KEYS}
    ranks = [_value(layer, "learner.lora_rank") for layer, _ in layers]
    with_lora = bool(next((rank for rank in reversed(ranks) if rank is not None), 0))
    for i, (layer, origin) in enumerate(layers):
        for key, named in naming.items():
            # A file's values win over those that it names, but not over those named by an override;
            # if the file names a model, they are meant for the one that an override names, too.
            is_for_a_model = key == "policy.path" and has_file and _value(layers[0][0], key)
            if named is not None and i == min(named, int(has_file and not is_for_a_model)):
                base = _with_values_of(key, base, *layers[named], with_lora=with_lora)
        base = _merge(base, layer, origin=origin)
    return base


def _checked(merged: object) -> object:
    try:
        return OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(_one_line(error)) from None


def _read(file: Path) -> DictConfig:
    if not file.is_file():
        raise ConfigError(f"the configuration file {file} does not exist")
    try:
        layer = OmegaConf.load(file)
    except (YAMLError, OSError, ValueError) as error:
        raise ConfigError(f"{file} is not valid YAML: {_one_line(error)}") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply for a configuration") from None
    if not isinstance(layer, DictConfig):
        raise ConfigError(f"{file} must hold key: value lines, not a list or a single value")
    return layer


def _read_stored(file: Path) -> DictConfig:
    """Return a stored file with its interpolations as text.

    Raises:
        ConfigError: it is none that ``save_config`` wrote: too large, or with anchors, by which a
            few lines of YAML are gigabytes, or it names a file that describes its tier.
    """
    if file.is_file() and file.stat().st_size > _STORED_BYTES:
        raise ConfigError(f"{file} is no stored configuration: it is larger than {_STORED_BYTES} B")
    try:
        has_anchors = any(
            token.id == "<anchor>" for token in yaml.scan(file.read_bytes(), yaml.CSafeLoader)
        )
    except (YAMLError, OSError, ValueError):
        has_anchors = False  # what is wrong is said by what reads it
    if has_anchors:
        raise ConfigError(f"{file} is no stored configuration: it has anchors")
    layer = OmegaConf.create(_as_text(OmegaConf.to_container(_read(file), resolve=False)))
    if str(layer.get("tier", "")).endswith((".yaml", ".yml")):
        raise ConfigError(f"{file} is no stored configuration: its tier is a file")
    assert isinstance(layer, DictConfig)
    return layer


def _as_text(value: Any) -> Any:  # Any: what YAML can hold
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    # In front of an interpolation a backslash is no text either.
    return _INTERPOLATION.sub(r"\1\1\\${", value) if isinstance(value, str) else value


def _parse(override: str, defaults: DictConfig) -> DictConfig:
    key, separator, value = override.partition("=")
    if not separator:
        raise ConfigError(f"{override!r} is not of the form key=value")
    if isinstance(_value(defaults, key), str):  # as it is: in YAML ` #` begins a comment
        layer = OmegaConf.create()
        OmegaConf.update(layer, key, value)
        return layer
    nothing = "" if value else "''"  # YAML would read no value as null
    try:
        return OmegaConf.from_dotlist([override + nothing])
    except YAMLError as error:
        raise ConfigError(f"{override}: the value is not valid YAML: {_one_line(error)}") from None


def _naming_layer(key: str, layers: Sequence[tuple[DictConfig, str]]) -> int | None:
    """Return the last layer that sets a key of ``PRESET_KEYS``."""
    naming = [i for i, (layer, _) in enumerate(layers) if _value(layer, key) is not None]
    # Ray Tune chooses a search space's value later, and the trial then names it in its only layer.
    return naming[-1] if naming and isinstance(_value(layers[naming[-1]][0], key), str) else None


def _value(layer: DictConfig, key: str) -> object | None:
    """Return what a layer sets a key to; None also if its section is not a mapping."""
    try:
        return OmegaConf.select(layer, key)
    except OmegaConfBaseException:  # reported when the layer is merged
        return None


def _with_values_of(
    key: str, base: DictConfig, layer: DictConfig, origin: str, *, with_lora: bool
) -> DictConfig:
    """Return ``base``, changed, with the values that a key's value in a layer stands for."""
    named = OmegaConf.create()
    OmegaConf.update(named, key, _value(layer, key))
    checked = _merge(base, named, origin=origin)
    values = _VALUES_OF[key](OmegaConf.select(checked, key), with_lora)
    return _merge(checked, OmegaConf.create(dict(values)), origin=origin)


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


def _merge(
    base: DictConfig, layer: DictConfig, *, origin: str, kind: type = TrainConfig
) -> DictConfig:
    try:
        # Of the base, which is large, no copy is made. A layer may be merged again elsewhere.
        merged = OmegaConf.unsafe_merge(base, copy.deepcopy(layer))
    except (OmegaConfBaseException, TypeError, OverflowError, RecursionError) as error:
        key = str(getattr(error, "full_key", None) or origin.partition("=")[0])
        section = key[: key.rfind(".") + 1]
        below = [name[len(section) :] for name in config_keys(kind) if name.startswith(section)]
        # A name with more below it is a section: listed once.
        allowed = list(dict.fromkeys(section + name.partition(".")[0] for name in below))
        if key in allowed:
            raise ConfigError(f"{origin}: key {key}: {_one_line(error)}") from None
        known = [*allowed, *config_keys(kind)]
        close = [name for name in known if name.endswith(f".{key}")]
        close = close or difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        meant = f"did you mean {' or '.join(close)}?"
        hint = meant if close else f"keys there: {', '.join(allowed)}"
        raise ConfigError(f"{origin}: there is no key {key}: {hint}") from None
    assert isinstance(merged, DictConfig)
    return merged


def _one_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0].strip()
