"""What the command line says of itself, and to those who mistype."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cast_ray
from cast_ray.cli.main import main


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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nosuch"], "No such command 'nosuch'; see cast-ray --help"),
        (["train", "--bad"], "No such option: --bad; see cast-ray train --help"),
        (["data", "solve"], "No such command 'solve'; see cast-ray data --help"),
        (["solve"], "Missing option '--input'; see cast-ray solve --help"),
        (["train", "seed=x"], "seed=x: key seed: Value 'x'"),
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
