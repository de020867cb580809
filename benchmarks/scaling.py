"""Turns per second of 1, 2, 4 and 8 simulated nodes, each with an engine of 25 turns per second.

All nodes are on this machine. The benchmark shows that the design shares nothing that slows a node
down when others join; it does not measure a large machine. It also measures what the processes
use, on which docs/scaling.md bases its estimates.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.simulated import puzzles_and_tokenizer
from benchmarks.simulated_nodes import (
    GAME,
    SECONDS_PER_TURN,
    SLOTS_PER_NODE,
    TIER,
    NodesWindow,
    measure_nodes,
)

NOMINAL_TURNS_PER_S = SLOTS_PER_NODE / SECONDS_PER_TURN
"""Turns per second of a node's engine whose slots are always busy."""
NUM_PUZZLES = 64
_NUMBERS_OF_NODES = (1, 2, 4, 8)


def bench_scaling(
    *,
    numbers_of_nodes: Sequence[int] = _NUMBERS_OF_NODES,
    warm_up_s: float = 20.0,
    seconds: float = 45.0,
    num_puzzles: int = NUM_PUZZLES,
) -> dict[str, float]:
    """Return turns per second, efficiency and costs by the number of nodes.

    Args:
        numbers_of_nodes: must contain 1, which the others are compared with.
        warm_up_s: seconds before each window.
        seconds: length of each window.
        num_puzzles: number of puzzles, generated first and played in turn.
    """
    windows = []
    with tempfile.TemporaryDirectory() as folder:
        puzzles, model_dir = puzzles_and_tokenizer(
            Path(folder), game=GAME, tier=TIER, count=num_puzzles
        )
        for number in numbers_of_nodes:
            # One process each, so that nothing of one cluster is left in the next.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
                window = executor.submit(
                    measure_nodes,
                    number,
                    puzzles,
                    model_dir,
                    Path(folder) / f"log-{number}",
                    warm_up_s=warm_up_s,
                    seconds=seconds,
                )
                windows.append(window.result())
                print(_said(windows[-1]), flush=True)
    return scaling_figures(windows)


def _said(window: NodesWindow) -> str:
    """Return a progress line on one window."""
    rate = window.num_turns / window.seconds
    return f"{window.num_nodes} nodes: {rate:.1f} turns a second, {window}"


def scaling_figures(windows: Sequence[NodesWindow]) -> dict[str, float]:
    """Return the figures of windows, one of which has one node; ``_8`` ends those of eight nodes.

    ``efficiency_8`` is the rate of eight nodes over eight times that of one. CPU is in
    milliseconds per turn by kind of process; ``driver_cpu_ms_per_group_8`` is the driver's per
    group; ``cores_8`` are the cores that our processes used, ``cores_of_others_8`` those that all
    other processes of the machine used.
    """
    [alone] = [window for window in windows if window.num_nodes == 1]
    rate_of_one = alone.num_turns / alone.seconds
    figures: dict[str, float] = {"nominal_turns_per_second_and_node": NOMINAL_TURNS_PER_S}
    for window in windows:
        rate = window.num_turns / window.seconds
        named = {
            "turns_per_second": rate,
            "efficiency": rate / (window.num_nodes * rate_of_one),
            **_costs(window),
            **_sizes(window),
        }
        figures |= {f"{name}_{window.num_nodes}": value for name, value in named.items()}
    return figures


def _costs(window: NodesWindow) -> dict[str, float]:
    per_turn = {
        f"{name}_cpu_ms_per_turn": 1000 * used / window.num_turns
        for name, used in window.cpu_s.items()
    }
    all_s = sum(used for name, used in window.cpu_s.items() if name != "collector")
    return {
        **per_turn,
        "all_cpu_ms_per_turn": 1000 * all_s / window.num_turns,
        "driver_cpu_ms_per_group": 1000 * window.cpu_s["driver"] / window.num_groups,
        "cores": all_s / window.seconds,
        "cores_of_others": window.rest_of_machine_cpu_s / window.seconds,
        "slots_empty_percent": 100 * window.empty_fraction,
        "turns_per_call": window.num_turns / max(window.num_calls, 1),
        "look_ms": 1000 * window.look_s,
    }


def _sizes(window: NodesWindow) -> dict[str, float]:
    return {
        "window_seconds": window.seconds,
        "turns": window.num_turns,
        "groups": window.num_groups,
        "turns_per_group": window.group_turns / window.num_groups,
        "trajectory_bytes_per_turn": window.group_bytes / window.group_turns,
        "environment_mib": window.environment_mib,
        "environment_connections": window.environment_connections,
        "driver_mib": window.driver_mib,
        "controller_mib": window.controller_mib,
        "raylet_mib": window.raylet_mib,
    }
