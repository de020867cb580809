"""Who may reach a service: its address, its API keys, and the rules that both commands share."""

from __future__ import annotations

import ipaddress
import os
import socket

from cast_ray.errors import ConfigError
from cast_ray.games import game_names
from serve.site.guard import GuardSettings, digest_of_key
from solver_actors.registry import has_deadlocks

KEYS_VARIABLE = "CAST_RAY_API_KEYS"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_MIN_KEY_CHARACTERS = 16


def api_keys() -> tuple[str, ...]:
    """Return the API keys of the environment, as digests.

    Raises:
        ConfigError: one is too short to be a secret.
    """
    keys = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",") if key.strip()]
    for number, key in enumerate(keys, start=1):
        if len(key) < _MIN_KEY_CHARACTERS:
            raise ConfigError(
                f"key {number} of {KEYS_VARIABLE} has {len(key)} characters: take at least "
                f"{_MIN_KEY_CHARACTERS}, for example of openssl rand -hex 24"
            )
    return tuple(digest_of_key(key) for key in keys)


def guard_settings(host: str, digests: tuple[str, ...]) -> GuardSettings:
    """Return who may ask a service that listens on a host.

    Raises:
        ConfigError: the address is public and there is no key.
    """
    if not digests and not is_local(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines: set {KEYS_VARIABLE} to one or more "
            "API keys (comma between them), or leave --host at 127.0.0.1"
        )
    return GuardSettings(key_digests=digests, allowed_hosts=() if digests else _LOCAL_HOSTS)


def is_local(host: str) -> bool:
    """Return whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def games_with_deadlocks() -> frozenset[str]:
    """Return the games that end where the solver proves them lost."""
    return frozenset(name for name in game_names() if has_deadlocks(name))


def base_url(host: str, port: int) -> str:
    """Return the address that a browser on this machine opens."""
    name = host.strip("[]")
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def check_port(host: str, port: int) -> None:
    """Refuse a port that somebody listens on, which Serve would say in fifty lines.

    Raises:
        ConfigError: it is taken, or the address is none of this machine's.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((name, port))
        except OSError as error:
            raise ConfigError(
                f"--port {port} of --host {host} cannot be had ({error.strerror}): give another"
            ) from None
