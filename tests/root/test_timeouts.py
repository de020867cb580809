"""Limits for a start, and the message where they are not enough."""

from __future__ import annotations

import os

import pytest

from cast_ray.timeouts import slow_start, use_start_limits


def test_a_limit_of_the_users_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, unset = "RAY_worker_register_timeout_seconds", "RAY_raylet_start_wait_time_s"
    monkeypatch.setenv(mine, "7")
    monkeypatch.delenv(unset)  # tests/conftest.py has set it
    use_start_limits()
    assert os.environ[mine] == "7"
    assert int(os.environ[unset]) > 30


def test_message_names_what_failed_and_load_memory_and_disks() -> None:
    message = slow_start("Ray did not start")
    assert message.startswith("Ray did not start: ")
    for fact in ("load average", "GiB of memory", "/tmp", "/dev/shm"):
        assert fact in message
