"""Trackers, each by its real package and offline: what they are told, and what they cannot do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, EnvironmentSetupError
from cast_ray.runs.metrics_log import MetricsLog
from cast_ray.runs.tracking import TrackedRun, Tracking, check_trackers, tracking
from tests.runs.test_metrics import row_of
from tests.support.full_disk import full_disk
from tests.support.refusals import refused
from tests.support.trackers import events, wandb_records
from tests.support.waiting import wait_until

SUMMARY = {"after": {"success": 0.5}, "steps": 2}
CONFIG = load_config(None, ["learner.lr=0.25", "seed=7"])


class Opened:
    """A run's log and trackers, and what they warned of."""

    def __init__(self, directory: Path, *names: str) -> None:
        directory.mkdir(exist_ok=True)
        self.warnings: list[str] = []
        run = TrackedRun(directory=directory, config=CONFIG)
        self.tracking = Tracking(names, run, warn=self.warnings.append)
        self._rows = directory / "metrics.parquet"
        self.log = MetricsLog(self._rows, self.tracking)

    def play(self) -> None:
        """Take two steps; the first is validated after the second."""
        self.log.append(row_of(1))
        self.log.append(row_of(2))
        self.tracking.games(2, ["won <game>", "lost game"])
        self.log.amend(1, validation_success=0.75)
        self.tracking.close(SUMMARY, failed=False)
        assert pl.read_parquet(self._rows)["validation_success"].to_list() == [0.75, None]


def test_tensorboard_shows_columns_lists_and_games(tmp_path: Path) -> None:
    opened = Opened(tmp_path, "tensorboard")
    opened.play()
    (file,) = (tmp_path / "tensorboard").iterdir()
    found = [(event.step, value) for event in events(file) for value in event.summary.value]
    numbers = [(step, value.tag, value.simple_value) for step, value in found]
    assert (1, "train/success", 0.5) in numbers
    assert (2, "time/seconds_learner", 0.5) in numbers
    assert (2, "train/engine_busy_fractions/1", 0.75) in numbers
    validated = [row for row in numbers if row[1] == "train/validation_success"]
    assert validated == [(1, "train/validation_success", 0.75)]
    texts = [
        (step, value.tag.partition("/")[0], value.tensor.string_val[0].decode())
        for step, value in found
        if value.tensor.dtype
    ]
    named = {name: (step, text) for step, name, text in texts}
    assert len(texts) == len(named) == 3
    step, text = named["games"]
    assert step == 2 and "    won <game>" in text and "    lost game" in text
    step, text = named["configuration"]
    assert step == 0 and "    learner.lr: 0.25\n" in text and "    seed: 7\n" in text
    assert named["summary"] == (2, textwrap.indent(json.dumps(SUMMARY, indent=2), "    "))
    assert not opened.warnings


def test_mlflow_shows_the_same_and_goes_on_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for _ in range(2):  # the second driver resumes
        opened = Opened(tmp_path / "run", "mlflow")
        opened.play()
        assert not opened.warnings
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/run/mlflow/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "cast_ray"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert (run.data.params["learner.lr"], run.data.params["seed"]) == ("0.25", "7")
    assert run.data.metrics["train/engine_busy_fractions/1"] == 0.75
    history = client.get_metric_history(run.info.run_id, "train/validation_success")
    assert {(one.step, one.value) for one in history} == {(1, 0.75)}
    folder = tmp_path / "run" / "mlflow" / "artifacts" / run.info.run_id / "artifacts"
    assert (folder / "games" / "step-00002.txt").read_text() == "won <game>\n\nlost game"
    assert json.loads((folder / "summary.json").read_text()) == SUMMARY


