"""The folders are what ARCHITECTURE.md and import-linter say, and none grows beyond its bounds."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cast_ray", "solver_actors", "serve")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})
MAX_LINES = 400
MAX_MODULES = 18
MAX_ROOT_MODULES = 8


def modules_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


def contracts() -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return settings["tool"]["importlinter"]["contracts"]


def test_no_module_has_more_than_400_lines() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_no_call_may_run_code_that_comes_with_a_model() -> None:
    files = [*MODULES, *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    calls = [
        {key.arg: ast.unparse(key.value) for key in node.keywords}
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".from_pretrained")
    ]
    assert len(calls) >= 4
    assert all(call.get("trust_remote_code") == "False" for call in calls)


def test_no_package_has_more_than_18_modules() -> None:
    counts = {folder: len(modules_in(folder)) for folder in FOLDERS}
    assert counts.pop(ROOT / "cast_ray") <= MAX_ROOT_MODULES
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_an_init_holds_a_docstring_and_imports_and_nothing_else() -> None:
    for folder in FOLDERS:
        if folder == ROOT / "cast_ray":  # the public names, loaded at their first use
            continue
        tree = ast.parse((folder / "__init__.py").read_text())
        assert ast.get_docstring(tree) or folder.name in PACKAGES, folder
        for statement in tree.body[bool(ast.get_docstring(tree)) :]:
            is_all = ast.unparse(statement).startswith("__all__ =")
            assert is_all or isinstance(statement, ast.Import | ast.ImportFrom), folder


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_layer(package: str) -> None:
    [layers] = [
        contract["layers"]
        for contract in contracts()
        if contract.get("containers") == [package] and contract.get("exhaustive")
    ]
    assert isinstance(layers, list)
    named = {name.strip() for layer in layers for name in layer.split("|")}
    folders = {path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in modules_in(ROOT / package)}
    assert named == folders | modules


def test_the_table_of_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text) < 12_000
    table = text.split("## Packages")[1].split("\n## ")[0]
    for package in PACKAGES:
        for folder in (ROOT / package).iterdir():
            if (folder / "__init__.py").exists():
                assert re.search(rf"`(?:{package}/)?{folder.name}/?`", table), folder
