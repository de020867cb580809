"""Turns a second of 1, 2, 4 and 8 simulated nodes, each with an engine of 25 turns a second.

All nodes are on this machine: what is shown is that nothing in the design is shared that would
slow a node down when others join, not that this machine is large. What everything costs stands
beside it, and is what docs/scaling.md reckons with.
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
"""Of one node's engine, were no slot ever empty."""
NUM_PUZZLES = 64
_NUMBERS_OF_NODES = (1, 2, 4, 8)


def bench_scaling(
    *,
    numbers_of_nodes: Sequence[int] = _NUMBERS_OF_NODES,
    warm_up_s: float = 20.0,
    seconds: float = 45.0,
    num_puzzles: int = NUM_PUZZLES,
) -> dict[str, float]:
    """Return turns a second, their efficiency, and what they cost, by the number of nodes.

    Args:
        numbers_of_nodes: 1 is among them: the others are held against it.
        warm_up_s: before each window.
        seconds: of each window.
        num_puzzles: made first, played in turn.
    """
    windows = []
    with tempfile.TemporaryDirectory() as folder:
        puzzles, model_dir = puzzles_and_tokenizer(
            Path(folder), game=GAME, tier=TIER, count=num_puzzles
        )
        for number in numbers_of_nodes:
            # A process each: nothing of one cluster is left, or counted, in the next.
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
    """Return a line about one window; the whole takes minutes."""
    rate = window.num_turns / window.seconds
    return f"{window.num_nodes} nodes: {rate:.1f} turns a second, {window}"


def scaling_figures(windows: Sequence[NodesWindow]) -> dict[str, float]:
    """Return the figures of some windows, one of them of one node; ``_8`` ends those of eight.

    ``efficiency_8`` is the rate of eight nodes over eight times that of one. CPU is in
    milliseconds a turn by kind of process; ``driver_cpu_ms_per_group_8`` is the whole driver's,
    by group; ``cores_8`` are the cores that all processes of ours used, and
    ``cores_of_others_8`` those of everything else on the machine.
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
