"""Ray for the length of one job.

Joining a cluster of Ray that runs already: every wait bounded, every refusal one sentence.

Ray itself tries for two minutes to reach an address where nobody is, and answers a wrong token with
a traceback.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import AuthenticationError

from cast_ray.cluster.jobs_api import REFUSED
from cast_ray.errors import ConfigError, EnvironmentSetupError, RemoteTimeout
from cast_ray.timeouts import START_TIMEOUT_S, answer_within, slow_start, use_start_limits

ANY = "auto"
"""The address that stands for the cluster which this machine belongs to."""
_KNOCK_TIMEOUT_S = 5.0
_HOST_PORT = re.compile(r"(?P<host>[^:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_OBJECT_STORE_BYTES = 512 * 2**20
_TRIES = 3
"""To start a local Ray: the first one waits longest, for files that are not in memory yet."""
_LOG = logging.getLogger(__name__)
_REMEDY = "give its head's HOST:PORT by RAY_ADDRESS, and look at it with `ray status`"


def join_cluster(
    address: str, *, timeout_s: float = START_TIMEOUT_S, runtime_env: dict[str, Any] | None = None
) -> None:
    """Make this process a driver in a running cluster.

    Args:
        address: HOST:PORT of the head, or ``ANY``.
        timeout_s: for all of it.
        runtime_env: Ray's, of all processes of this driver.

    Raises:
        ConfigError: no address of a cluster that can be joined from here.
        EnvironmentSetupError: nobody is there, or does not let this process in.
        RemoteTimeout: no answer in time.
    """
    _require_listener(address)
    use_start_limits()

    def join() -> None:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=runtime_env,
        )

    try:
        answer_within(timeout_s, join, name="join_cluster")
    except TimeoutError:
        raise RemoteTimeout(
            f"the cluster at {address} did not answer within {timeout_s:.0f} s: {_REMEDY}"
        ) from None
    except AuthenticationError:
        raise EnvironmentSetupError(_token_is_missing(address)) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentSetupError(refusal(address, error)) from None


def _require_listener(address: str) -> None:
    """Raise unless somebody listens there; where Ray looks for a cluster itself, it is quick."""
    if address == ANY:
        return
    match = _HOST_PORT.fullmatch(address)
    if match is None:
        raise ConfigError(
            f"the address of a cluster is HOST:PORT of its head, such as 10.0.0.1:6379, got "
            f"{address!r}"
        )
    place = match["host"].strip("[]"), int(match["port"])
    try:
        socket.create_connection(place, timeout=_KNOCK_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        word = getattr(error, "strerror", None) or "no such port"
        if isinstance(error, TimeoutError):
            word = f"no answer within {_KNOCK_TIMEOUT_S:.0f} s"
        raise EnvironmentSetupError(f"no cluster is at {address} ({word}): {_REMEDY}") from None


def _token_is_missing(address: str) -> str:
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    return (
        f"RAY_AUTH_MODE is token, and {file} holds none for the cluster at {address}: copy the "
        "head's ~/.ray/auth_token to it"
    )


def refusal(address: str, error: BaseException) -> str:
    """Return what Ray says in many lines, of which most are its own frames, in one sentence.

    Args:
        address: that was asked.
        error: that Ray raised, with its causes.
    """
    texts, cause = [], error
    while cause is not None:
        texts.append(str(cause).strip())
        cause = cause.__cause__
    text = "\n".join(texts)
    if "InvalidAuthToken" in text:
        if (mode := os.environ.get("RAY_AUTH_MODE", "")) != "token":
            return (
                f"the cluster at {address} asks for a token: set RAY_AUTH_MODE=token (it is "
                f"{mode!r})"
            )
        return REFUSED.format(url=address)
    if "Could not find any running Ray" in text:
        return f"no cluster runs on this machine: {_REMEDY}"
    if "Version mismatch" in text:
        found = re.findall(r"(Ray|Python): (\S+)", text)
        there, here = found[:2], found[2:4]
        return (
            f"the cluster at {address} has {_pairs(there)}, this machine {_pairs(here)}: install "
            "the same on both"
        )
    last = texts[-1].rpartition("\n")[2]
    return f"the cluster at {address} does not let this process in: {last}"


def _pairs(versions: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions)


@contextmanager
def ray_session(*, num_cpus: float) -> Iterator[bool]:
    """Use the cluster named by RAY_ADDRESS, or start Ray on this machine; leave it at the end.

    SIGTERM is Ctrl-C meanwhile: what was started is ended in order. Ray's own handler aborts the
    process three seconds later, and engines of a run that was starting stay in the cluster's Serve.

    Args:
        num_cpus: what the run reserves. A local Ray is told so many, whatever the machine has:
            the parts of a step take turns, so that reservations may exceed the cores.

    Yields:
        Whether the cluster was there before.

    Raises:
        ConfigError, EnvironmentSetupError, RemoteTimeout: it cannot be joined, or started.
    """
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    address = os.environ.get("RAY_ADDRESS")
    if address:
        # Kernels of any node go where they are of this version.
        kernels = {"NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}
        join_cluster(address, runtime_env={"env_vars": kernels})
    else:
        start_ray(num_cpus=int(-(-num_cpus // 1)))
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield bool(address)
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, previous)


def start_ray(*, num_cpus: int, object_store_bytes: int = _OBJECT_STORE_BYTES) -> None:
    """Start Ray on this machine.

    Raises:
        EnvironmentSetupError: it does not come up in ``_TRIES``.
    """
    use_start_limits()
    for left in reversed(range(_TRIES)):
        before = psutil.Process().children(recursive=True)
        try:
            _init_local_ray(num_cpus, object_store_bytes)
            return
        except Exception as error:  # Ray raises no other one where its raylet does not come up
            for process in psutil.Process().children(recursive=True):
                if process not in before:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            if not left:
                what = f"Ray did not start in {_TRIES} tries ({error})"
                raise EnvironmentSetupError(slow_start(what)) from error
            _LOG.warning("Ray did not start, and is started again: %s", error)


def _init_local_ray(num_cpus: int, object_store_bytes: int) -> None:
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=object_store_bytes,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
