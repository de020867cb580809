"""Which engines an env runner's episodes begin with."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serve.client.client import home_engines


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_engine_gets_the_same_share(num_clients: int, num_engines: int) -> None:
    shares: Counter[int] = Counter()
    for number in range(num_clients):
        home = home_engines(number, num_clients=num_clients, num_engines=num_engines)
        for engine in home:
            shares[engine] += 840 * 13 * 17 // len(home)  # of a client's episodes
    assert set(shares) == set(range(num_engines))
    assert max(shares.values()) - min(shares.values()) <= num_clients  # rounding


def test_as_many_actors_as_engines_have_one_each() -> None:
    homes = [list(home_engines(i, num_clients=8, num_engines=8)) for i in range(8)]
    assert homes == [[i] for i in range(8)]


def test_few_actors_share_the_engines_out() -> None:
    assert list(home_engines(1, num_clients=2, num_engines=6)) == [1, 3, 5]
    assert list(home_engines(1, num_clients=2, num_engines=3)) == [0, 1, 2]
