"""``make wheel-test``: what is released is built, installed alone in new environments, and used.

The core of the wheel must work without torch, Ray or vLLM, and say in a sentence which extra the
rest comes with. ``--extra cpu`` (5 minutes) installs that extra, too, and trains (where no index at
hand has builds of torch for CPUs, ``PIP_EXTRA_INDEX_URL`` names PyTorch's);
``--extra cpu --extra alfworld`` also plays a household of ALFWorld's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.made_household import write_game
from tests.support.scripted_endpoint import MODEL, ScriptedEndpoint, serving

PROJECT = Path(__file__).parents[1]
NOT_IN_THE_CORE = ("torch", "ray", "vllm", "transformers", "deepspeed", "peft", "fastapi")
GAMES = ("sokoban", "minesweeper", "rush_hour")
SHORT = (
    "steps=1",
    "puzzles.num_train=60",
    "puzzles.num_validation=2",
    "puzzles.num_held_out=4",
    "warm_start.steps=20",
    "warm_start.careless_steps=4",
    "rollout.puzzles_per_step=2",
    "rollout.group_size=4",
)


class Environment:
    """A new virtual environment, used from a folder of its own where no checkout is in sight."""

    def __init__(self, folder: Path, python: str) -> None:
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        self._bin, self._home = folder / "venv" / "bin", folder / "home"
        self._home.mkdir()

    def run(self, program: str, *arguments: str, expect: int = 0, **variables: str) -> str:
        """Return what a program said; end everything if its exit code is another."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RAY_"))}
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self._home,
            env={**kept, "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            timeout=1200,
        )
        said = done.stdout + done.stderr
        if done.returncode != expect:
            sys.exit(f"{program} {' '.join(arguments)} ended with {done.returncode}:\n{said}")
        return said

    def install(self, what: str) -> None:
        self.run("python", "-m", "pip", "install", "-q", "--progress-bar", "off", what)

    def folder(self, name: str) -> Path:
        return self._home / name

    def write(self, name: str, text: str) -> str:
        (self._home / name).write_text(text)
        return name

    def read(self, name: str) -> str:
        return (self._home / name).read_text()


def build(folder: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist, after a look at what is in them."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, timeout=120)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    packages = {"cast_ray", "solver_actors", "serve"}
    assert {top for top in tops if not top.endswith(".dist-info")} == packages, tops
    for package in packages:
        assert f"{package}/py.typed" in names, f"{package} has no py.typed"
    assert any(name.endswith("licenses/LICENSE") for name in names), "no licence in the wheel"
    return wheel, sdist


def check_core(environment: Environment) -> dict[str, object]:
    """Use games, solvers and data sets; return what was measured."""
    code = (
        "import sys, time; begin = time.perf_counter()\n"
        "import cast_ray.games, solver_actors.registry\n"
        f"print(time.perf_counter() - begin, [m for m in {NOT_IN_THE_CORE} if m in sys.modules])"
    )
    environment.run("python", "-c", code)  # compiles what the next one imports
    tries = [environment.run("python", "-c", code).partition(" ") for _ in range(3)]
    seconds = min(float(one[0]) for one in tries)  # the others waited for something else
    assert seconds < 1, f"importing the core takes {seconds:.2f} s"
    heavy = tries[0][2].strip()
    assert heavy == "[]", f"importing the core imports {heavy}"
    states = environment.write(
        "states.jsonl", '{"game": "sokoban", "board": ["######", "#P_X_O", "######"]}\n'
    )
    environment.run("cast-ray", "solve", "--input", states, "--output", "costs.jsonl")
    assert json.loads(environment.read("costs.jsonl"))["cost"] == 3
    for game in GAMES:
        few = ("--num-train", "20", "--num-test", "5", "--workers", "1", "--out", "data")
        environment.run("cast-ray", "data", "build", "--game", game, "--tier", "mini", *few)
    environment.run("cast-ray", "data", "stats", "data")
    environment.run("cast-ray", "--help")
    environment.run("cast-ray", "doctor", "--fix")
    found = environment.run("cast-ray", "doctor")
    assert "Ready." in found and "cast-ray[cpu]" in found, found
    refused = environment.run("cast-ray", "train", expect=2)
    assert "comes with an extra" in refused and "Traceback" not in refused, refused
    check_evaluation(environment)
    return {"import_seconds": round(seconds, 2)}


def check_evaluation(environment: Environment) -> None:
    """Play with a built-in player and a model behind an endpoint; draw a recorded comparison."""
    few = ("--games", "sokoban:mini", "--limit", "4", "--attempts", "2", "--out", "played")
    with serving(ScriptedEndpoint()) as variables:
        models = ("--model", "random", "--model", f"openai:{MODEL}")
        said = environment.run("cast-ray", "eval", *models, *few, **variables)
    assert "**100.0**" in said, said  # it answers what the solver says
    recorded = PROJECT / "docs" / "evidence" / "rush_hour"
    to = environment.folder("drawn")
    drawn = ("--baseline", "DAPO", "--out", str(to))
    environment.run("cast-ray", "compare", str(recorded), *drawn)
    for file in recorded.iterdir():
        assert (to / file.name).read_bytes() == file.read_bytes(), f"{file.name} differs"


def check_extras(environment: Environment, package: Path, extras: Sequence[str]) -> int:
    """Install a wheel's extras and use them; return how many seconds the installation took."""
    begin = time.monotonic()
    environment.install(f"{package}[{','.join(extras)}]")
    seconds = round(time.monotonic() - begin)
    environment.run("cast-ray", "doctor", "--fix")
    environment.run("cast-ray", "train", "run_dir=run", *SHORT)
    print(f"[{','.join(extras)}]: a run of one step succeeds", flush=True)
    if "alfworld" in extras:
        household = environment.folder("household")
        write_game(household, "mug")
        player = ("eval", "--model", "random", "--games", "alfworld", "--out", "at_home")
        environment.run("cast-ray", *player, ALFWORLD_DATA=str(household))
        print("[alfworld]: a household is played", flush=True)
    return seconds


def main(arguments: Sequence[str]) -> None:
    """Build, install and use; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--extra", action="append", choices=["cpu", "gpu", "alfworld"], help="install it, too"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter to install for: the core takes others"
    )
    chosen = parser.parse_args(arguments)
    if chosen.extra == ["alfworld"]:
        parser.error("to play in ALFWorld takes --extra cpu or gpu as well")
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="cast-ray-wheel-") as name:
        wheel, sdist = build(Path(name))
        for kind, package in (("wheel", wheel), ("sdist", sdist)):
            print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB", flush=True)
            begin = time.monotonic()
            (Path(name) / kind).mkdir()
            environment = Environment(Path(name) / kind, chosen.python)
            environment.install(str(package))
            figures[f"{kind}_install_seconds"] = round(time.monotonic() - begin)
            figures |= {f"{kind}_{key}": value for key, value in check_core(environment).items()}
            print(f"{kind}: the core works without {', '.join(NOT_IN_THE_CORE)}", flush=True)
            if chosen.extra and kind == "wheel":
                figures["extra_seconds"] = check_extras(environment, package, chosen.extra)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
