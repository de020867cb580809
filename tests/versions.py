"""``make versions-test``: the core's tests with the lowest and the highest versions that it takes.

Each resolution gets an environment of its own, made by uv, with the core and ``[view]``; the tests
that need the training's packages are left out. ``--python 3.13`` takes another Python.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1]
RESOLUTIONS = ("lowest-direct", "highest")
TOOLS = ("pytest==", "pytest-timeout==", "pytest-xdist==", "hypothesis==")
FOLDERS = (
    "algorithms", "config", "datasets", "envs", "evaluation", "games", "lights_out",
    "solver_actors", "theory",
)  # fmt: skip
NEED_RAY = ("tests/evaluation/test_sweep_plan.py",)
"""That import it only while they run."""
SHOWN = ("numpy", "numba", "scipy", "polars", "pyarrow", "gymnasium", "matplotlib", "typer")


def run(*command: str, check: bool = True) -> str:
    """Return what a command says; end everything where it fails and must not."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=PROJECT, env=kept, capture_output=True, text=True, timeout=3000
    )
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def lacks_training(python: str, folders: list[str]) -> list[str]:
    """Return the files of tests that cannot be imported without a package that the core lacks."""
    said = run(python, "-m", "pytest", "--co", "-q", *folders, check=False)
    files = re.findall(r"^ERROR (tests/\S+\.py)", said, re.MULTILINE)
    # tests/ray takes the place of a Ray that is not there.
    missing = re.findall(
        r"^E +(\w*Error): (?:No module named '([\w.]+)'|.*from '(ray)' \(unknown location\))?",
        said,
        re.MULTILINE,
    )
    if others := [kind for kind, *names in missing if not any(names)]:
        sys.exit(f"{', '.join(others)} while the tests are imported:\n{said}")
    return files


def try_versions(resolution: str, python_version: str, folder: Path) -> bool:
    """Make the environment, run the tests there, and return whether all passed."""
    begun = time.monotonic()
    wanted, python = str(folder / "wanted.txt"), str(folder / "venv" / "bin" / "python")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    tools = [line for line in project["optional-dependencies"]["dev"] if line.startswith(TOOLS)]
    (folder / "tools.in").write_text("\n".join([*tools, "httpx>=0.28"]))
    given = ["pyproject.toml", str(folder / "tools.in"), "--extra", "view"]
    for_python = ["--python-version", python_version]
    run(
        "uv", "pip", "compile", "-q", "--resolution", resolution, "--only-binary", ":all:",
        *for_python, *given, "-o", wanted,
    )  # fmt: skip
    run("uv", "venv", "-q", "--python", python_version, str(folder / "venv"))
    run("uv", "pip", "install", "-q", "--python", python, "-r", wanted)
    run("uv", "pip", "install", "-q", "--python", python, "--no-deps", ".")
    run("uv", "pip", "check", "--python", python)
    folders = [f"tests/{name}" for name in FOLDERS]
    ignored = [f"--ignore={name}" for name in (*lacks_training(python, folders), *NEED_RAY)]
    said = run(
        python, "-m", "pytest", *folders, *ignored, "-n", "auto", "--maxprocesses", "8",
        "--dist", "loadfile", check=False,
    )  # fmt: skip
    (result,) = re.findall(r"(?:\d+ failed, )?\d+ passed[^\n=]*", said)[-1:]
    versions = re.findall(rf"^({'|'.join(SHOWN)})==(\S+)", Path(wanted).read_text(), re.MULTILINE)
    seconds = f"{time.monotonic() - begun:.0f} s in all"
    print(f"{resolution} on Python {python_version}: {result}, {seconds}")
    print("  " + ", ".join(" ".join(pair) for pair in versions), flush=True)
    failures = re.findall(r"^(?:FAILED|ERROR|E  ) .*", said, re.MULTILINE)
    print("\n".join(failures), flush=True)
    return not failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.11")
    chosen = parser.parse_args()
    are_well = []
    for one in RESOLUTIONS:
        with tempfile.TemporaryDirectory() as place:
            are_well.append(try_versions(one, chosen.python, Path(place)))
    sys.exit(not all(are_well))
