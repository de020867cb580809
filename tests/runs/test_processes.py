"""Whose something is: a living process, an ended one, or one that cannot be seen from here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cast_ray.config.load import load_config
from cast_ray.runs.processes import ProcessIdentity
from cast_ray.runs.run_directory import RunDirectory
from tests.support.waiting import wait_until

ME = ProcessIdentity.of_this_process()
SLEEPS = "import time; print(flush=True); time.sleep(600)"
STARTS = (
    "import sys, time; from pathlib import Path; from cast_ray.runs.run_directory import *\n"
    "RunDirectory(Path(sys.argv[1])).note_start('first'); print(flush=True); time.sleep(600)"
)


def started(*command: str) -> subprocess.Popen[bytes]:
    """Return a process once it has said a line."""
    process = subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    return process


def identity_of(pid: int) -> ProcessIdentity:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return replace(ME, pid=pid, started=int(fields[19]))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has started in the run directory ``run``."""
    RunDirectory.create(tmp_path / "run", load_config(None, []))
    process = started(STARTS, str(tmp_path / "run"))
    yield process
    process.kill()
    process.wait()


def test_an_identity_comes_back_from_its_text() -> None:
    assert ProcessIdentity.from_text(str(ME)) == ME
    for text in ("", "123", "a b c d e", f"{ME} more"):
        assert ProcessIdentity.from_text(text) is None


def test_a_process_is_alive_until_it_ends_also_before_its_parent_has_asked() -> None:
    process = started(SLEEPS)
    identity = identity_of(process.pid)
    assert identity.is_alive() is True
    process.kill()
    # As a zombie: nobody has asked for its end yet.
    wait_until(lambda: identity.is_alive() is False, timeout_s=10, what="it is gone")
    process.wait()
    assert identity.is_alive() is False


def test_a_number_that_was_used_again_is_another_process() -> None:
    assert replace(ME, started=ME.started - 1).is_alive() is False


@pytest.mark.parametrize("other", [{"boot_id": "x"}, {"pid_namespace": "pid:[1]"}])
def test_a_process_of_another_host_or_container_is_unknown(other: dict[str, str]) -> None:
    assert replace(ME, **other).is_alive() is None


def test_a_copy_does_not_take_its_original_s_driver_for_a_dead_one(
    tmp_path: Path, driver: subprocess.Popen[bytes]
) -> None:
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    copy = RunDirectory(tmp_path / "copy")
    assert copy.note_start("second") == []
    driver.kill()
    driver.wait()
    assert copy.note_start("third") == ["first", "second"]


def test_a_driver_elsewhere_has_ended_only_where_this_is_its_directory(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", load_config(None, []))
    elsewhere = replace(ME, boot_id="x", host="other")
    lines = [f"old\t{elsewhere}\t{run.address}", f"copied\t{elsewhere}\t/other/run", "unknown"]
    run.starts.write_text("".join(f"{line}\n" for line in lines))
    assert run.note_start("new") == ["old"]