def test_wandb_shows_the_same_and_goes_on_with_the_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    # In processes of their own, like drivers: the package keeps its first settings.
    script = (
        "import os, sys; from pathlib import Path; os.environ['WANDB_MODE'] = 'offline'\n"
        "from tests.runs.test_tracking import Opened\n"
        "opened = Opened(Path(sys.argv[1]), 'wandb'); opened.play(); assert not opened.warnings"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "run")],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2 and len({file.name for file in files}) == 1
    records = list(wandb_records(files[0]))
    rows = [
        {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    assert [row["step"] for row in rows] == [1, 2, 2, 1]
    assert rows[0]["train/engine_busy_fractions/1"] == rows[3]["train/validation_success"] == 0.75
    game = (files[0].parent / "files" / rows[2]["games/path"]).read_text()
    assert game == "<pre>won &lt;game&gt;</pre><pre>lost game</pre>"
    (run,) = [record.run for record in records if record.HasField("run")]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.project, run.display_name) == ("cast_ray", "run")
    assert (config["learner"]["lr"], config["seed"]) == (0.25, 7)
    updates = [item for record in records for item in record.summary.update]
    assert {"after": json.dumps(SUMMARY["after"], separators=(",", ":"))}.items() <= {
        item.key: item.value_json for item in updates
    }.items()


def test_full_disk_stops_tensorboard_and_not_the_run(tmp_path: Path) -> None:
    opened = Opened(tmp_path, "tensorboard")
    with full_disk(60_000):  # the table has room, the events of all steps together have not
        for step in range(100):
            opened.log.append(row_of(step))
        wait_until(lambda: opened.warnings, timeout_s=30, what="the warning")
    assert len(opened.warnings) == 1
    assert "tracking=tensorboard failed and is off for the rest" in opened.warnings[0]
    assert pl.read_parquet(tmp_path / "metrics.parquet").height == 100


def test_full_disk_still_ends_the_log_itself_in_one_sentence(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    with (
        pytest.raises(EnvironmentSetupError, match=r"metrics\.parquet.*free some space"),
        full_disk(),
    ):
        opened.log.append(row_of(1))


def test_trackers_that_ask_at_once_get_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(num_bytes: int) -> str:
        time.sleep(0.05)
        return uuid.uuid4().hex[: 2 * num_bytes]

    monkeypatch.setattr("cast_ray.runs.tracking.tracker.secrets.token_hex", slow)
    run = TrackedRun(directory=tmp_path, config=CONFIG)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(run.identity) for _ in range(4)]
    assert {one.result() for one in found} == {run.identity()}


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_server_that_is_away_is_told_once_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    opened = Opened(tmp_path, "mlflow", "tensorboard")
    opened.play()
    (warning,) = opened.warnings
    assert "tracking=mlflow failed and is off" in warning and str(port) in warning
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert {event.step for event in events(file)} >= {1, 2}


def test_server_that_never_answers_delays_the_end_by_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_server: str
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    monkeypatch.setattr(tracking, "CLOSE_S", 0.5)
    opened = Opened(tmp_path, "mlflow")
    opened.play()
    (warning,) = opened.warnings
    assert warning.startswith("tracking=mlflow did not end within 0.5 s and was left")


@pytest.mark.parametrize("value", ["[wand]", "[wandb,wandb]", "[tensorboard,comet]"])
def test_names_that_are_none_or_twice_are_refused(value: str) -> None:
    with refused(ConfigError, "tracking", "tensorboard, wandb, mlflow"):
        load_config(None, [f"tracking={value}"])


def test_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr(tracking.importlib.util, "find_spec", missing)
    with refused(ConfigError, "tracking=mlflow", "'cast-ray[mlflow]'"):
        check_trackers(["mlflow"])
    assert load_config(None, ["tracking=[]"]).tracking == []
    check_trackers([])


def test_wandb_without_a_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    known = {"PATH": str(Path(sys.executable).parent), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["cast-ray", "train", "tracking=[wandb]", "run_dir=run"],
        cwd=tmp_path, env=known, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "tracking=wandb has no key: run wandb login" in done.stderr
    assert not (tmp_path / "run").exists()
