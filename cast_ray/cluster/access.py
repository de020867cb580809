"""Keep a Ray that runs on one machine to that machine and its user.

To be called before Ray is imported, so this module does not import it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

_LOOPBACK = {
    # Ray then gives its node the address 127.0.0.1, and its servers listen there alone. Despite the
    # name that holds on Linux as well. Ray replaces a 127.0.0.1 that it is given as an argument.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Groups of PyTorch, by default at the address that the host's name has.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
}


def use_loopback() -> None:
    """Let Ray, PyTorch and vLLM listen on 127.0.0.1 alone, unless RAY_ADDRESS names a cluster.

    In this process and those that it starts; what the environment sets already stays.
    """
    if not os.environ.get("RAY_ADDRESS"):
        for name, value in _LOOPBACK.items():
            os.environ.setdefault(name, value)


def token_file() -> Path:
    """Return where Ray reads this machine's token."""
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or _own_token_file())


def keep_token_private() -> None:
    """Take ``~/.ray/auth_token`` from the machine's other users: Ray lets them read it.

    A file that RAY_AUTH_TOKEN_PATH names keeps the mode that it was given.
    """
    file = _own_token_file()
    if file.is_file() and file.stat().st_mode & 0o077:
        file.chmod(0o600)


def make_token() -> None:
    """Write ``~/.ray/auth_token`` if there is none, as Ray does, but for its owner alone."""
    file = _own_token_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        suppress(FileExistsError),
        open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as new,
    ):
        new.write(secrets.token_hex(32))


def private_folder() -> str:
    """Return a new folder of this user's alone; the one below it Ray opens to all users."""
    return tempfile.mkdtemp(prefix="cast_ray-", dir=os.environ.get("RAY_TMPDIR"))


def _own_token_file() -> Path:
    return Path.home() / ".ray" / "auth_token"
