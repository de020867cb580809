"""The checks that every game and its solver must pass, yours included."""

from cast_ray.games.testing.conformance import CHECKS, Check, conformance_checks

__all__ = ["CHECKS", "Check", "conformance_checks"]
