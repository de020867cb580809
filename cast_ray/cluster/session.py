"""Ray for the duration of one job: join a running cluster, or start Ray on this machine.

Every wait is bounded and every refusal is one sentence. Ray itself tries for two minutes to reach
an address where nothing listens, and answers a wrong token with a traceback.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import ray
from ray.exceptions import AuthenticationError

from cast_ray.cluster.access import keep_token_private, make_token, private_folder, token_file
from cast_ray.cluster.jobs_api import REFUSED
from cast_ray.errors import ConfigError, EnvironmentSetupError, RemoteTimeout
from cast_ray.timeouts import START_TIMEOUT_S, answer_within, slow_start, use_start_limits

ANY = "auto"
"""The address of the cluster that this machine belongs to."""
_KNOCK_TIMEOUT_S = 5.0
_HOST_PORT = re.compile(r"(?P<host>[^:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_OBJECT_STORE_BYTES = 512 * 2**20
_TRIES = 3
"""To start a local Ray: the first one waits longest, for files that are not in memory yet."""
_LOG = logging.getLogger(__name__)
_REMEDY = "set RAY_ADDRESS to its head's HOST:PORT, and check the cluster with `ray status`"


def join_cluster(
    address: str, *, timeout_s: float = START_TIMEOUT_S, runtime_env: dict[str, Any] | None = None
) -> None:
    """Make this process a driver in a running cluster.

    Args:
        address: HOST:PORT of the head, or ``ANY``.
        timeout_s: for all of it.
        runtime_env: Ray's, for all processes of this driver.

    Raises:
        ConfigError: not an address of a cluster that can be joined from here.
        EnvironmentSetupError: nothing listens there, or the cluster refuses this process.
        RemoteTimeout: no answer in time.
    """
    # Without `use_start_limits`: a refused driver asks for as long as a GCS may need to start.
    _require_listener(address)
    keep_token_private()

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
        raise EnvironmentSetupError(
            f"RAY_AUTH_MODE is token, and {token_file()} has none for the cluster at {address}: "
            "copy the head's ~/.ray/auth_token to it"
        ) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise EnvironmentSetupError(refusal(address, error)) from None


def _require_listener(address: str) -> None:
    """Raise unless something listens at the address."""
    if address == ANY:  # Ray finds out quickly
        return
    match = _HOST_PORT.fullmatch(address)
    if match is None:
        raise ConfigError(
            f"the address of a cluster is HOST:PORT of its head, such as 10.0.0.1:6379, got "
            f"{address!r}"
        )
    host_port = match["host"].strip("[]"), int(match["port"])
    try:
        socket.create_connection(host_port, timeout=_KNOCK_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        word = getattr(error, "strerror", None) or "no such port"
        if isinstance(error, TimeoutError):
            word = f"no answer within {_KNOCK_TIMEOUT_S:.0f} s"
        raise EnvironmentSetupError(f"no cluster is at {address} ({word}): {_REMEDY}") from None


def refusal(address: str, error: BaseException) -> str:
    """Return one sentence for an error of Ray, whose message is mostly a traceback.

    Args:
        address: of the cluster.
        error: raised by Ray, with its causes.
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
    return f"the cluster at {address} refuses this process: {last}"


def _pairs(versions: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions)


@contextmanager
def ray_session(*, num_cpus: float) -> Iterator[bool]:
    """Join the cluster at RAY_ADDRESS, or start Ray on this machine; leave it after the block.

    SIGTERM acts like Ctrl-C in the block, so that everything is ended in order. Ray's own handler
    aborts the process after three seconds, which leaves engines in the cluster's Serve.

    Args:
        num_cpus: what the run reserves. A local Ray gets this number whatever the machine has:
            the parts of a step take turns, so reservations may exceed the cores.

    Yields:
        Whether a running cluster was joined.

    Raises:
        ConfigError, EnvironmentSetupError, RemoteTimeout: it cannot be joined, or started.
    """
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    address = os.environ.get("RAY_ADDRESS")
    if address:
        # Every node keeps the kernels of this version in the same folder.
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
            break
        except Exception as error:  # Ray raises no other one where its raylet does not come up
            for process in psutil.Process().children(recursive=True):
                if process not in before:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
            if not left:
                what = f"Ray did not start in {_TRIES} tries ({error})"
                raise EnvironmentSetupError(slow_start(what)) from error
            _LOG.warning("Ray did not start, and is started again: %s", error)
    if ray.util.get_node_ip_address() != "127.0.0.1":
        _LOG.warning(
            "Ray listens at all addresses of this machine: call use_loopback() of "
            "cast_ray.cluster.access before Ray is imported"
        )


def _init_local_ray(num_cpus: int, object_store_bytes: int) -> None:
    make_token()
    keep_token_private()
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=object_store_bytes,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=f"{private_folder()}/ray",
    )
