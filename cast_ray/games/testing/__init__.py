"""The checks that every game and its solver must pass, yours included."""

from cast_ray.games.testing.conformance import CHECKS, conformance_checks
from cast_ray.games.testing.samples import Check

__all__ = ["CHECKS", "Check", "conformance_checks"]
