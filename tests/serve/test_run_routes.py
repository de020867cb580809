"""Runs over HTTP: what the files say, and nothing outside their directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from solver_actors.oracle import Oracle
from tests.support.browsed_run import write_run
from tests.support.site import FREE, site_app

OUTSIDE = ["..", "../secret", "%2e%2e/secret", "/etc", "a/../../secret", "a\x00b", ".\\..", "link"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    oracle = Oracle(max_bytes=2**24)
    write_run(root / "runs" / "first", oracle)
    write_run(root / "secret", oracle)
    (root / "runs" / "link").symlink_to(root / "secret")
    return root / "runs"


@pytest.fixture(scope="module")
def site(runs: Path) -> Iterator[TestClient]:
    with TestClient(site_app(replace(FREE, runs=runs))) as client:
        yield client


def test_a_run_is_shown_down_to_the_turn(site: TestClient) -> None:
    [listed] = site.get("/api/runs").json()["runs"]
    assert listed["name"] == "first"
    run = site.get("/api/run", params={"run": "first"}).json()
    assert run["config"]["game"] == listed["game"]
    metrics = site.get("/api/run/metrics", params={"run": "first", "columns": "success"}).json()
    assert len(metrics["columns"]["success"]) == len(metrics["columns"]["step"])
    seen = 0
    for step in run["trajectory_steps"]:
        page = site.get("/api/run/step", params={"run": "first", "step": step}).json()
        assert page["total"] == len(page["trajectories"]) > 0
        for row in page["trajectories"]:
            which = {key: row[key] for key in ("group", "episode", "attempt")}
            episode = site.get(
                "/api/run/trajectory", params={"run": "first", "step": step, **which}
            ).json()
            assert episode["end_reason"] == row["end_reason"]
            assert len(episode["turns"]) == row["turns"]
            for turn in episode["turns"]:
                assert turn["analysis"]["cost"] == turn["cost_before"]
                assert turn["advantages"] is not None
                seen += 1
            # What the list says of regret is what the solver's own action costs say.
            regrets = [
                turn["analysis"]["q"][turn["action"]] - turn["cost_before"] + 1
                for turn in episode["turns"]
                if isinstance(turn["regret"], int) and turn["action"] in turn["analysis"]["q"]
            ]
            if regrets:
                assert row["max_regret"] >= max(regrets)
    assert seen > 10


def test_filters_reach_the_list(site: TestClient) -> None:
    everything = site.get("/api/run/step", params={"run": "first", "step": 1}).json()
    for reason in {row["end_reason"] for row in everything["trajectories"]}:
        some = site.get(
            "/api/run/step", params={"run": "first", "step": 1, "outcome": reason}
        ).json()
        assert {row["end_reason"] for row in some["trajectories"]} == {reason}
        assert some["total"] < everything["total"]
    longest = site.get("/api/run/step", params={"run": "first", "step": 1, "sort": "turns"}).json()
    turns = [row["turns"] for row in longest["trajectories"]]
    assert turns == sorted(turns, reverse=True)


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_outside_the_directory_is_read(site: TestClient, name: str) -> None:
    for path, more in (
        ("/api/run", {}),
        ("/api/run/metrics", {}),
        ("/api/run/step", {"step": 1}),
        ("/api/run/trajectory", {"step": 1, "group": 0, "episode": 0}),
    ):
        answer = site.get(path, params={"run": name, **more})
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"]["code"] == "run_unknown"


@pytest.mark.parametrize(
    "path", ["/web/../site/app.py", "/web/%2e%2e/site/app.py", "/web/..%2fapp.py"]
)
def test_files_of_the_page_are_all_that_is_given_out(site: TestClient, path: str) -> None:
    assert site.get(path).status_code == 404


def test_what_is_not_there_is_said_by_name(site: TestClient) -> None:
    asked = {"run": "first", "step": 999}
    unknown = site.get("/api/run/step", params=asked)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "step_unknown")
    asked = {"run": "first", "step": 1, "group": 999, "episode": 0}
    unknown = site.get("/api/run/trajectory", params=asked)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "trajectory_unknown")
    unknown = site.get("/api/run/metrics", params={"run": "first", "columns": "mood"})
    assert (unknown.status_code, unknown.json()["error"]["field"]) == (422, "columns")


def test_damaged_runs_are_shown_as_such_and_the_others_as_usual(tmp_path: Path) -> None:
    """What no list reads, a step's trajectories, is named when the step is opened."""
    oracle = Oracle(max_bytes=2**24)
    damaged = {"a": "config.yaml", "b": "metrics.parquet", "c": "trajectories/step-00001.parquet"}
    for name in (*damaged, "sound", "sound-too"):
        write_run(tmp_path / name, oracle)
    for name, file in damaged.items():
        flip(tmp_path / name / file)
    with TestClient(site_app(replace(FREE, runs=tmp_path))) as site:
        problems = {run["name"]: run["problem"] for run in site.get("/api/runs").json()["runs"]}
        answers = {
            name: site.get("/api/run/step", params={"run": name, "step": 1})
            for name in ("c", "sound", "sound-too")
        }
        opened = {name: site.get("/api/run", params={"run": name}) for name in problems}
    assert "config.yaml" in problems.pop("a")
    assert "metrics.parquet" in problems.pop("b")
    assert problems == {"c": None, "sound": None, "sound-too": None}
    refused = answers.pop("c")
    assert refused.status_code == 409
    assert "step-00001.parquet" in refused.json()["error"]["message"]
    assert [answer.json()["total"] for answer in answers.values()] == [4, 4]
    assert {name for name, answer in opened.items() if answer.status_code == 200} == {*problems}


def flip(path: Path) -> None:
    """Change one bit in the first byte."""
    data = bytearray(path.read_bytes())
    data[0] ^= 64
    path.write_bytes(data)
