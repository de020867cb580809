"""The reference of configuration keys says of every key what it is, and says it right."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cast_ray.algorithms.advantages import TRANSFORMS
from cast_ray.cli.config import described_keys
from cast_ray.cli.main import app
from cast_ray.config.learning import ALGORITHMS
from cast_ray.config.load import config_keys, load_config, load_value_net_config
from cast_ray.config.reference import ConfigKey, config_reference, differing_values
from cast_ray.config.train import TrainConfig
from cast_ray.config.value_net import ValueNetConfig

KINDS = {TrainConfig: load_config, ValueNetConfig: load_value_net_config}
KEYS = [(kind, one) for kind in KINDS for one in config_reference(kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_there_once_and_has_a_meaning(kind: type) -> None:
    found = list(config_reference(kind))
    assert [one.key for one in found] == list(config_keys(kind))
    for one in found:
        assert one.meaning.endswith((".", ")")), one


@pytest.mark.parametrize(("kind", "one"), KEYS, ids=lambda x: getattr(x, "key", ""))
def test_a_default_as_written_is_the_default(kind: type, one: ConfigKey) -> None:
    load = KINDS[kind]
    if one.key == "resources.preset":  # naming it is a word for others
        assert load(None, [f"{one.key}={one.default}"]).resources.preset == one.default
        return
    assert load(None, [f"{one.key}={one.default}"]) == load(None, [])


@pytest.mark.parametrize(
    ("key", "allowed", "default"),
    [
        ("algorithm", ", ".join(ALGORITHMS), "cast"),
        ("learner.betas", "[number, number]", "[0.9,0.95]"),
        ("engine.export_metrics", "true, false", "false"),
        ("steps", "integer", "15"),
    ],
)
def test_types_are_in_the_words_of_the_command_line(key: str, allowed: str, default: str) -> None:
    one = next(one for one in config_reference() if one.key == key)
    assert set(one.allowed.split(", ")) == set(allowed.split(", "))
    assert one.default == default


@pytest.mark.parametrize("kind", KINDS)
def test_names_from_a_table_elsewhere_are_shown(kind: type) -> None:
    found = {one.key: one.allowed for one in described_keys(kind)}
    assert list(found) == list(config_keys(kind))
    if kind is TrainConfig:
        assert found["advantage.transform"].split(", ") == list(TRANSFORMS)


def test_the_command_shows_a_section_and_refuses_what_is_none() -> None:
    shown = CliRunner().invoke(app, ["config", "advantage.al"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith("advantage.alpha=1.0  (number)\n    Weight of the solver")
    assert "step_penalty" in CliRunner().invoke(app, ["config", "--value-net", "dqn"]).stdout
    refused = CliRunner().invoke(app, ["config", "nonsense"])
    assert "no key begins with 'nonsense'" in str(refused.exception)


def test_options_of_an_open_section_are_compared_like_others() -> None:
    stored = load_config(None, ["engine.vllm={max_num_seqs: 4}"])
    assert list(differing_values(stored, load_config(None, []))) == ["engine.vllm"]
    assert differing_values(stored, stored) == {}
