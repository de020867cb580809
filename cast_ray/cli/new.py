"""The commands ``cast-ray new …``: write a small package that trains at once, to make one's own."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from cast_ray.errors import ConfigError
from cast_ray.files import is_taken

_TEMPLATES = Path(__file__).with_name("templates")

new_app = typer.Typer(
    help="Start your own game or environment: a small package that trains at once.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(help="Name of the package, in lower-case letters, digits and _.")
]
Folder = Annotated[
    Path | None, typer.Option(help="Folder to write, new or empty. Default: NAME.", metavar="PATH")
]


@new_app.command()
def game(name: Name, folder: Folder = None) -> None:
    """Write a package with a sample game (a maze), its exact solver, and tests.

    A game has states that a program can solve; its costs give the credit of turns. What each member
    must do is in docs/add_a_game.md of the repository.

    Example: cast-ray new game treasure_hunt
    """
    _write("game", name, folder or Path(name), f"game={name} tier=mini")


@new_app.command()
def environment(name: Name, folder: Folder = None) -> None:
    """Write a package with a sample text environment (count up to a number), and tests.

    An environment needs no solver; its rewards, or none, give the credit of turns. What each member
    must do is in docs/add_an_environment.md of the repository.

    Example: cast-ray new environment trivia
    """
    values = f"game={name} oracle=turn_reward warm_start.steps=80"
    _write("environment", name, folder or Path(name), values)


def _write(template: str, name: str, folder: Path, values: str) -> None:
    """Write the package and say what to do next."""
    _check_name(name)
    if is_taken(folder):
        raise ConfigError(f"{folder} exists and is not an empty folder: give another --folder")
    words = name.split("_")
    fields = {
        "name": name,
        "title": " ".join(words).capitalize(),
        "kind": "".join(word.capitalize() for word in words),
        "package": name.replace("_", "-"),
    }
    root = _TEMPLATES / template
    for file in sorted(root.rglob("*.tmpl")):
        place = str(file.relative_to(root).with_suffix(""))
        written = folder / re.sub(r"\bname\b|(?<=_)name(?=\.)", name, place)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(Template(file.read_text()).substitute(fields))
    python = sys.executable
    typer.echo(f"{folder} holds a package with a small {template}. Install, test and train it:\n")
    typer.echo(f"  {python} -m pip install --no-deps -e {folder}")
    typer.echo(f"  {python} -m pytest {folder}")
    typer.echo(f"  cast-ray train {values} steps=2\n")
    typer.echo(f"Then make {folder / name / template}.py your own.")


def _check_name(name: str) -> None:
    """Refuse what is no name of a module, or is another's.

    Raises:
        ConfigError: it is one of those.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"{name!r} cannot name a package: use lower-case letters, digits and _, beginning with "
            "a letter"
        )
    # Imported late: --help and every other command need not wait for it.
    from cast_ray.envs.registry import all_names

    if name in all_names():
        raise ConfigError(f"there is a game or environment {name!r}: give another name")
    if keyword.iskeyword(name) or ((found := importlib.util.find_spec(name)) and found.origin):
        raise ConfigError(f"Python has a word or a module {name!r}: give another name")
