"""What `cast-ray submit` sends: command, environment and files, and what it refuses to send."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cast_ray.cli.main import app
from cast_ray.cluster.code_version import code_checksum, code_version
from cast_ray.cluster.inside_job import SUBMITTED_BY, greeting
from cast_ray.cluster.submit import (
    JobRequest,
    copy_package,
    pack_job,
    sent_config,
    stop_wait_s,
    train_job,
)
from cast_ray.config.load import load_config
from cast_ray.errors import CastRayError, ConfigError, EnvironmentSetupError
from cast_ray.runs.directories import dated, timestamp

RUN_DIR = "run_dir=/shared/runs/one"
NOBODY = "http://127.0.0.1:9"  # the port of a service that nobody runs any more


def request(
    *overrides: str, name: str = "one", config_file: Path | None = None, resume: bool = False
) -> JobRequest:
    config = load_config(config_file, overrides)
    return train_job(config, name=name, overrides=overrides, config_file=config_file, resume=resume)


def test_command_is_train_with_every_value_as_it_was_given() -> None:
    odd = ["steps=3", RUN_DIR, "objective.reference=/models/o'clock and $HOME; ls"]
    words = shlex.split(request(*odd, resume=True).command)
    assert words == ["exec", "cast-ray", "train", "--resume", *odd]


def test_configuration_file_travels_wherever_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "my settings.yaml"
    file.parent.mkdir()
    file.write_text("steps: 3\n")
    (tmp_path / "job").mkdir()
    package = pack_job(tmp_path / "job", config_file=file, with_code=False)
    words = shlex.split(request(RUN_DIR, config_file=file).command)
    there = package.folder / words[words.index("--config") + 1]
    assert there.read_text() == "steps: 3\n"
    assert str(package) == "1 file, 1 KiB"


def test_without_file_and_code_nothing_travels(tmp_path: Path) -> None:
    package = pack_job(tmp_path, config_file=None, with_code=False)
    assert package.num_files == 0
    assert list(tmp_path.iterdir()) == []


def test_code_that_travels_is_this_code_and_nothing_else(tmp_path: Path) -> None:
    package = pack_job(tmp_path, config_file=None, with_code=True)
    assert {path.name for path in tmp_path.iterdir()} == {"cast_ray", "serve", "solver_actors"}
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    of_the_demo = {".parquet", ".yaml", ".json"}
    assert kinds <= {".py", ".html", ".css", ".js", ".svg", ".tmpl", ".typed"} | of_the_demo
    assert not list(tmp_path.rglob("__pycache__"))
    assert 300_000 < package.num_bytes < 5 * 2**20
    say = "from cast_ray.cluster import code_version as c; print(c.code_version(), c.__file__)"
    there = subprocess.run(
        [sys.executable, "-P", "-c", say],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert there.stdout.startswith(f"{code_version()} {tmp_path}")


def _package(place: Path) -> Path:
    for name, text in {
        "__init__.py": "",
        "game.py": "x = 1",
        "page.html": "<p>",
        "inner/kernel.py": "y = 2",
        "__pycache__/game.cpython-311.pyc": "1",
        "inner/__pycache__/kernel.nbi": "2",
        "kernel.nbc": "3",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def test_caches_of_a_machine_stay_on_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    copy_package(_package(tmp_path / "here"), there)
    files = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    assert files == {"__init__.py", "game.py", "page.html", "inner/kernel.py"}
    assert not list(there.rglob("__pycache__"))


def test_checksum_is_that_of_text_and_names_wherever_they_lie(tmp_path: Path) -> None:
    here = _package(tmp_path / "here")
    before = code_checksum({"one": here})
    assert code_checksum({"one": _package(tmp_path / "there")}) == before
    assert code_checksum({"other": here}) != before
    (here / "inner" / "kernel.py").write_text("y = 3")
    edited = code_checksum({"one": here})
    (here / "inner" / "kernel.py").rename(here / "inner" / "kernels.py")
    assert len({before, edited, code_checksum({"one": here})}) == 3


def test_more_than_the_cluster_takes_is_refused_by_its_largest_file(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(51 * 2**20)
    (tmp_path / "job").mkdir()
    with pytest.raises(EnvironmentSetupError, match=r"51 MiB.* configs/huge\.yaml"):
        pack_job(tmp_path / "job", config_file=huge, with_code=False)


def test_configuration_never_takes_the_place_of_code() -> None:
    assert sent_config(Path("/elsewhere/cast_ray")).parts[0] == "configs"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "run_dir.*absolute.*URI"),
        (["run_dir=runs/mine"], "run_dir.*'runs/mine'"),
        (["run_dir=~/runs/mine"], "run_dir.*'~/runs/mine'"),
        ([RUN_DIR, "puzzles.file=data/sokoban/id"], "puzzles.file.*data/sokoban/id"),
        ([RUN_DIR, "puzzles.validation_file=boards.xsb"], "puzzles.validation_file.*boards"),
        ([RUN_DIR, "puzzles.held_out_file=boards.xsb"], "puzzles.held_out_file.*boards"),
        ([RUN_DIR, "oracle=value_net", "value_net.path=nets/mine"], "value_net.path.*nets/mine"),
        ([RUN_DIR, "policy.path=models/small"], "policy.path.*models/small"),
        ([RUN_DIR, "objective.reference=models/old"], "objective.reference.*models/old"),
    ],
)
def test_path_that_is_none_on_the_cluster_is_refused(given: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        request(*given)


def test_model_of_a_hub_needs_a_revision_to_be_told_from_a_path() -> None:
    request(RUN_DIR, "policy.path=owner/model@main", "objective.reference=owner/other@v1.0")
    with pytest.raises(ConfigError, match=r"policy\.path.*@.*'owner/model'"):
        request(RUN_DIR, "policy.path=owner/model")
    with pytest.raises(ConfigError, match=r"puzzles\.file"):
        request(RUN_DIR, "puzzles.file=data/sokoban@main")


def test_uris_are_the_same_on_the_cluster() -> None:
    uri = "s3://bucket/some?region=eu-west-1"
    request(*(f"{key}={uri}" for key in ("run_dir", "puzzles.file", "policy.path")))


@pytest.mark.parametrize("name", ["", "../../api", "two words", "-list", "x" * 101, "a/b"])
def test_name_that_is_no_name_of_a_log_file_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"\b100\b"):
        request(RUN_DIR, name=name)


def test_job_is_named_by_game_tier_and_time() -> None:
    config = load_config(None, ["game=rush_hour", "tier=id"])
    before, name, after = timestamp(), dated(config.title), timestamp()
    assert before <= name.removeprefix("rush_hour-id-") <= after
    assert re.fullmatch(r"rush_hour-id-\d{8}-\d{6}", name)
    assert request(RUN_DIR, name=name).name == name


def test_stopped_run_has_the_time_that_its_step_may_take() -> None:
    longer = load_config(None, ["rollout.timeout_s=3000", "learner.timeout_s=2000"])
    assert stop_wait_s(longer) >= 5000
    sent = request(RUN_DIR, "rollout.timeout_s=3000", "learner.timeout_s=2000").env_vars
    assert int(sent["RAY_JOB_STOP_WAIT_TIME_S"]) == stop_wait_s(longer)


def test_environment_names_nothing_that_the_driver_names_too() -> None:
    # Ray refuses a driver whose variables are its job's: ray_session names NUMBA_CACHE_DIR.
    sent = request(RUN_DIR).env_vars
    assert set(sent) == {"RAY_AUTH_MODE", "RAY_JOB_STOP_WAIT_TIME_S", SUBMITTED_BY}


def test_job_says_its_versions_and_no_more_where_they_are_the_submitters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SUBMITTED_BY, request(RUN_DIR).env_vars[SUBMITTED_BY])
    [line] = greeting()
    assert code_version() in line


def test_job_says_that_its_code_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED_BY, "0.1.0 (code 00000000)")
    _, warning = greeting()
    assert warning.startswith("warning: submitted from cast-ray 0.1.0 (code 00000000)")
    assert code_version() in warning and "--with-code" in warning


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["stepz=3", RUN_DIR], "stepz"),
        (["steps=three", RUN_DIR], "steps"),
        (["--config", "nowhere.yaml", RUN_DIR], "nowhere.yaml does not exist"),
        (["steps=3"], "run_dir must be"),
        (["--status", "one", "--list"], "one of --status, --stop, --logs and --list"),
        (["--stop", "one", "steps=3"], "takes no values"),
        (["--logs", "../version"], "a job's name"),
    ],
)
def test_mistake_is_found_before_any_cluster_is_asked(words: list[str], named: str) -> None:
    result = CliRunner().invoke(app, ["submit", "--address", NOBODY, *words])
    assert isinstance(result.exception, CastRayError)
    assert named in str(result.exception)
    assert "nothing answers" not in str(result.exception)
