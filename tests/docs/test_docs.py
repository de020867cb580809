"""The pages in docs/ show code that exists, and commands that work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.config.load import load_config
from cast_ray.games.testing import CHECKS
from tests.support.installed import LIGHTS_OUT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add_a_game.md").read_text()
_BLOCK = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(kind, file, text) for kind, file, text in _BLOCK.findall(PAGE) if kind]


@pytest.mark.parametrize(
    ("file", "text"), [(file, text) for kind, file, text in BLOCKS if kind != "sh"]
)
def test_code_on_the_page_stands_so_in_the_file(file: str, text: str) -> None:
    assert f"\n{text}" in "\n" + (LIGHTS_OUT / file).read_text()


def test_files_on_the_page_are_those_of_the_package() -> None:
    tree = PAGE.partition("```\nlights_out/")[2].partition("```")[0]
    named = {line.split()[0].rstrip("/") for line in tree.splitlines()[1:]}
    assert named == {"pyproject.toml", "lights_out", "__init__.py", "game.py", "solver.py"} | {
        "test_lights_out.py"
    }
    for name in named:
        assert list(LIGHTS_OUT.rglob(name)), name


def test_commands_on_the_page_exist() -> None:
    commands = [
        shlex.split(line) for kind, _, text in BLOCKS if kind == "sh" for line in text.splitlines()
    ]
    train, evaluate = commands[1:]
    assert train[:2] == ["cast-ray", "train"]
    config = load_config(None, train[2:])
    assert (config.game, config.tier) == ("lights_out", "mini")
    assert evaluate[:2] == ["cast-ray", "eval"]
    assert CliRunner().invoke(app, ["eval", "--help"]).exit_code == 0
    assert (ROOT / commands[0][-1] / "pyproject.toml").is_file()


def test_page_counts_the_checks_and_names_only_real_ones() -> None:
    assert PAGE.count("Nineteen checks") == 1
    assert len(CHECKS) == 19
    assert set(re.findall(r'skips=\{"(\w+)"', PAGE)) <= CHECKS.keys()


@pytest.mark.parametrize("link", re.findall(r"\]\((\S+?)\)", PAGE))
def test_links_of_the_page_lead_somewhere(link: str) -> None:
    assert (ROOT / "docs" / link).exists()
