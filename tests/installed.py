"""What ``pip install`` leaves behind so that a package's entry points are found, made by hand."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

LIGHTS_OUT = Path(__file__).parent / "lights_out"
"""The package of the fourth game, as a user would write it."""


def install(project: Path, site: Path) -> None:
    """Make the entry points in a project's pyproject.toml known to whoever has ``site`` on path."""
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    write_dist_info(site, table["name"], table["entry-points"]["cast_ray.games"])


def write_dist_info(site: Path, package: str, games: Mapping[str, str]) -> None:
    """Write the metadata of an installed package that adds games, ``{name: module:attribute}``."""
    folder = site / f"{package.replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
    lines = ["[cast_ray.games]", *(f"{name} = {value}" for name, value in games.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def environment_with(*paths: Path) -> dict[str, str]:
    """Return this environment with folders in front of PYTHONPATH, for processes of their own."""
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *inherited])}
