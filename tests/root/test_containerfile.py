"""What Containerfile and .dockerignore must keep to; `make container-test` builds and trains."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAGES = re.split(r"^FROM \S+ AS (\w+)\n", (ROOT / "Containerfile").read_text(), flags=re.M)
TARGETS = dict(zip(STAGES[1::2], STAGES[2::2], strict=True))


def steps(target: str) -> list[str]:
    lines = TARGETS[target].strip().splitlines()
    return [line for line in lines if not line.startswith(("#", "ENV"))]


def test_both_targets_take_the_same_steps() -> None:
    assert steps("cpu") == steps("cuda")
    assert "ENV EXTRA=cpu\n" in TARGETS["cpu"]
    assert "ENV EXTRA=gpu " in TARGETS["cuda"]


def test_no_step_after_the_packages_of_the_system_is_root_s() -> None:
    _, user, after = TARGETS["system"].partition("\nUSER 1000:1000\n")
    assert user and "USER" not in after
    assert "USER" not in TARGETS["cpu"] + TARGETS["cuda"]


def test_the_context_is_what_is_named_and_holds_what_is_installed() -> None:
    everything, *lines = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"
    ]
    assert everything == "*"
    named = {line[1:] for line in lines if line.startswith("!")}
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    packages = set(hatch["build"]["targets"]["wheel"]["packages"])
    assert packages | {"pyproject.toml", "setup.sh", "requirements", "Makefile"} <= named
    assert all((ROOT / name).exists() for name in named)
