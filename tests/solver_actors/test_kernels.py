"""Kernels are compiled once, kept, and never stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cast_ray import numba_cache

COMPILE = (
    "from solver_actors.kernels import CompilationCounter, compile_kernels; "
    "counter = CompilationCounter(); compile_kernels(['sokoban']); "
    "print(counter.num_compilations)"
)


def num_compilations(cache: Path) -> int:
    """Return what a process of its own compiles to solve Sokoban."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache / "kernels")}
    environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, "-c", COMPILE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


def test_second_process_of_a_machine_compiles_nothing(tmp_path: Path) -> None:
    assert num_compilations(tmp_path) > 5
    assert num_compilations(tmp_path) == 0


def test_an_edit_of_any_module_that_kernels_are_made_of_changes_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "edited_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("SIDE = 6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(numba_cache, "_PACKAGES", ("edited_kernels",))
    before = numba_cache.kernel_cache_dir()
    assert numba_cache.kernel_cache_dir() == before
    (package / "__init__.py").write_text("SIDE = 7\n")
    assert numba_cache.kernel_cache_dir() != before


def test_a_cache_that_the_user_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere")
    numba_cache.use_kernel_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "/somewhere"
