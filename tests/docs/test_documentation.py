"""Every page: links, commands, options, keys and paths exist; generated pages are up to date."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from cast_ray.cli.main import app
from cast_ray.config.load import load_config, load_value_net_config
from cast_ray.evaluation.experiments.sweep_plan import plan_sweep, read_arms

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
_AT_THE_TOP = ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
PAGES = [*(ROOT / f"{name}.md" for name in _AT_THE_TOP), *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ROW = re.compile(r"\| `((?:eq|thm|app|tab):\w+)` \|[^|]*\| `([\w.]+)` \| (.*) \|")
_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)*=")
_OTHERS = {"make", "export", "echo", "curl", ".", "python", "podman", "sbatch", "squeue", "srun"}
"""Programs on the pages that neither we nor what we need installs."""


def blocks(page: Path, kind: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == kind]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the words of each ``cast-ray`` command in shell blocks and sentences."""
    for page in PAGES:
        whole = page.read_text()
        said = re.findall(r"`(cast-ray [^`\n]+)`", _BLOCK.sub("", whole))
        for text in [*blocks(page, "sh"), *said]:
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                    words.pop(0)
                if words and Path(words[0]).name == "cast-ray":
                    stop = next((i for i, w in enumerate(words) if w in ("&", "|", "&&")), None)
                    yield page.name, words[1:stop]


COMMANDS = list(commands())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_of_kinds_that_are_checked(page: Path) -> None:
    """Trees of files have no kind; Python and math are checked by the tests of their pages."""
    assert {kind for kind, _ in _BLOCK.findall(page.read_text())} <= {
        "",
        "math",
        "python",
        "sh",
        "toml",
    }


def test_there_are_commands_on_the_pages() -> None:
    assert len(COMMANDS) > 60
    assert {"README.md", "quickstart.md", "cluster.md", "service.md"} <= {p for p, _ in COMMANDS}


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda x: x if isinstance(x, str) else "")
def test_commands_exist_with_their_options_and_keys(page: str, words: list[str]) -> None:
    command, name = typer.main.get_command(app), "cast-ray"
    while words and hasattr(command, "commands"):
        if words[0] == "--help":
            break
        assert words[0] in command.commands, f"{page}: no command {words[0]}"
        name, words = words[0], words[1:]
        command = command.commands[name]
    options = {flag: option for option in command.params for flag in option.opts}
    overrides, file, others = [], None, iter(words)
    for word in others:
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            assert flag in options or flag == "--help", f"{page}: {name} has no {flag}"
            if flag != "--help" and not options[flag].is_flag and not value:
                value = next(others, "")  # a sentence may name the option alone
            if flag == "--config" and (ROOT / value).is_file():
                file = ROOT / value
        elif _KEY.match(word):
            overrides.append(word)
    if getattr(command.callback, "__module__", "") == "cast_ray.cli.value_net":
        load_value_net_config(file, overrides)
    elif name in ("train", "submit", "doctor"):
        load_config(file, [one for one in overrides if "…" not in one])
    elif name == "sweep" and overrides:
        arms = read_arms(ROOT / words[words.index("--arms") + 1]) if "--arms" in words else None
        plan_sweep(file, overrides, arms=arms)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_in_shell_blocks_are_ours_or_known(page: Path) -> None:
    for text in blocks(page, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words.pop(0)
            if words:
                ours = words[0] == "cast-ray" or (ROOT / words[0]).is_file()
                installed = (Path(sys.executable).parent / words[0]).is_file()
                name = words[0].rpartition("/")[2]
                assert ours or installed or name in _OTHERS, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert target.is_relative_to(ROOT), f"{page.name}: {link} leads out of the repository"
        if heading:
            slugs = {
                re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
                for title in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            }
            assert heading in slugs, f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text in [*blocks(page, "sh"), *re.findall(r"`(make [a-z-]+)", page.read_text())]:
        for target in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "metrics.md", "commands.md", "api.md"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == reference().PAGES[name](), "run make docs"
    assert "|  |\n" not in (ROOT / "docs" / name).read_text()


EQUATIONS = _ROW.findall((ROOT / "docs" / "equations.md").read_text())


def test_the_method_s_equations_are_all_on_the_page() -> None:
    labels = {label for label, _, _ in EQUATIONS}
    assert len([label for label in labels if label.startswith("eq:")]) == 23
    paper = ROOT.parent / "shared" / "paper" / "cast.tex"
    if paper.is_file():
        written = set(re.findall(r"\\label\{([^}]*)\}", paper.read_text()))
        assert labels <= written
        assert {label for label in written if label.startswith("eq:")} <= labels


@pytest.mark.parametrize(("label", "function", "tests"), EQUATIONS, ids=lambda x: x[:60])
def test_equations_name_functions_that_name_them_and_tests(
    label: str, function: str, tests: str
) -> None:
    parts = function.split(".")
    depth = _module_depth(parts)
    found: object = importlib.import_module(".".join(parts[:depth]))
    for part in parts[depth:]:
        found = getattr(found, part)
    assert label in (inspect.getdoc(found) or ""), f"{function} does not name {label}"
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for one in named:
        file, _, test = one.partition("::")
        assert (ROOT / file).is_file(), one
        assert not test or f"def {test}(" in (ROOT / file).read_text(), one


def _module_depth(parts: list[str]) -> int:
    """Return how many parts name a module; the others are inside it."""
    depth = 1
    while (ROOT.joinpath(*parts[: depth + 1]).with_suffix(".py")).is_file() or ROOT.joinpath(
        *parts[: depth + 1]
    ).is_dir():
        depth += 1
    return depth


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    algorithms = (tmp_path / "site" / "algorithms" / "index.html").read_text()
    assert algorithms.count("<math") == 5
    hosts = re.findall(r'(?:src|href)="(https?://[^"]+)"', algorithms)
    assert not [host for host in hosts if "squidfunk" not in host], hosts


def test_every_data_file_has_a_licence_in_the_readme() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    kinds = {".parquet", ".arrow", ".json", ".jsonl", ".csv", ".txt", ".npz", ".safetensors"}
    pictures = {".png", ".svg", ".gif", ".jpg", ".ico"}
    data = [name for name in listed.stdout.splitlines() if Path(name).suffix in kinds | pictures]
    assert len(data) >= 5
    text = README.read_text()
    licence = text[text.index("Licence:") :]
    named = re.findall(r"`([\w./]+)`", licence)
    assert [name for name in data if not name.startswith(tuple(named))] == []
