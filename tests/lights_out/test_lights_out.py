"""Lights Out keeps the contract of a game: what a user's own test file looks like."""

from __future__ import annotations

import pytest

from cast_ray.games.testing import Check, conformance_checks
from lights_out.game import symmetric_forms
from lights_out.solver import LIGHTS_OUT


@pytest.mark.parametrize(
    "check", conformance_checks(LIGHTS_OUT, symmetries=symmetric_forms), ids=str
)
def test_lights_out_is_a_game_for_cast_ray(check: Check) -> None:
    check()
