"""Exact solvers of the games, value networks, and the Ray actors that hold them."""
