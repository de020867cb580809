"""What stands in two places says the same: versions, commands, messages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml

from cast_ray.cli.main import app
from cast_ray.games import get_game
from cast_ray.runs.run_directory import CHANGEABLE_KEYS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TROUBLES = (ROOT / "docs" / "troubleshooting.md").read_text()
SOURCES = "\n".join(
    path.read_text()
    for path in (
        *(
            file
            for top in ("cast_ray", "solver_actors", "serve")
            for file in (ROOT / top).rglob("*.py")
        ),
        ROOT / "setup.sh",
    )
)


def test_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == version
    assert f"**State**: {version}." in README


def test_the_readme_has_every_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    missing = {name for name in commands if not re.search(rf"cast-ray {name}\b", README)}
    assert missing == set()


def messages() -> list[str]:
    """Return the texts of messages in the first column of the page's tables."""
    cells = re.findall(r"^\| (.+?) \|", TROUBLES, re.MULTILINE)
    texts = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in texts if " " in text and not text.startswith("ray ")]


def squeezed(text: str) -> str:
    """Return words alone: sources break sentences where lines end."""
    return re.sub(r"[\s\"'f]+", "", text)


@pytest.mark.parametrize("message", messages())
def test_messages_of_troubles_are_those_of_the_sources(message: str) -> None:
    sources = squeezed(SOURCES)
    for part in re.split(r"…|\b[A-Z]+\b|\d+", message):
        assert squeezed(part) in sources, part


def test_the_page_names_the_keys_that_a_resumed_run_may_change() -> None:
    page = (ROOT / "docs" / "runs.md").read_text()
    section = page.partition("## What may change on the way")[2].partition("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    others = {key for key in CHANGEABLE_KEYS if not key.startswith("resources.")}
    assert set(re.findall(r"`([\w.]+)`", rows)) == others
    assert "everything under `resources`" in section


def test_the_page_has_the_turns_of_every_tier() -> None:
    page = (ROOT / "docs" / "games.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| turns, ")]
    tiers = re.findall(r"`([\w-]+)`", row)
    turns = [
        " / ".join(str(get_game(game).tiers[tier].turn_budget) for tier in tiers)
        for game in ("sokoban", "minesweeper", "rush_hour")
    ]
    assert len(tiers) == 4
    assert [cell.strip() for cell in row.split("|")[2:-1]] == turns
