"""Ray's job server, with bounded waits and one-sentence errors.

A thin layer over Ray's own job client, which waits for ever and raises tracebacks.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import TypeVar, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, proxy_bypass, urlopen

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from cast_ray.cluster.access import keep_token_private, token_file
from cast_ray.cluster.code_version import ray_version
from cast_ray.cluster.submit import JobPackage, JobRequest
from cast_ray.errors import ConfigError, EnvironmentSetupError, RemoteTimeout
from cast_ray.timeouts import answer_within

REFUSED = (
    "the cluster at {url} refused the token of this machine: copy the head's ~/.ray/auth_token to "
    "this machine's, or name it by RAY_AUTH_TOKEN_PATH"
)


def probe(url: str, *, timeout_s: float) -> None:
    """Raise unless jobs can be sent to a dashboard.

    Args:
        url: ``http://HOST:PORT``.
        timeout_s: limit for each of its two answers.

    Raises:
        EnvironmentSetupError: nothing answers there, or not Ray; the token is missing or wrong;
            the cluster runs another version of Ray.
    """
    open_to_all = Request(f"{url}/api/authentication_mode")
    mode = _get(url, open_to_all, timeout_s).get("authentication_mode")
    headers = {"Authorization": f"Bearer {_token(url)}"} if mode == "token" else {}
    version = Request(f"{url}/api/version", headers=headers)
    found = str(_get(url, version, timeout_s).get("ray_version"))
    if found != ray_version():
        raise EnvironmentSetupError(
            f"the cluster at {url} runs Ray {found}, this machine has {ray_version()}: install the "
            "same version on both"
        )


def unreachable(url: str, error: Exception) -> EnvironmentSetupError:
    """Return the error for an address where nothing answers."""
    reason = getattr(error, "reason", error)
    word = getattr(reason, "strerror", None) or type(reason).__name__
    remedy = "--address names another"
    if getproxies().keys() & {"http", "https", "all"} and not proxy_bypass(urlsplit(url).netloc):
        remedy = "a proxy of the environment was asked for it: no_proxy names hosts without one"
    return EnvironmentSetupError(
        f"nothing answers at {url} ({word}): is the cluster up, and its dashboard forwarded (ray "
        f"dashboard cluster.yaml)? {remedy}"
    )


def _get(url: str, request: Request, timeout_s: float) -> dict[str, object]:
    path = request.selector
    try:
        with urlopen(request, timeout=timeout_s) as response:
            answer = json.load(response)
        if isinstance(answer, dict):
            return answer
        found = type(answer).__name__
    except HTTPError as error:
        if error.code in (401, 403):
            raise EnvironmentSetupError(REFUSED.format(url=url)) from None
        found = str(error.code)
    except (HTTPException, ValueError):
        found = "not JSON"
    except OSError as error:
        raise unreachable(url, error) from None
    raise EnvironmentSetupError(f"{url} is not a Ray dashboard: {path} is {found}; check --address")


def _token(url: str) -> str:
    """Return the token that Ray would send, by the rules of its documentation."""
    wanted = f"the cluster at {url} requires a token"
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode != "token":
        raise EnvironmentSetupError(f"{wanted}: set RAY_AUTH_MODE=token (it is {mode!r})")
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"].strip()
    keep_token_private()
    file = token_file()
    token = file.read_text().strip() if file.is_file() else ""
    if not token:
        raise EnvironmentSetupError(
            f"{wanted}, and {file} has none: copy the head's ~/.ray/auth_token to it"
        )
    return token


DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""In the order in which Ray's own client reads them."""
_UPLOAD_TIMEOUT_S = 120.0
T = TypeVar("T")


