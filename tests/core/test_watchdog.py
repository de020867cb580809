"""A process that was started by another ends with it, even when that one is killed."""

from __future__ import annotations

import multiprocessing
import os
import time

import psutil

from serve.watchdog import end_with_parent

SPAWN = multiprocessing.get_context("spawn")


def child() -> None:
    end_with_parent()
    time.sleep(60)


def parent(pids: multiprocessing.Queue[int]) -> None:
    process = SPAWN.Process(target=child)
    process.start()
    pids.put(process.pid)
    process.join()


def test_child_ends_when_its_parent_is_killed() -> None:
    pids = SPAWN.Queue()
    killed = SPAWN.Process(target=parent, args=(pids,))
    killed.start()
    orphan = psutil.Process(pids.get(timeout=30))
    os.kill(killed.pid, 9)
    orphan.wait(timeout=10)


def test_a_process_without_such_a_parent_goes_on() -> None:
    end_with_parent()
