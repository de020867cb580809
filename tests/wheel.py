"""``make wheel-test``: what is released is built, installed alone in new environments, and used.

Wheel and sdist must hold the files that git has. The core of the wheel must work without torch,
Ray or vLLM, and say in a sentence which extra the rest comes with; with ``[view]`` a game
is played on the page. ``--extra cpu`` (5 minutes) installs that extra, too,
and trains (where no index at hand has builds of torch for CPUs, ``PIP_EXTRA_INDEX_URL`` names
PyTorch's); ``--extra cpu --extra alfworld`` also plays a household of ALFWorld's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tests.support.made_household import write_game
from tests.support.ports import free_port
from tests.support.scripted_endpoint import MODEL, ScriptedEndpoint, serving
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[1]
NOT_IN_THE_CORE = ("torch", "ray", "vllm", "transformers", "deepspeed", "peft", "fastapi")
NOT_AT_IMPORT = (*NOT_IN_THE_CORE, "numba", "polars", "scipy")
"""The core needs the last three, but they are slow to import, so only what uses them does."""
PACKAGES = ("cast_ray", "solver_actors", "serve")
BOARD = ["######", "#P_X_O", "######"]
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

    def _variables(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RAY_"))}
        return {**kept, "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}", **more}

    def run(self, program: str, *arguments: str, expect: int = 0, **variables: str) -> str:
        """Return what a program said; end everything if its exit code is another."""
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self._home,
            env=self._variables(**variables),
            capture_output=True,
            text=True,
            timeout=1200,
        )
        said = done.stdout + done.stderr
        if done.returncode != expect:
            sys.exit(f"{program} {' '.join(arguments)} ended with {done.returncode}:\n{said}")
        return said

    @contextmanager
    def running(self, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program meanwhile."""
        command = [str(self._bin / program), *arguments]
        process = subprocess.Popen(command, cwd=self._home, env=self._variables())
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=30)

    def install(self, *what: str) -> None:
        self.run("python", "-m", "pip", "install", "-q", "--progress-bar", "off", *what)

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
    contents = zipfile.ZipFile(wheel)
    names = contents.namelist()
    [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
    page = contents.read(metadata).decode()
    assert "## Start" in page, "the package's page is not the README"
    assert not (lost := re.findall(r"\]\((?!https?:)[^)]*\)", page)), f"links to nowhere: {lost}"
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=PROJECT, text=True, timeout=60)
    in_git = set(listed.split("\0")) - {""}
    packaged = {name for name in in_git if name.partition("/")[0] in PACKAGES}
    check_files(wheel.name, {name for name in names if ".dist-info/" not in name}, packaged)
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive if member.isfile()}
    check_files(sdist.name, members - {"PKG-INFO"}, in_git)
    for package in PACKAGES:
        assert f"{package}/py.typed" in names, f"{package} has no py.typed"
    assert any(name.endswith("licenses/LICENSE") for name in names), "no licence in the wheel"
    return wheel, sdist


def check_files(archive: str, found: set[str], wanted: set[str]) -> None:
    """End everything unless an archive holds the files that git has, and no others."""
    if lacks := sorted(wanted - found):
        sys.exit(f"{archive} lacks {len(lacks)} files: look for a pattern in .gitignore: {lacks}")
    if others := sorted(found - wanted):
        sys.exit(f"{archive} has {len(others)} files that git has not: add or delete: {others}")


def check_core(environment: Environment) -> dict[str, object]:
    """Use games, solvers and data sets; return what was measured."""
    code = (
        "import sys, time; begin = time.process_time()\n"
        "import cast_ray.games, solver_actors.registry\n"
        f"print(time.process_time() - begin, [m for m in {NOT_AT_IMPORT} if m in sys.modules])"
    )
    environment.run("python", "-c", code)  # compiles what the next one imports
    seconds, _, heavy = environment.run("python", "-c", code).strip().partition(" ")
    assert heavy == "[]", f"importing the core imports {heavy}"
    states = environment.write(
        "states.jsonl", json.dumps({"game": "sokoban", "board": BOARD}) + "\n"
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
    return {"import_seconds": round(float(seconds), 2)}


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
        drawn_again = to / file.name
        if file.suffix == ".parquet":  # as data: other versions write other bytes
            is_same = pl.read_parquet(drawn_again).equals(pl.read_parquet(file))
        else:
            is_same = file.suffix == ".svg" or drawn_again.read_bytes() == file.read_bytes()
        assert drawn_again.is_file() and is_same, f"{file.name} differs"


def check_page(environment: Environment, wheel: Path) -> None:
    """Open the page of ``cast-ray view`` with all that it loads, and solve a board there."""
    refused = environment.run("cast-ray", "view", "data", expect=2)
    assert "'cast-ray[view]'" in refused, refused
    environment.install(f"{wheel}[view]")
    port = free_port()
    page = f"http://127.0.0.1:{port}/"
    with environment.running("cast-ray", "view", "--demo", "--port", str(port)) as process:
        wait_for_listener(port, process)
        html = answer_of(page)
        demo = {run["game"]: run for run in json.loads(answer_of(f"{page}api/runs"))["runs"]}
        assert set(demo) == {"sokoban", "minesweeper", "rush_hour"}, demo
        assert all(run["finished"] and run["problem"] is None for run in demo.values()), demo
        scripts = re.findall(r'src="([^"]+\.js)"', html)
        assert scripts, f"the page loads no script:\n{html}"
        for file in scripts:
            assert answer_of(page + file), f"{file} of the page is empty"
        game = {"game": "sokoban", "board": BOARD, "player": "human"}
        episodes = f"{page}api/episodes"
        episode = f"{episodes}/{json.loads(answer_of(episodes, game))['id']}"
        for cost_after in (2, 1, 0):
            turn = json.loads(answer_of(f"{episode}/actions", {"action": "Right"}))
            assert turn["cost_after"] == cost_after, turn
        played = json.loads(answer_of(episode))
        assert (played["status"], played["end_reason"]) == ("over", "solved"), played


def wait_for_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when a process listens on a port; end everything if it ends, or takes two minutes."""

    def is_listening() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None:
                sys.exit(f"nobody listens on port {port} (exit code {process.poll()})")
            return False
        return True

    wait_until(is_listening, timeout_s=120, what=f"a listener on port {port}")


def answer_of(address: str, body: dict[str, object] | None = None) -> str:
    """Return what a server answers."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


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
            check_page(environment, wheel)
            print(f"{kind}: a game is played on the page of cast-ray view", flush=True)
            if chosen.extra and kind == "wheel":
                figures["extra_seconds"] = check_extras(environment, package, chosen.extra)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
