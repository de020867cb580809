"""The models of a run: pinned and looked at when it is opened, the same when it is resumed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cast_ray.config.load import load_config
from cast_ray.errors import ModelError, RunDirectoryError
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.training.run import Run, open_run
from tests.support.hub import loopback_hub
from tests.support.refusals import refused
from tests.support.scripted import build_test_policy

SMALL = ["puzzles.num_train=4", "puzzles.num_validation=2", "puzzles.num_held_out=2"]
OPEN = """
import io, sys
from rich.console import Console
from cast_ray.config.load import load_config
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.training.run import open_run
how, *values = sys.argv[1:]
progress = TrainProgress(Console(file=sys.stdout, width=500))
run = open_run(load_config(None, values), resume=how == "resume", progress=progress)
run.on_exit.close()
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("policy")
    build_test_policy(directory)
    return directory


def opened(run_dir: Path, model: Path | str, *values: str, resume: bool = False) -> Run:
    """Open a run of a model and let it go again."""
    config = load_config(None, [*SMALL, f"run_dir={run_dir}", f"policy.path={model}", *values])
    run = open_run(config, resume=resume, progress=TrainProgress(Console(file=io.StringIO())))
    run.on_exit.close()
    return run


def test_name_at_a_hub_is_pinned_and_stays_when_the_run_is_resumed(
    policy: Path, tmp_path: Path
) -> None:
    values = [*SMALL, f"run_dir={tmp_path / 'run'}", "policy.path=owner/tiny"]
    with loopback_hub() as hub:
        commit = hub.push("owner/tiny", policy)
        environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "cache")}

        def drive(how: str) -> str:
            done = subprocess.run(
                [sys.executable, "-c", OPEN, how, *values],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert f"policy.path=owner/tiny@{commit}" in drive("begin")
        stored = load_config(tmp_path / "run" / "config.yaml", [])
        assert stored.policy.path == f"owner/tiny@{commit}"
        hub.push("owner/tiny", policy)
        hub.requests.clear()
        assert f"policy.path=owner/tiny@{commit}" in drive("resume")
    assert load_config(tmp_path / "run" / "config.yaml", []) == stored
    assert not hub.downloaded()


def test_model_that_moved_is_named_anew(policy: Path, tmp_path: Path) -> None:
    model, run_dir = tmp_path / "old", tmp_path / "run"
    shutil.copytree(policy, model)
    opened(run_dir, model)
    model.rename(tmp_path / "new")

    resumed = opened(run_dir, tmp_path / "new", resume=True)

    assert resumed.config.policy.path == str(tmp_path / "new")
    assert load_config(run_dir / "config.yaml", []).policy.path == str(tmp_path / "new")
    with refused(ModelError, f"policy.path={model}", "directory"):
        opened(run_dir, model, resume=True)


@pytest.mark.parametrize("changed", ["model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_another_model_is_not_the_one_that_moved(
    policy: Path, tmp_path: Path, changed: str
) -> None:
    run_dir, other = tmp_path / "run", tmp_path / "other"
    opened(run_dir, policy)
    shutil.copytree(policy, other)
    content = (other / changed).read_bytes()
    if changed == "tokenizer.json":
        content = json.dumps(json.loads(content)).encode()
    elif changed == "model.safetensors":
        content = content[:-1] + bytes([content[-1] ^ 1])
    else:
        content += b"\n"
    (other / changed).write_bytes(content)

    with refused(RunDirectoryError, f"policy.path={other}", str(policy), "run_dir"):
        opened(run_dir, other, resume=True)
    assert load_config(run_dir / "config.yaml", []).policy.path == str(policy)


def test_run_without_digests_takes_no_other_model_and_gets_digests(
    policy: Path, tmp_path: Path
) -> None:
    """A run that an older version began."""
    run_dir = tmp_path / "run"
    digests = opened(run_dir, policy).directory.models
    noted = digests.read_text()
    digests.unlink()
    shutil.copytree(policy, tmp_path / "copy")
    with refused(RunDirectoryError, "policy.path", str(tmp_path / "copy")):
        opened(run_dir, tmp_path / "copy", resume=True)

    opened(run_dir, policy, resume=True)

    assert digests.read_text() == noted
    opened(run_dir, tmp_path / "copy", resume=True)


def test_model_that_is_damaged_leaves_no_run(policy: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(policy, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])

    with refused(ModelError, f"policy.path={model}", "model.safetensors"):
        opened(tmp_path / "run", model)

    assert not (tmp_path / "run").exists()


def test_command_ends_with_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cast_ray.cli", "train", "--no-restart"),
            *(f"policy.path={tmp_path}", f"run_dir={tmp_path / 'run'}"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if line.startswith("cast-ray: ")]
    assert "config.json" in line and "git lfs pull" in line and str(tmp_path) in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
