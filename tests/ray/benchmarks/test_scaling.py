"""``cast-ray bench scaling`` on one and two real nodes of Ray's test cluster, for seconds."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.scaling import NOMINAL_TURNS_PER_S, bench_scaling

pytestmark = pytest.mark.ray

EVERYBODY = {
    "driver",
    "environment",
    "oracle",
    "engine",
    "serve_controller",
    "raylets",
    "ray_agents",
    "gcs",
}


def test_one_and_two_nodes_play_and_say_what_they_cost() -> None:
    figures = bench_scaling(numbers_of_nodes=(1, 2), warm_up_s=1, seconds=4, num_puzzles=8)
    assert json.loads(json.dumps(figures)) == figures
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    for number in (1, 2):
        for component in EVERYBODY:
            assert figures[f"{component}_cpu_ms_per_turn_{number}"] > 0
        rate = figures[f"turns_per_second_{number}"]
        # An engine cannot be faster than its slots; how much slower says only how busy this
        # machine is.
        assert 0 < rate < 1.1 * number * NOMINAL_TURNS_PER_S
        played = (1 - figures[f"slots_empty_percent_{number}"] / 100) * number * NOMINAL_TURNS_PER_S
        assert rate == pytest.approx(played, rel=0.25)
        assert figures[f"groups_{number}"] >= 1
        assert 1 <= figures[f"turns_per_call_{number}"] <= 64
        # Eight episodes of at least one turn each, and more bytes than one token a turn.
        assert figures[f"turns_per_group_{number}"] >= 8
        assert figures[f"trajectory_bytes_per_turn_{number}"] > 100
    # The second node has an engine, and somebody who plays with it, of its own.
    assert figures["turns_per_second_2"] > 1.2 * figures["turns_per_second_1"]
    assert figures["efficiency_2"] == pytest.approx(
        figures["turns_per_second_2"] / figures["turns_per_second_1"] / 2
    )
