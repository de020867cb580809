"""Tiers that users describe in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from cast_ray.config.load import load_config, save_config
from cast_ray.config.tiers import described_tier
from cast_ray.errors import ConfigError
from cast_ray.games import find_tier
from tests.support.refusals import refused

BIG = {
    "rows": 20,
    "cols": 12,
    "num_pieces": 0,
    "min_cost": 1,
    "max_cost": 300,
    "turn_budget": 320,
}


def written(folder: Path, **changes: object) -> Path:
    file = folder / "my big.yaml"
    values = {key: value for key, value in (BIG | changes).items() if value is not None}
    file.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    return file


def test_a_description_is_a_tier_wherever_its_text_goes(tmp_path: Path) -> None:
    text = described_tier(str(written(tmp_path)))
    assert text == "my-big@20x12x0,1-300,320"
    tier = find_tier("sokoban", text)
    assert (tier.name, tier.rows, tier.cols, tier.num_pieces) == (text, 20, 12, 0)
    assert (tier.min_cost, tier.max_cost, tier.turn_budget) == (1, 300, 320)
    assert not tier.cost_may_be_infinite
    assert find_tier("minesweeper", text).cost_may_be_infinite


def test_the_experiment_s_tiers_are_those_of_its_design() -> None:
    root = Path(__file__).parents[2]
    design = (root / "docs/horizon.md").read_text()
    for name in ("far", "middle", "near"):
        assert f"`{described_tier(str(root / f'configs/tiers/{name}.yaml'))}`" in design


def test_a_run_keeps_the_description_without_the_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    save_config(load_config(None, [f"tier={file}"]), tmp_path / "config.yaml")
    file.unlink()
    assert load_config(tmp_path / "config.yaml", []).tier == "my-big@20x12x0,1-300,320"


def test_a_name_stays_a_name() -> None:
    assert described_tier("mini") == "mini"
    assert find_tier("sokoban", "mini").rows == 6


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"rows": None}, ("my big.yaml", "rows, cols, num_pieces")),
        ({"depth": 3}, ("my big.yaml", "depth")),
        ({"rows": "many"}, ("rows", "whole number", "'many'")),
        ({"rows": -1}, ("rows", "-1")),
        ({"turn_budget": 0}, ("turn_budget", "from 1", "0")),
        ({"turn_budget": "true"}, ("turn_budget", "True")),
        ({"min_cost": 301}, ("min_cost 301", "300")),
        ({"rows": "{"}, ("my big.yaml", "cannot be read")),
    ],
)
def test_a_faulty_description_is_refused(
    changes: dict[str, object], facts: tuple[str, ...], tmp_path: Path
) -> None:
    with refused(ConfigError, *facts):
        described_tier(str(written(tmp_path, **changes)))


def test_what_is_no_tier_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with refused(ConfigError, "none.yaml", "cannot be read"):
        described_tier(str(tmp_path / "none.yaml"))
    with refused(ConfigError, "id, unseen, mini", "'huge'"):
        find_tier("sokoban", "huge")
    with refused(ConfigError, "'a@1x2'"):
        find_tier("sokoban", "a@1x2")
