"""Who may reach a service: address and API keys, for ``cast-ray serve`` and ``cast-ray view``."""

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
    """Return the digests of the API keys in the environment.

    Raises:
        ConfigError: one is too short to be a secret.
    """
    keys = [key.strip() for key in os.environ.get(KEYS_VARIABLE, "").split(",") if key.strip()]
    for number, key in enumerate(keys, start=1):
        if len(key) < _MIN_KEY_CHARACTERS:
            raise ConfigError(
                f"key {number} of {KEYS_VARIABLE} has {len(key)} characters: use at least "
                f"{_MIN_KEY_CHARACTERS}, for example from openssl rand -hex 24"
            )
    return tuple(digest_of_key(key) for key in keys)


def guard_settings(host: str, digests: tuple[str, ...]) -> GuardSettings:
    """Return the access rules of a service that listens on a host.

    Raises:
        ConfigError: the address is public and there is no key.
    """
    if not digests and not is_local(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines: set {KEYS_VARIABLE} to one or more "
            "API keys, separated by commas, or leave --host at 127.0.0.1"
        )
    return GuardSettings(key_digests=digests, allowed_hosts=() if digests else _LOCAL_HOSTS)


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def games_with_deadlocks() -> frozenset[str]:
    """Return the games that end once the solver proves them lost."""
    return frozenset(name for name in game_names() if has_deadlocks(name))


def base_url(host: str, port: int) -> str:
    """Return the address that a browser on this machine opens."""
    name = host.strip("[]")
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def check_port(host: str, port: int) -> None:
    """Refuse a port that is in use; Serve's own message has fifty lines.

    Raises:
        ConfigError: the port is in use, or the address is not one of this machine's.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((name, port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on --host {host} --port {port} ({error.strerror}); choose others"
            ) from None
