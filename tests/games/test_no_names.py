"""No module asks for a game by its name: what differs is a fact of ``Game`` or ``SolverEntry``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import cast_ray
import serve
import solver_actors

NAMES = re.compile(r"sokoban|minesweeper|rush[ _]?hour", re.IGNORECASE)

ALLOWED = {
    # Registries: to name the games is what they are for.
    "cast_ray/games/registry.py",
    "cast_ray/games/generators/build.py",
    "cast_ray/envs/gym/registry.py",
    # Defaults.
    "cast_ray/config/train.py",
    "cast_ray/config/value_net.py",
    # Examples in help and messages, and in the service's own documentation.
    "cast_ray/cli/bench.py",  # of the package gym-sokoban
    "cast_ray/cli/evaluate.py",
    "cast_ray/evaluation/tasks.py",
    "cast_ray/evaluation/transfer.py",
    "serve/site/schemas.py",
    # The paper's table of three games, and the two pages about a room of Sokoban.
    "cast_ray/evaluation/tables.py",
}


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module that is not a game's own: its path in the repository, and its file."""
    for package in (cast_ray, serve, solver_actors):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            name = file.relative_to(root.parent).as_posix()
            if not NAMES.search(name):
                yield name, file


def names_in(source: str) -> list[tuple[int, str]]:
    """Return line and text of each string, but no docstring, and each import that names a game."""
    tree = ast.parse(source)
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            texts = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            texts = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and id(node) not in documentation:
            texts = [node.value] if isinstance(node.value, str) else []
        else:
            continue
        found += [(node.lineno, text) for text in texts if NAMES.search(text)]
    return found


def test_no_game_is_named_outside_its_own_modules() -> None:
    named = [
        f"{name}:{line}: {text!r}"
        for name, file in modules()
        if name not in ALLOWED
        for line, text in names_in(file.read_text())
    ]
    assert not named, "state a fact in Game or SolverEntry instead:\n" + "\n".join(named)


def test_every_exception_is_needed() -> None:
    needed = {name for name, file in modules() if names_in(file.read_text())}
    assert needed >= ALLOWED


def test_strings_and_imports_are_found_and_docstrings_are_not() -> None:
    source = '''
"""About Sokoban."""
from cast_ray.games.minesweeper import Minesweeper

def is_hard(game):
    """Of Rush Hour."""
    return game == "rush_hour"
'''
    assert [line for line, _ in names_in(source)] == [3, 3, 7]


def test_page_names_games_in_its_table_alone() -> None:
    web = Path(serve.__path__[0]) / "web"
    named = [
        file.name
        for file in sorted(web.glob("*.js"))
        if not NAMES.search(file.name)
        and NAMES.search(re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read_text(), flags=re.DOTALL))
    ]
    assert named == ["games.js"]
