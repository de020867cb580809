"""A run at a URI without its learner: claimed by one, copied, sent, and found again elsewhere."""

from __future__ import annotations

import io
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, RunDirectoryError, StorageError
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.object_store import check_reachable, list_files, read_bytes, write_bytes
from cast_ray.runs.remote_directories import upload_directory
from cast_ray.runs.remote_lock import BEAT_S, STALE_S, Claim, RunOwner, check_free, read_claim
from cast_ray.runs.remote_run import OWNER, StoredRunDirectory, readable_copy, working_copy
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.remote_sync import RunPublisher
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.uris import Uri
from cast_ray.training.run import Run, open_run
from tests.support.stores import CREDENTIALS, S3Server, environment
from tests.support.waiting import wait_until

SMALL = ("puzzles.num_train=4", "puzzles.num_validation=1", "puzzles.num_held_out=2", "steps=3")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with environment(**CREDENTIALS):
        server = S3Server()
        check_reachable(server.uri("runs"), timeout_s=20)
        yield server
        server.stop()


@pytest.fixture
def uri(server: S3Server, tmp_path: Path) -> Uri:
    return server.uri(f"runs/{tmp_path.name}/mine")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with environment(CAST_RAY_CACHE=str(tmp_path / "host")):
        yield tmp_path / "host"


def opened(uri: Uri, *overrides: str, resume: bool = False) -> Run:
    config = load_config(None, [f"run_dir={uri}", *SMALL, *overrides])
    return open_run(config, resume=resume, progress=TrainProgress(Console(file=io.StringIO())))


def end(run: Run) -> None:
    """End a run as the end of its process does: nothing more is sent, and its locks go."""
    assert run.at_uri is not None
    assert run.at_uri.publisher is not None
    run.at_uri.publisher.close()
    run.at_uri._owner._ended.set()
    run.at_uri._held.close()
    run.at_uri.close = lambda *, failure: None
    run.on_exit.close()


def names_at(uri: Uri) -> set[str]:
    return {file.name for file in list_files(uri)}


def table(rows: int) -> pa.Table:
    return pa.table({"row": list(range(rows))})


