"""Packages that ``cast-ray new`` writes: they pass their own tests, and ours for style."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.errors import ConfigError
from tests.support.refusals import refused


def new(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["new", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def tool(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["game", "environment"])
def test_written_package_passes_its_own_tests_and_is_clean(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = new(kind, "treasure_hunt")
    project = tmp_path / "treasure_hunt"
    assert f"-m pytest {project.name}" in said
    files = {str(file.relative_to(project)) for file in project.rglob("*") if file.is_file()}
    module = f"treasure_hunt/{kind}.py"
    assert files == {
        "pyproject.toml", "test_treasure_hunt.py", "treasure_hunt/__init__.py", module
    }  # fmt: skip
    assert "$" not in "".join((project / file).read_text() for file in files)
    assert "class TreasureHunt(" in (project / module).read_text()
    found = tool("pytest", "-q", "-p", "no:cacheprovider", project.name, cwd=tmp_path)
    assert " passed" in found and "failed" not in found
    alone = ("--isolated", "--no-cache", "--line-length=100")
    tool("ruff", "check", *alone, "--select=B,E,F,I,N,RUF,UP", cwd=project)
    tool("ruff", "format", *alone, "--check", cwd=project)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Treasure", ("'Treasure'", "lower-case")),
        ("2048", ("'2048'", "beginning with a letter")),
        ("a/b", ("'a/b'", "lower-case")),
        ("schätze", ("'schätze'", "lower-case")),
        ("lambda", ("'lambda'", "another name")),
        ("random", ("'random'", "another name")),
        ("polars", ("'polars'", "another name")),
        ("sokoban", ("'sokoban'", "game or environment")),
        ("alfworld", ("'alfworld'", "game or environment")),
    ],
)
def test_name_that_cannot_be_used_is_refused(
    name: str, facts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(ConfigError, *facts):
        new("game", name)
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with refused(ConfigError, str(tmp_path), "--folder"):
        new("environment", "trivia", "--folder", str(tmp_path))
    with refused(ConfigError, "mine.txt", "--folder"):
        new("environment", "trivia", "--folder", str(tmp_path / "mine.txt"))
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    new("environment", "trivia", "--folder", str(tmp_path / "new"))
    assert (tmp_path / "new" / "trivia" / "environment.py").is_file()
