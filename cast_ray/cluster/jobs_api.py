"""Ray's job server, asked with every wait bounded and every refusal in one sentence.

Thin over Ray's own job client, which waits without end and answers in tracebacks.

Whether a Ray dashboard answers, lets this machine in, and is of its version.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from cast_ray.cluster.code_version import ray_version
from cast_ray.cluster.submit import JobPackage, JobRequest
from cast_ray.errors import ConfigError, EnvironmentSetupError, RemoteTimeout
from cast_ray.timeouts import answer_within

REFUSED = (
    "the cluster at {url} refused the token of this machine: copy the head's ~/.ray/auth_token to "
    "this machine's, or name it by RAY_AUTH_TOKEN_PATH"
)


def probe(url: str, *, timeout_s: float) -> None:
    """Return if jobs can be sent to a dashboard.

    Args:
        url: ``http://HOST:PORT``.
        timeout_s: limit for each of its two answers.

    Raises:
        EnvironmentSetupError: nobody answers there, or no Ray; the token is missing or wrong; the
            cluster's Ray is of another version.
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
    """Return the error that says that nobody answers at an address."""
    reason = getattr(error, "reason", error)
    word = getattr(reason, "strerror", None) or type(reason).__name__
    return EnvironmentSetupError(
        f"nothing answers at {url} ({word}): is the cluster up, and its dashboard forwarded (ray "
        "dashboard cluster.yaml)? --address gives another"
    )


def _get(url: str, request: Request, timeout_s: float) -> dict[str, object]:
    path = request.selector
    try:
        with urlopen(request, timeout=timeout_s) as response:
            answer = json.load(response)
    except HTTPError as error:
        if error.code in (401, 403):
            raise EnvironmentSetupError(REFUSED.format(url=url)) from None
        raise EnvironmentSetupError(f"{url} is no Ray dashboard: {path} is {error.code}") from None
    except (HTTPException, ValueError):
        raise EnvironmentSetupError(f"{url} is no Ray dashboard: {path} is no JSON") from None
    except OSError as error:
        raise unreachable(url, error) from None
    if not isinstance(answer, dict):
        raise EnvironmentSetupError(f"{url} is no Ray dashboard: {path} is no JSON object")
    return answer


def _token(url: str) -> str:
    """Return the token that Ray would send, by the rules of its documentation."""
    wanted = f"the cluster at {url} asks for a token"
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if mode != "token":
        raise EnvironmentSetupError(f"{wanted}: set RAY_AUTH_MODE=token (it is {mode!r})")
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"].strip()
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    token = file.read_text().strip() if file.is_file() else ""
    if not token:
        raise EnvironmentSetupError(
            f"{wanted}, and {file} holds none: copy the head's ~/.ray/auth_token to it"
        )
    return token


DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""In the order in which Ray's own client looks at them."""
_UPLOAD_TIMEOUT_S = 120.0
T = TypeVar("T")


class JobServer:
    """The job server of one cluster."""

    def __init__(self, address: str | None, *, timeout_s: float = 15.0) -> None:
        """Find the server and make sure that it lets this machine in.

        Args:
            address: ``http://HOST:PORT`` of the dashboard; None = what Ray's own client takes from
                the environment, else ``DEFAULT_ADDRESS``.
            timeout_s: limit for every question.

        Raises:
            ConfigError: no address that can be asked.
            EnvironmentSetupError: nobody answers, or one that refuses, or of another Ray version.
            RemoteTimeout: no answer in time.
        """
        self._timeout_s = timeout_s
        wanted = address or _address_in_environment() or DEFAULT_ADDRESS
        if address is not None and "://" not in address:
            raise ConfigError(f"--address is a URL such as {DEFAULT_ADDRESS}, got {address!r}")
        self.url = wanted.rstrip("/")
        is_url = wanted.startswith(("http://", "https://"))
        if is_url:
            probe(self.url, timeout_s=timeout_s)
        with _named_in_environment(wanted):
            self._client = self._ask(lambda: JobSubmissionClient(wanted))
        if not is_url:  # that of the cluster itself, or of Ray's client server: Ray looked it up
            self.url = self._client.get_address()
            probe(self.url, timeout_s=timeout_s)

    def submit(self, request: JobRequest, package: JobPackage) -> None:
        """Upload what travels and start the job.

        Raises:
            ConfigError: a job of that name is there already.
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
        """Return what the server knows of a job.

        Raises:
            ConfigError: there is none of that name.
            EnvironmentSetupError: the server refused, or is gone.
            RemoteTimeout: no answer in time.
        """
        return self._ask(lambda: self._client.get_job_info(name), name=name)

    def jobs(self) -> list[JobDetails]:
        """Return all submitted jobs of the cluster, oldest first. Raises as ``job`` does."""
        found = self._ask(self._client.list_jobs)
        named = [job for job in found if job.submission_id]
        return sorted(named, key=lambda job: job.start_time or 0)

    def stop(self, name: str) -> bool:
        """Ask a job to stop; return whether it was still running. Raises as ``job`` does."""
        if self.job(name).status.is_terminal():
            return False
        return self._ask(lambda: self._client.stop_job(name), name=name)

    def logs(self, name: str) -> str:
        """Return what a job wrote so far. Raises as ``job`` does."""
        return self._ask(lambda: self._client.get_job_logs(name), name=name)

    def tail(self, name: str) -> AsyncGenerator[str, None]:
        """Return an iterator over what a job writes, from its first line on.

        It ends with the job, and raises what aiohttp raises when the connection is lost.
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
                f"the job server at {self.url} did not answer within {limit_s:.0f} s; whatever "
                "runs there goes on"
            ) from None
        except AuthenticationError:
            raise EnvironmentSetupError(REFUSED.format(url=self.url)) from None
        except RuntimeError as error:
            raise self._in_words(str(error), name) from None
        except OSError as error:  # requests' and Ray's own errors of connection are such
            raise unreachable(self.url, error) from None

    def _in_words(self, answer: str, name: str) -> ConfigError | EnvironmentSetupError:
        if "already exists" in answer:
            return ConfigError(
                f"a job {name} is at {self.url} already: give another --name, or look at it with "
                f"--status {name}"
            )
        if "does not exist" in answer:
            return ConfigError(f"no job {name} is at {self.url}: --list says which are")
        last = answer.strip().rpartition("\n")[2]
        return EnvironmentSetupError(f"the job server at {self.url} refused: {last}")


def _address_in_environment() -> str | None:
    return next((os.environ[name] for name in _ADDRESS_VARIABLES if os.environ.get(name)), None)


@contextmanager
def _named_in_environment(address: str) -> Iterator[None]:
    """Let Ray's client use ``address``: it overrides its argument by the environment."""
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
