"""What the command line says of itself, and to those who mistype."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import cast_ray
from cast_ray.cli.main import main
from cast_ray.cli.serve import newest_trained
from cast_ray.config.load import load_config
from cast_ray.runs.directories import OUTCOME_ALONE
from cast_ray.runs.run_directory import RunDirectory


def said(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["cast-ray", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_version_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"cast-ray {cast_ray.__version__}\n"


def test_help_has_groups_and_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for group in ("Train", "Look at runs and agents", "Evaluate and compare", "Machines"):
        assert f"─ {group} ─" in text
    assert "130 = stopped by Ctrl-C" in text


def test_every_command_starts_without_what_is_slow_to_import() -> None:
    slow = ("torch", "ray", "vllm", "transformers", "deepspeed", "polars", "numba", "scipy")
    code = f"import sys, cast_ray.cli.main; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_outcome_alone_resumes_the_second_run_where_the_first_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(None, ["steps=2", f"run_dir={tmp_path / 'run'}"])
    run = RunDirectory.create(tmp_path / "run", config)
    run.write_summary({"steps": 2})
    second = RunDirectory(run.outcome_alone)
    RunDirectory.create(second.path, replace(config, run_dir=str(second.path)))
    driven: list[tuple[Path, bool]] = []

    def supervise(command: list[str], *, run_dir: Path, resume: bool, max_restarts: int) -> int:
        driven.append((run_dir, resume))
        return 0

    monkeypatch.setattr("cast_ray.training.supervisor.supervise", supervise)
    monkeypatch.setattr("cast_ray.cli.main.report", lambda path: None)
    assert said(monkeypatch, "train", "--resume", "--outcome-alone", f"run_dir={run.path}") == 0
    assert driven == [(second.path, True)]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nosuch"], "No such command 'nosuch'; see cast-ray --help"),
        (["train", "--bad"], "No such option: --bad; see cast-ray train --help"),
        (["data", "solve"], "No such command 'solve'; see cast-ray data --help"),
        (["solve"], "Missing option '--input'; see cast-ray solve --help"),
        (["train", "seed=x"], "seed=x: key seed: Value 'x'"),
        (["train", "--outcome-alone", "run_dir=s3://b/r"], "--outcome-alone needs a run_dir"),
    ],
)
def test_a_mistake_is_one_line_of_one_style(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
) -> None:
    assert said(monkeypatch, *words) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert error.startswith(f"cast-ray: {line}")


def test_resume_without_a_directory_names_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(monkeypatch, "train", "--resume") == 2
    assert capsys.readouterr().err.endswith("run_dir=PATH, the directory to resume\n")
    (tmp_path / "runs" / "my run").mkdir(parents=True)
    (tmp_path / "runs" / "my run" / "config.yaml").touch()
    assert said(monkeypatch, "train", "--resume") == 2
    assert capsys.readouterr().err.endswith(
        "; the newest here: cast-ray train --resume 'run_dir=runs/my run'\n"
    )


def test_words_alone_show_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, "data") == 2
    out, error = capsys.readouterr()
    assert "Usage: cast-ray data" in out + error and "cast-ray: " not in error


def test_serve_takes_the_newest_run_but_not_the_one_without_credit(tmp_path: Path) -> None:
    def trained(name: str, *, at: int) -> Path:
        model = tmp_path / name / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        os.utime(model / "config.json", (at, at))
        return tmp_path / name

    alone = trained(f"new{OUTCOME_ALONE}", at=3)
    assert newest_trained(tmp_path) == alone  # better than none
    trained("old", at=1)
    new = trained("new", at=2)
    assert newest_trained(tmp_path) == new