class JobServer:
    """The job server of one cluster."""

    def __init__(self, address: str | None, *, timeout_s: float = 15.0) -> None:
        """Find the server and check that it accepts this machine.

        Args:
            address: ``http://HOST:PORT`` of the dashboard; None = what Ray's own client takes from
                the environment, else ``DEFAULT_ADDRESS``.
            timeout_s: limit for every request.

        Raises:
            ConfigError: the address is not a URL.
            EnvironmentSetupError: nothing answers, or it refuses, or runs another Ray version.
            RemoteTimeout: no answer in time.
        """
        self._timeout_s = timeout_s
        given = (os.environ[name] for name in _ADDRESS_VARIABLES if os.environ.get(name))
        wanted = address or next(given, DEFAULT_ADDRESS)
        if address is not None and "://" not in address:
            raise ConfigError(f"--address is a URL such as {DEFAULT_ADDRESS}, got {address!r}")
        self.url = wanted.rstrip("/")
        is_url = wanted.startswith(("http://", "https://"))
        if is_url:
            probe(self.url, timeout_s=timeout_s)
        with _named_in_environment(wanted):
            self._client = self._ask(lambda: JobSubmissionClient(wanted))
        if not is_url:  # the address of the cluster or of Ray's client server, which Ray resolved
            self.url = self._client.get_address()
            probe(self.url, timeout_s=timeout_s)

    def submit(self, request: JobRequest, package: JobPackage) -> None:
        """Upload the package and start the job.

        Raises:
            ConfigError: there is a job of that name already.
            EnvironmentSetupError: the server refused, or is gone.
            RemoteTimeout: no answer in time.
        """
        runtime_env: dict[str, object] = {"env_vars": request.env_vars}
        if package.num_files:
            runtime_env["working_dir"] = str(package.folder)
        self._ask(
            lambda: self._client.submit_job(
                entrypoint=request.command,
                submission_id=request.name,
                runtime_env=runtime_env,
                metadata=request.metadata,
            ),
            name=request.name,
            timeout_s=_UPLOAD_TIMEOUT_S,
        )

    def job(self, name: str) -> JobDetails:
        """Return what the server knows about a job.

        Raises:
            ConfigError: there is none of that name.
            EnvironmentSetupError: the server refused, or is gone.
            RemoteTimeout: no answer in time.
        """
        return self._ask(lambda: self._client.get_job_info(name), name=name)

    def jobs(self) -> list[JobDetails]:
        """Return all submitted jobs of the cluster, oldest first. Raises as ``job`` does."""
        named = [job for job in self._ask(self._client.list_jobs) if job.submission_id]
        return sorted(named, key=lambda job: job.start_time or 0)

    def stop(self, name: str) -> bool:
        """Ask a job to stop; return whether it was still running. Raises as ``job`` does."""
        if self.job(name).status.is_terminal():
            return False
        return self._ask(lambda: self._client.stop_job(name), name=name)

    def logs(self, name: str) -> str:
        """Return what a job has written so far. Raises as ``job`` does."""
        return self._ask(lambda: self._client.get_job_logs(name), name=name)

    def tail(self, name: str) -> AsyncGenerator[str, None]:
        """Iterate over what a job writes, from its first line on.

        It ends with the job, and raises aiohttp's errors if the connection is lost.
        """
        return cast(AsyncGenerator[str, None], self._client.tail_job_logs(name))

    def _ask(
        self, question: Callable[[], T], *, name: str = "", timeout_s: float | None = None
    ) -> T:
        limit_s = timeout_s or self._timeout_s
        try:
            return answer_within(limit_s, question, name="job_server")
        except TimeoutError:
            raise RemoteTimeout(
                f"the job server at {self.url} did not answer within {limit_s:.0f} s; jobs "
                "there keep running"
            ) from None
        except AuthenticationError:
            raise EnvironmentSetupError(REFUSED.format(url=self.url)) from None
        except RuntimeError as error:
            raise self._refusal(str(error), name) from None
        except OSError as error:  # connection errors of requests and of Ray
            raise unreachable(self.url, error) from None

    def _refusal(self, answer: str, name: str) -> ConfigError | EnvironmentSetupError:
        if "already exists" in answer:
            return ConfigError(
                f"{self.url} already has a job {name}: give another --name, or see its state with "
                f"--status {name}"
            )
        if "does not exist" in answer:
            return ConfigError(f"{self.url} has no job {name}: --list shows all")
        last = answer.strip().rpartition("\n")[2]
        return EnvironmentSetupError(f"the job server at {self.url} refused: {last}")


@contextmanager
def _named_in_environment(address: str) -> Iterator[None]:
    """Make Ray's client use ``address``: the environment overrides its argument."""
    variable = _ADDRESS_VARIABLES[0]
    before = os.environ.get(variable)
    os.environ[variable] = address
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
