"""The main job with its run directory at an S3 server: killed, its host lost, gone on with."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl
import psutil
import pyarrow.parquet as pq
import pytest

from cast_ray.runs.object_store import list_files, read_bytes, write_bytes
from cast_ray.runs.remote_lock import read_claim
from cast_ray.runs.remote_run import OWNER, download_run, readable_copy
from cast_ray.runs.uris import Uri
from cast_ray.training.replay.replay import replay_run
from tests.support.stores import CREDENTIALS, S3Server, environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

SMALL = (
    "steps=3",
    "puzzles.num_train=100",
    "puzzles.num_validation=4",
    "puzzles.num_held_out=4",
    "warm_start.steps=40",  # enough to answer in the right form
    "warm_start.careless_steps=10",
    "warm_start.trajectories_per_step=8",
    "rollout.puzzles_per_step=2",
    "rollout.group_size=4",
    "evaluation.every=0",
    "evaluation.held_out_attempts=1",
    "checkpoint_every=1",
    "checkpoints_kept=2",
    "driver_restarts=0",
)


@dataclass(frozen=True)
class Finished:
    """What is left of the run."""

    uri: Uri
    refused: subprocess.CompletedProcess[str]
    before: dict[str, bytes]
    """Trajectories at the URI when the first host was lost."""
    second_cache: Path


def _command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "cast-ray"), *arguments]


def _environment(cache: Path) -> dict[str, str]:
    # A Ray of the test session must not be joined.
    found = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**found, **CREDENTIALS, "CAST_RAY_CACHE": str(cache)}


def _cast_ray(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments),
        capture_output=True,
        text=True,
        timeout=900,
        env=_environment(cache),
    )


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything that it started, as the loss of its host does."""
    parent = psutil.Process(process.pid)
    everybody = [parent, *parent.children(recursive=True)]
    for one in everybody:
        one.send_signal(signal.SIGSTOP)
    for one in everybody:
        one.kill()
    psutil.wait_procs(everybody, timeout=60)


def _trajectories(uri: Uri) -> dict[str, bytes]:
    folder = uri / "trajectories"
    steps = [file.name for file in list_files(folder) if "/" not in file.name]
    return {name: read_bytes(folder / name) for name in steps}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with environment(**CREDENTIALS):
        server = S3Server()
        yield server
        server.stop()


@pytest.fixture(scope="module")
def finished(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run that loses its host after the first checkpoint and is ended on another."""
    tmp = tmp_path_factory.mktemp("hosts")
    uri = server.uri("runs/mine")
    log = tmp / "first.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            _command("train", *SMALL, f"run_dir={uri}"),
            env=_environment(tmp / "first"),
            stdout=output,
            stderr=output,
        )
    marker = "checkpoints/step-00001/complete.json"

    def is_sent() -> bool:
        assert process.poll() is None, log.read_text()
        return any(file.name == marker for file in list_files(uri))

    try:
        wait_until(is_sent, timeout_s=600, what=marker)
    except TimeoutError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from None
    _kill_all(process)
    process.wait()
    before = _trajectories(uri)
    shutil.rmtree(tmp / "first")
    resume = ("train", "--resume", f"run_dir={uri}", "driver_restarts=0")
    refused = _cast_ray(tmp / "second", *resume)
    claim = read_claim(uri)
    assert claim is not None
    silent = asdict(replace(claim, at=claim.at - 90))  # as if so many seconds had passed
    write_bytes(uri / OWNER, json.dumps(silent).encode())
    second = _cast_ray(tmp / "second", *resume)
    assert second.returncode == 0, second.stdout + second.stderr
    return Finished(uri=uri, refused=refused, before=before, second_cache=tmp / "second")


def test_a_host_that_was_just_alive_keeps_the_run(finished: Finished) -> None:
    assert finished.refused.returncode == 2
    assert re.search(r" \d+ s .* 90 s.*run_dir", finished.refused.stderr)
    assert "Traceback" not in finished.refused.stderr


def test_all_of_the_run_is_at_the_uri(finished: Finished) -> None:
    names = {file.name for file in list_files(finished.uri)}
    assert {f"trajectories/step-{step:05d}.parquet" for step in (1, 2, 3)} <= names
    assert not [name for name in names if name.startswith("trajectories/groups/")]
    assert {"config.yaml", "summary.json", "report.html", "metrics.parquet"} <= names
    assert {"starts.txt", "puzzles/train.parquet", "evaluations/after.parquet"} <= names
    for model in ("initial_model", "start_model", "model"):
        assert {f"{model}/complete.json", f"{model}/model.safetensors"} <= names
    assert any(name.startswith("tensorboard/") for name in names)
    kept = {name.split("/")[1] for name in names if name.startswith("checkpoints/")}
    assert kept == {"step-00002", "step-00003"}
    assert json.loads(read_bytes(finished.uri / "summary.json"))["steps"] == 3
    claim = read_claim(finished.uri)
    assert claim is not None
    assert claim.has_ended


def test_what_was_logged_before_the_loss_was_trained_on_and_not_played_again(
    finished: Finished,
) -> None:
    assert finished.before
    after = _trajectories(finished.uri)
    assert {name: after[name] for name in finished.before} == finished.before


def test_the_run_replays_without_a_difference(finished: Finished, tmp_path: Path) -> None:
    with environment(CAST_RAY_CACHE=str(tmp_path)):
        copy = readable_copy(finished.uri, with_weights=True)
    result = replay_run(copy)
    assert result.differences == ()
    assert result.num_trajectories == 3 * 8 + 2 * 4
    assert result.tokenizer
    metrics = pl.read_parquet(copy / "metrics.parquet")
    assert metrics["step"].to_list() == [1, 2, 3]


def test_the_report_of_a_uri_is_written_there(finished: Finished, tmp_path: Path) -> None:
    report = finished.uri / "report.html"
    write_bytes(report, b"old")
    done = _cast_ray(tmp_path, "report", finished.uri)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == report
    assert b"</html>" in read_bytes(report)


def test_the_working_copy_equals_what_is_there(finished: Finished, tmp_path: Path) -> None:
    [copy] = [path for path in (finished.second_cache / "runs").iterdir() if path.is_dir()]
    download_run(finished.uri, tmp_path / "there")
    for path in sorted((tmp_path / "there").rglob("*")):
        if path.is_file() and path.name != "report.html":
            assert (copy / path.relative_to(tmp_path / "there")).read_bytes() == path.read_bytes()
    assert pq.read_metadata(copy / "trajectories" / "step-00003.parquet").num_rows == 8


def test_a_finished_run_is_not_resumed_in_silence(finished: Finished, tmp_path: Path) -> None:
    again = _cast_ray(tmp_path, "train", "--resume", f"run_dir={finished.uri}")
    assert again.returncode == 2
    assert re.search(rf"{re.escape(str(finished.uri))}.* 3 steps.*steps=", again.stderr)
    new = _cast_ray(tmp_path, "train", *SMALL, f"run_dir={finished.uri}")
    assert new.returncode == 2
    assert "is not empty" in new.stderr
