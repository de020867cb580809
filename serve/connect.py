"""From the names of a run's engines to a function that generates, inside any Ray process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ray import serve as ray_serve

from serve.client import PolicyClient, home_engines


def connect_policy(
    app_names: Sequence[str],
    number: int = 0,
    *,
    num_clients: int = 1,
    expected: Collection[str] = (),
    slots_per_engine: int,
    timeout_s: float,
    recovery_timeout_s: float,
) -> PolicyClient:
    """Return a client of these engines; see ``PolicyClient`` for what the arguments mean.

    ``number`` of ``num_clients`` says which client this is, of those that share the engines.

    Must be called in the event loop that will use it.
    """
    return PolicyClient(
        [ray_serve.get_app_handle(name) for name in app_names],
        home=home_engines(number, num_clients=num_clients, num_engines=len(app_names)),
        expected=expected,
        slots_per_engine=slots_per_engine,
        timeout_s=timeout_s,
        recovery_timeout_s=recovery_timeout_s,
    )
