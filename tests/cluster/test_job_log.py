"""Following a job of a server's double that loses connections and falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp
import pytest
from ray.job_submission import JobDetails, JobStatus, JobType

from cast_ray.cluster.job_log import follow
from cast_ray.errors import ConfigError, EnvironmentSetupError, RunInterrupted

LOST = aiohttp.ClientError("lost")
SILENCE = "silence"


class Server:
    """A job whose log is read in connections, each of them pieces and how it ends."""

    def __init__(self, *connections: list[object], statuses: list[object]) -> None:
        self.connections = list(connections)
        self.statuses = statuses
        self.num_tails = 0

    def job(self, name: str) -> JobDetails:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if isinstance(status, Exception):
            raise status
        return JobDetails(type=JobType.SUBMISSION, status=str(status), entrypoint="")

    async def tail(self, name: str) -> AsyncGenerator[str, None]:
        self.num_tails += 1
        pieces = self.connections.pop(0) if len(self.connections) > 1 else self.connections[0]
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            if piece == SILENCE:
                await asyncio.sleep(60)
            yield str(piece)


def followed(server: Server, *, retry_for_s: float = 5.0) -> tuple[JobStatus, list[str]]:
    written: list[str] = []
    status = follow(
        server,
        "one",
        written.append,
        retry_for_s=retry_for_s,
        silence_s=0.02,
        retry_after_s=0.001,
    )
    return status, written


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_job_is_followed_to_its_end(end: str) -> None:
    status, written = followed(Server(["a\n", "b\n"], statuses=[end]))
    assert (status, written) == (JobStatus(end), ["a\n", "b\n"])


def test_lost_connection_repeats_and_loses_no_letter() -> None:
    # Read again from its first line, and cut into other pieces.
    server = Server(
        ["a\nb", LOST],
        ["a\n", "b\nc\n", LOST],
        ["a\nb\nc\nd\n"],
        statuses=["RUNNING", "RUNNING", "SUCCEEDED"],
    )
    status, written = followed(server)
    assert status == JobStatus.SUCCEEDED
    assert "".join(written) == "a\nb\nc\nd\n"
    assert all(written)


def test_last_lines_are_read_after_a_loss_at_the_end() -> None:
    server = Server(["a\n", LOST], ["a\n", "last\n"], statuses=["FAILED"])
    status, written = followed(server)
    assert (status, "".join(written)) == (JobStatus.FAILED, "a\nlast\n")


def test_ended_job_whose_log_is_gone_is_not_waited_for() -> None:
    server = Server([LOST], statuses=["FAILED"])
    assert followed(server) == (JobStatus.FAILED, [])
    assert server.num_tails == 3


def test_cluster_that_comes_back_is_followed_on() -> None:
    away = EnvironmentSetupError("nothing answers")
    server = Server(["a\n", LOST], [LOST], ["a\nb\n"], statuses=[away, "RUNNING", "SUCCEEDED"])
    assert "".join(followed(server)[1]) == "a\nb\n"


def test_cluster_that_stays_away_is_given_up_and_the_job_said_to_go_on() -> None:
    away = EnvironmentSetupError("nothing answers at http://head")
    server = Server(["a\n", LOST], [LOST], statuses=[away])
    with pytest.raises(RunInterrupted, match=r"one.*http://head.*--logs one"):
        followed(server, retry_for_s=0.05)


def test_time_away_is_counted_anew_after_each_return() -> None:
    away = EnvironmentSetupError("nothing answers")
    times = [x for _ in range(20) for x in (away, away, "RUNNING")]
    server = Server([LOST], statuses=[*times, "STOPPED"])
    assert followed(server, retry_for_s=0.05)[0] == JobStatus.STOPPED


def test_silent_job_is_followed_on_while_its_server_answers() -> None:
    server = Server(["a\n", SILENCE, "never\n"], statuses=["RUNNING", "RUNNING", "SUCCEEDED"])
    assert followed(server) == (JobStatus.SUCCEEDED, ["a\n"])
    assert server.num_tails == 1


def test_silence_of_a_server_that_is_gone_ends() -> None:
    away = EnvironmentSetupError("nothing answers")
    server = Server(["a\n", SILENCE], statuses=["RUNNING", away])
    with pytest.raises(RunInterrupted, match=r"one.*nothing answers.*--logs one"):
        followed(server, retry_for_s=0.05)


def test_job_that_does_not_exist_is_said_to_at_once() -> None:
    server = Server([LOST], statuses=[ConfigError("no job one is there")])
    with pytest.raises(ConfigError, match="no job one"):
        followed(server)
