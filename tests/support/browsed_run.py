"""A run directory of real games on disk, with every kind of turn, for whoever looks at runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cast_ray.rollout.trajectory import Trajectory
from cast_ray.runs.metrics import write_metrics
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from tests.support.made_up_run import new_run, play, scored, scripted, step_row, write_step

ROOM = "#######\n#_____#\n#_PX_O#\n#_____#\n#######"
"""N = 2: two pushes to the right."""
SOLVE = ["```Right```", "```Right```"]
DEADLOCK = ["```Down```", "```Right```", "```Up```"]
DETOUR = ["```Left```", "```Left```", "nonsense", "```Right```", "```Right```", "```4```"]
"""Away, into the wall, no action, back, push, push."""
IDLE = ["```Up```"] * 6
PLAYED = {0: [SOLVE, IDLE], 1: [DETOUR, DEADLOCK]}


def trajectories(oracle: Oracle, step: int = 1) -> list[Trajectory]:
    return [
        play(
            ROOM,
            scripted(answers),
            turn_budget=6,
            oracle=oracle,
            step=step,
            group=group,
            episode=episode,
        )
        for group, attempts in PLAYED.items()
        for episode, answers in enumerate(attempts)
    ]


def write_run(path: Path, oracle: Oracle, **settings: Any) -> RunDirectory:
    run = new_run(path, **{"steps": 2, "seed": 7} | settings)
    write_step(run, 1, scored(trajectories(oracle), oracle))
    write_metrics(
        run.metrics,
        [
            step_row(1, success=0.5, engine_queue_max=math.nan, validation_success=0.25),
            step_row(2, success=0.75, staleness_tokens=(3, 4)),
        ],
    )
    return run
