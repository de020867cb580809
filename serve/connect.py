"""From the names of a run's engines to a function that generates, inside any Ray process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ray import serve as ray_serve

from serve.client import PolicyClient


def connect_policy(
    app_names: Sequence[str],
    *,
    expected: Collection[str] = (),
    slots_per_engine: int,
    timeout_s: float,
    recovery_timeout_s: float,
) -> PolicyClient:
    """Return a client of these engines; see ``PolicyClient`` for what the arguments mean.

    Must be called in the event loop that will use it.
    """
    return PolicyClient(
        [ray_serve.get_app_handle(name) for name in app_names],
        expected=expected,
        slots_per_engine=slots_per_engine,
        timeout_s=timeout_s,
        recovery_timeout_s=recovery_timeout_s,
    )