def a_checkpoint(uri: Uri, step: int, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    (make_partial(place) / "weight").write_text(f"after step {step}")
    publish(place.with_name(".checkpoint.partial"), place)
    upload_directory(place, uri / f"checkpoints/step-{step:05d}")


# Opening


def test_a_new_run_is_at_its_uri_before_anything_starts(uri: Uri, cache: Path) -> None:
    run = opened(uri)
    assert {"config.yaml", "starts.txt", "puzzles/train.parquet", OWNER} <= names_at(uri)
    assert run.directory.path == working_copy(uri)
    assert run.directory.path.is_relative_to(cache)
    with run.on_exit:
        pass
    claim = read_claim(uri)
    assert claim is not None
    assert claim.has_ended


def test_a_new_run_does_not_mix_with_another(uri: Uri) -> None:
    with opened(uri).on_exit:
        pass
    with pytest.raises(RunDirectoryError, match=r"run_dir=.*--resume"):
        opened(uri)


def test_nothing_is_resumed_where_nothing_is(uri: Uri) -> None:
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        opened(uri, resume=True)


def test_bad_input_leaves_nothing_at_the_uri(uri: Uri, cache: Path) -> None:
    with pytest.raises(ConfigError, match="tier"):
        opened(uri, "tier=huge")
    assert names_at(uri) == set()
    assert not cache.exists()


def test_a_store_that_is_away_is_the_first_thing_said(server: S3Server) -> None:
    with pytest.raises(StorageError, match=r"not-made.*bucket"):
        opened(server.uri("not-made/run", options=""), "tier=huge")


def test_another_configuration_is_refused_and_the_run_is_free_again(uri: Uri) -> None:
    with opened(uri).on_exit:
        pass
    with pytest.raises(RunDirectoryError, match=r"configuration.*seed.*run_dir="):
        opened(uri, "seed=7", resume=True)
    with opened(uri, resume=True).on_exit:
        pass


def test_a_data_set_is_read_from_a_uri(uri: Uri, server: S3Server) -> None:
    with opened(uri).on_exit:
        pass
    puzzles = uri / "puzzles/train.parquet"
    run = opened(uri / "of-a-file", f"puzzles.file={puzzles}")
    with run.on_exit:
        assert len(run.boards.train) == 4
        assert len(run.boards.held_out) == 2


# Two at once


def test_who_trains_is_left_alone_by_another_host(uri: Uri, tmp_path: Path) -> None:
    run = opened(uri)
    with environment(CAST_RAY_CACHE=str(tmp_path / "elsewhere")):
        with pytest.raises(RunDirectoryError, match=r"trains in.* \d+ s .*run_dir"):
            opened(uri, resume=True)
        with run.on_exit:
            pass
        with opened(uri, resume=True).on_exit:
            pass


def test_who_trains_is_left_alone_on_its_own_host(uri: Uri) -> None:
    with (
        opened(uri).on_exit,
        pytest.raises(RunDirectoryError, match=r"process on this host.*run_dir"),
    ):
        opened(uri, resume=True)


@pytest.mark.parametrize(
    ("change", "is_free"),
    [
        ({}, False),
        ({"has_ended": True}, True),
        ({"at": -STALE_S}, True),
        ({"at": -STALE_S + BEAT_S}, False),
        ({"copy_id": "mine"}, True),
    ],
)
def test_a_claim_counts_while_it_is_renewed(change: dict[str, object], *, is_free: bool) -> None:
    claim = Claim(copy_id="other", host="there", pid=1, at=time.time())
    at = claim.at + change.pop("at", 0.0)  # type: ignore[operator]
    claim = replace(claim, at=at, **change)  # type: ignore[arg-type]
    if is_free:
        check_free(Uri("s3://b/r"), claim, copy_id="mine")
        return
    with pytest.raises(RunDirectoryError, match=r"there.*s3://b/r.* 90 s.*run_dir"):
        check_free(Uri("s3://b/r"), claim, copy_id="mine")


def test_a_claim_is_renewed(uri: Uri) -> None:
    owner = RunOwner(uri, copy_id="mine", beat_s=0.2)
    first = read_claim(uri)
    assert first is not None

    def is_renewed() -> bool:
        claim = read_claim(uri)
        return claim is not None and claim.at > first.at

    wait_until(is_renewed, timeout_s=20, what="a renewed claim")
    owner.release()


def test_of_two_that_claim_at_once_one_has_it(uri: Uri) -> None:
    kept: list[str] = []
    refused: list[str] = []

    def claim(name: str) -> None:
        try:
            RunOwner(uri, copy_id=name, beat_s=60)
        except RunDirectoryError:
            refused.append(name)
        else:
            kept.append(name)

    both = [threading.Thread(target=claim, args=(name,)) for name in ("a", "b")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(kept) == len(refused) == 1


def test_a_run_that_was_taken_over_is_not_written_to_any_more(uri: Uri) -> None:
    run = opened(uri)
    assert run.at_uri is not None
    owner = run.at_uri._owner
    claim = read_claim(uri)
    assert claim is not None
    other = json.dumps(asdict(replace(claim, copy_id="another"))).encode()
    write_bytes(uri / OWNER, other)
    owner._look()  # as its thread does
    (run.directory.path / "summary.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"taken over"):
        run.send_all()
    with pytest.raises(RunDirectoryError, match="taken over"), run.on_exit:
        pass
    assert "summary.json" not in names_at(uri)
    assert read_bytes(uri / OWNER) == other


# Sending


def test_what_the_driver_writes_is_sent_and_what_it_drops_is_dropped(uri: Uri) -> None:
    run = opened(uri)
    with run.on_exit:
        for group in (0, 1):
            path = run.directory.group_file(1, group)
            path.write_bytes(b"a group")
        wait_until(
            lambda: "trajectories/groups/step-00001-group-00001.parquet" in names_at(uri),
            timeout_s=20,
            what="a sent group",
        )
        run.directory.write_trajectories(1, table(4))
        run.directory.metrics.write_bytes(b"rows")
        run.send_all()
        names = names_at(uri)
        assert {"trajectories/step-00001.parquet", "metrics.parquet"} <= names
        run.send_all()
        assert not [name for name in names_at(uri) if "group-" in name]
        run.directory.metrics.write_bytes(b"more rows")
        run.send_all()
        assert read_bytes(uri / "metrics.parquet") == b"more rows"
        run.directory.set_aside(1)
        run.send_all()
        assert "inspection/step-00001.parquet" in names_at(uri)
        assert "trajectories/step-00001.parquet" not in names_at(uri)


def test_a_store_that_goes_away_for_a_while_loses_nothing(uri: Uri, server: S3Server) -> None:
    run = opened(uri)
    with run.on_exit:
        server.stop()
        run.directory.write_trajectories(1, table(4))
        threading.Timer(3.0, server.start).start()
        run.send_all()
        assert "trajectories/step-00001.parquet" in names_at(uri)


def test_a_store_that_stays_away_is_said_with_where_everything_is(
    uri: Uri, server: S3Server, tmp_path: Path
) -> None:
    """And the same host, resumed, sends what the store has missed."""
    run = opened(uri)
    directory = run.directory
    impatient = RunPublisher(directory.path, uri, may_write=lambda: None, there={}, patience_s=2)
    impatient.send_all()
    server.stop()
    try:
        directory.write_trajectories(1, table(4))
        with pytest.raises(StorageError, match=r" 2 s .*--resume") as raised:
            impatient.send_all()
        assert str(directory.path) in str(raised.value)
        with pytest.raises(StorageError, match=r" 2 s .*--resume"):
            impatient.send()  # also said to who does not wait
        end(run)
    finally:
        server.start()
    assert "trajectories/step-00001.parquet" not in names_at(uri)
    again = opened(uri, resume=True)
    with again.on_exit:
        assert "trajectories/step-00001.parquet" in names_at(uri)


# Going on elsewhere


def test_a_run_is_resumed_on_a_fresh_host_as_it_was(uri: Uri, tmp_path: Path) -> None:
    run = opened(uri)
    with run.on_exit:
        run.directory.write_trajectories(1, table(4))
        run.directory.write_trajectories(2, table(4))
        run.directory.group_file(3, 0).write_bytes(b"a group")
        run.directory.metrics.write_bytes(b"rows")
    a_checkpoint(uri, 1, tmp_path)
    first = _files(run.directory.path)
    with environment(CAST_RAY_CACHE=str(tmp_path / "fresh")):
        assert stored_config(uri) is not None
        again = opened(uri, resume=True)
        with again.on_exit:
            assert again.directory.path.is_relative_to(tmp_path / "fresh")
            found = _files(again.directory.path)
            start, _ = found.pop("starts.txt").splitlines()
            assert start.split()[0] == run.run_id.encode()
            assert again.earlier_ids == [run.run_id]
            first.pop("starts.txt")
            assert found == first
            assert again.goes_on is not None
            assert again.goes_on.checkpoint == uri / "checkpoints/step-00001"
            assert again.directory.last_logged_step == 2
        again.directory.metrics.write_bytes(b"nobody sends this")
    # The first host comes back: its copy is not the newest any more.
    back = opened(uri, resume=True)
    with back.on_exit:
        assert again.run_id in (back.directory.path / "starts.txt").read_text().splitlines()[1]


def test_a_copy_of_its_own_is_gone_on_with_and_sends_what_is_missing(uri: Uri) -> None:
    """As after a kill before everything was sent; what was sent already is not sent again."""
    run = opened(uri)
    run.directory.write_trajectories(1, table(4))
    run.send_all()
    end(run)
    run.directory.write_trajectories(2, table(4))
    sent = {file.name: file.changed_ns for file in list_files(uri)}
    time.sleep(1.1)  # S3 counts in seconds
    with opened(uri, resume=True).on_exit:
        assert "trajectories/step-00002.parquet" in names_at(uri)
    after = {file.name: file.changed_ns for file in list_files(uri)}
    name = "trajectories/step-00001.parquet"
    assert after[name] == sent[name]


def test_the_newest_whole_checkpoint_is_gone_on_from(uri: Uri, tmp_path: Path) -> None:
    run = opened(uri)
    directory = run.directory
    assert isinstance(directory, StoredRunDirectory)
    with run.on_exit:
        for step in (1, 2, 3):
            a_checkpoint(uri, step, tmp_path)
        write_bytes(uri / "checkpoints/step-00004/weight", b"cut off")
        write_bytes(uri / "checkpoints/step-00003/weight", b"shorter")
        point = directory.resume_point()
        assert point.step == 2
        assert "step 3" in point.damaged[0]
        directory.drop_old_checkpoints(2, kept=1)
        kept = {name.split("/")[1] for name in names_at(uri) if "checkpoints/" in name}
        assert kept == {"step-00002"}


def test_a_run_with_nothing_but_damaged_checkpoints_is_refused(uri: Uri, tmp_path: Path) -> None:
    with opened(uri).on_exit:
        a_checkpoint(uri, 1, tmp_path)
    write_bytes(uri / "checkpoints/step-00001/weight", b"shorter")
    with pytest.raises(RunDirectoryError, match=r"checkpoint.*step 1.*weight.*run_dir="):
        opened(uri, resume=True)


def test_a_copy_to_read_has_whole_weights_or_none(uri: Uri, tmp_path: Path) -> None:
    with opened(uri).on_exit:
        a_checkpoint(uri, 1, tmp_path)
        write_bytes(uri / "checkpoints/step-00002/weight", b"cut off")
        write_bytes(uri / "model/weight", b"cut off")
    copy = readable_copy(uri)
    light = _files(copy)
    assert "puzzles/train.parquet" in light
    assert "puzzles/train.parquet" not in _files(readable_copy(uri, folders=["evaluations"]))
    assert _files(copy) == light  # another reader's selection leaves it alone
    assert not any("weight" in name for name in light)
    full = _files(readable_copy(uri, with_weights=True))
    assert {name for name in full if "weight" in name} == {"checkpoints/step-00001/weight"}
    with pytest.raises(RunDirectoryError, match=r"puzzles.*config\.yaml"):
        readable_copy(uri / "puzzles")
    shutil.rmtree(tmp_path / "host")
    assert stored_config(uri) is not None


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
