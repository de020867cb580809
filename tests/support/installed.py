"""What ``pip install`` leaves behind so that a package's entry points are found, made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from cast_ray.files import written_aside

LIGHTS_OUT = Path(__file__).parents[1] / "lights_out"
"""The package of the fourth game, as a user would write it."""
BOX_PUSH = Path(__file__).parents[1] / "box_push"
"""The package of a copy of Sokoban."""
LIGHTS_OUT_RUN = (
    "game=lights_out",
    "tier=mini",
    "steps=2",
    "puzzles.num_train=60",
    "puzzles.num_validation=2",
    "puzzles.num_held_out=4",
    "warm_start.steps=40",  # nine first answers in ten then name an action
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=4",
    "rollout.group_size=4",
    "evaluation.every=2",
    "evaluation.held_out_attempts=2",
)
"""A run of it that takes a minute."""


def install(project: Path, site: Path) -> None:
    """Make the entry points in a project's pyproject.toml known to whoever has ``site`` on path."""
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    for group, entry_points in table["entry-points"].items():
        write_dist_info(site, table["name"], entry_points, group=group)


def write_dist_info(
    site: Path, package: str, entry_points: Mapping[str, str], *, group: str = "cast_ray.games"
) -> None:
    """Write the metadata of an installed package with ``{name: module:attribute}`` to find."""
    folder = site / f"{package.replace('-', '_')}-0.1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entry_points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_faulty_receiver(folder: Path) -> tuple[dict[str, str], Path]:
    """Make the weight backend ``faulty_file`` known to vLLM, without a fault.

    Returns:
        The environment that an engine needs for it, and the file that names its fault.
    """
    entry_points = {"faulty_receiver": "faulty_receiver:register"}
    write_dist_info(
        folder / "plugin", "faulty-receiver", entry_points, group="vllm.general_plugins"
    )
    fault_file = folder / "fault.json"
    inject_fault(fault_file, kind="none")
    paths = environment_with(folder / "plugin", Path(__file__).parents[1] / "ray" / "serve")
    return {"PYTHONPATH": paths["PYTHONPATH"], "FAULT_FILE": str(fault_file)}, fault_file


def inject_fault(fault_file: Path, **fault: object) -> None:
    """Name a fault; a receiver that reads the file all the time never meets half of it."""
    with written_aside(fault_file) as aside:
        aside.write_text(json.dumps(fault))


def environment_with(*paths: Path) -> dict[str, str]:
    """Return this environment with folders in front of PYTHONPATH, for processes of their own."""
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *inherited])}


def cast_ray_with(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where the packages in ``site`` are installed, Ray's workers included."""
    command = [str(Path(sys.executable).parent / "cast-ray"), *arguments]
    environment = environment_with(site, LIGHTS_OUT, BOX_PUSH)
    environment.pop("RAY_ADDRESS", None)  # a Ray of the test session must not be joined
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
