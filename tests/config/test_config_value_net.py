"""The configuration of a value network: the paper's by default, and what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cast_ray.config.load import config_keys, load_value_net_config, save_config
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.errors import ConfigError

_CONFIGS = Path(__file__).parents[2] / "configs" / "value_net"
EXAMPLES = sorted(_CONFIGS.glob("*.yaml"))


def test_defaults_are_the_papers() -> None:
    config = load_value_net_config(None, [])
    assert config == ValueNetConfig()
    assert (config.game, config.tier, config.puzzles.num_train) == ("rush_hour", "id", 8000)
    net, dqn, stages = config.network, config.dqn, config.distillation
    assert (net.d_model, net.num_heads, net.num_layers, net.output_size) == (128, 8, 3, 512)
    assert (dqn.steps, dqn.n_step, dqn.gamma, dqn.lr) == (3_000_000, 3, 0.99, 1e-4)
    assert dqn.step_penalty == 0.01
    assert (stages.epochs, stages.first_lr, stages.second_lr) == (150, 1e-3, 5e-4)
    assert stages.prior_weight == 0.05


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid_and_read_back_equal(path: Path, tmp_path: Path) -> None:
    config = load_value_net_config(path, ["seed=3"])
    assert config.seed == 3
    save_config(config, tmp_path / "config.yaml")
    assert load_value_net_config(tmp_path / "config.yaml", []) == config


def test_the_papers_file_changes_nothing_of_the_paper() -> None:
    paper = load_value_net_config(_CONFIGS / "paper_rush_hour.yaml", [])
    config = ValueNetConfig()
    assert paper.dqn == replace(config.dqn, num_env_runners=paper.dqn.num_env_runners)
    for section in ("network", "distillation", "puzzles", "tier", "shuffle_vehicles"):
        assert getattr(paper, section) == getattr(config, section)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dqn.stepz=3", r"dqn\.stepz.*mean dqn\.steps\?"),
        ("puzzle.num_train=3", "puzzle.*mean puzzles"),
        ("dqn.steps=0", r"dqn\.steps .*1.*0"),
        ("dqn.gamma=1.01", r"dqn\.gamma .*\(0, 1\].*1\.01"),
        ("dqn.step_penalty=1", r"dqn\.step_penalty .*\[0, 1\)"),
        ("dqn.lr=0", r"dqn\.lr .*> 0.*0"),
        ("dqn.replay_ratio=0", r"dqn\.replay_ratio .*> 0"),
        ("dqn.epsilon_end=2", r"dqn\.epsilon_end .*0.*1"),
        ("network.num_heads=3", r"network\.num_heads .*d_model.*128.*3"),
        ("distillation.epochs=0", r"distillation\.epochs .*1"),
        ("distillation.prior_weight=-1", r"distillation\.prior_weight .*0"),
        ("distillation.epsilon=1.5", r"distillation\.epsilon .*0.*1"),
        ("checkpoint_every=0", "checkpoint_every .*1"),
        ("device=tpu", "key device"),
        ("dqn.steps", "dqn.steps.*key=value"),
    ],
)
def test_what_is_wrong_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_value_net_config(None, [override])


def test_no_key_of_a_training_run_is_taken_for_one_of_a_network() -> None:
    assert "dqn.n_step" in set(config_keys(ValueNetConfig))
    assert "dqn.n_step" not in set(config_keys())
