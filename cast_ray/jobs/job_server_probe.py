"""Whether a Ray dashboard answers, lets this machine in, and is of its version."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cast_ray.errors import EnvironmentSetupError
from cast_ray.jobs.code_version import ray_version

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
