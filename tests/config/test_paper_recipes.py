"""The files for the paper's runs hold the numbers of the page that names their sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper_recipes.md").read_text()
GAMES = ("sokoban", "minesweeper", "rush_hour")
ALGORITHMS = ("cast", "dapo", "grpo", "gspo", "gigpo")
_TABLE = PAGE.partition("| key | value |")[2].partition("\n\n")[0]
ROWS = [
    (re.findall(r"`([a-z_.]+)`", keys), value, section)
    for keys, value, section in re.findall(
        r"^\| (`.+?) \| (.+?) \| (\d?) ?\|", _TABLE, re.MULTILINE
    )
]


def recipe(game: str, algorithm: str) -> tuple[TrainConfig, Path]:
    file = ROOT / "configs" / "train" / f"paper_{game}.yaml"
    words = [] if algorithm == "cast" else [f"algorithm={algorithm}"]
    return load_config(file, words), file


def values_for(cell: str, names: set[str]) -> list[object]:
    """Return the values of a cell's first part that is of one of the names, or of all."""
    for part in cell.split("; "):
        values, _, whose = part.partition(" (")
        if not whose or names & set(whose.rstrip(")").split(", ")):
            return [OmegaConf.create(f"v: {v}").v for v in re.findall(r"`([^`]+)`", values)]
    raise AssertionError(f"{cell!r} says nothing of {names}")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("game", GAMES)
def test_every_number_is_the_table_s(game: str, algorithm: str) -> None:
    config, _ = recipe(game, algorithm)
    values = OmegaConf.structured(config)
    assert config.game == game
    for keys, cell, _ in ROWS:
        found = [OmegaConf.select(values, key) for key in keys]
        found = [list(one) if type(one).__name__ == "TupleConfig" else one for one in found]
        assert found == values_for(cell, {game, algorithm}), keys


@pytest.mark.parametrize("game", GAMES)
def test_every_key_of_a_file_is_in_the_table(game: str) -> None:
    _, file = recipe(game, "cast")
    named = {key for keys, _, _ in ROWS for key in keys}
    given = yaml.safe_load(file.read_text())
    flat = {
        f"{section}.{key}" if isinstance(value, dict) else section
        for section, value in given.items()
        for key in (value if isinstance(value, dict) else [""])
    }
    assert flat - named == {"game", "policy.path"}


def test_the_table_is_read_whole() -> None:
    assert len(ROWS) == _TABLE.count("\n| `") > 25
    assert {section for _, _, section in ROWS} == {"", "1", "3", "4", "5"}


def test_the_recipes_take_the_eight_gpus_that_the_page_counts_on() -> None:
    resources = recipe("sokoban", "cast")[0].resources
    assert resources.engines * resources.gpus_per_engine == 4
    assert resources.learner_ranks * resources.gpus_per_learner_rank == 4


def test_the_page_adds_up() -> None:
    read = 8 + 128 / 4 * 2048 * 147e3 / 1e9
    engine = 0.6 * 32 / (read / 3350)
    assert round(engine, -1) == 3650
    play = 128 * 4096 / (4 * 3650 * 0.9)
    attention = 5 * 4 * (1.25 * 4096 / 2) * 32 * 128 * 36  # five passes, causal, all layers
    rank = 0.4 * 989e12 / (40e9 + attention)
    assert round(rank, -2) == 8300
    learn = 128 * 4096 * 1.25 / (4 * round(rank, -2) * 0.95)
    step = play + learn + 4
    assert (round(play), round(learn), round(step)) == (40, 21, 65)
    for name, steps in (("Sokoban", 200), ("Minesweeper", 400), ("Rush Hour", 300)):
        hours = steps * round(step) / 3600
        row = f"| {name} | {steps} | {hours:.1f} | {8 * hours:.0f} | {24 * hours:.0f} |"
        assert row in PAGE
    assert f"| **a step** | | **{step:.0f}** |" in PAGE


def test_the_table_by_length_of_games_adds_up() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    table = page.partition("| mean tokens written per game |")[2].partition("\n\n")[0]
    [play] = re.findall(r"^\| play: .*$", table, re.MULTILINE)
    [learn] = re.findall(r"^\| learn \|.*$", table, re.MULTILINE)
    [step] = re.findall(r"^\| a step on .*$", table, re.MULTILINE)
    bandwidth, flops = 0.6 * 3350e9, 0.4 * 989e12
    plays = re.findall(r"(\d+) s \+ (\d+) s / E", play)
    learns, steps = re.findall(r"(\d+) s / R", learn), re.findall(r"(\d+) s", step)
    for column, tokens in enumerate((4096, 8192, 12_288)):
        weights = tokens * 8e9 / bandwidth
        cache = tokens * 128 * (tokens / 2) * 147e3 / bandwidth
        attention = 5 * 4 * (1.25 * tokens / 2) * 32 * 128 * 36
        learned = 128 * 1.25 * tokens * (40e9 + attention) / flops
        found = [int(x) for x in (*plays[column], learns[column], steps[column])]
        expected = [weights, cache, learned, weights + (cache + learned) / 4]
        assert found == pytest.approx(expected, rel=0.02, abs=1)
