"""Run directories without a model: real episodes of a scripted policy, scored by real solvers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_origin

import pyarrow as pa

from cast_ray.algorithms.credit import add_advantages
from cast_ray.config.train import AdvantageConfig, TrainConfig
from cast_ray.envs.text_env import TextEnv
from cast_ray.games import get_game
from cast_ray.games.puzzles import puzzle_id_of
from cast_ray.parquet import write_table
from cast_ray.rollout.trajectory import SCORED_SCHEMA, Trajectory, to_rollout_batch
from cast_ray.runs.metrics import METRIC_TYPES, StepMetrics
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry

ALPHA = 0.5

Policy = Callable[[Any], str]
"""From a state to an answer."""


def scripted(answers: Sequence[str]) -> Policy:
    """Return a policy that gives these answers in turn, whatever it sees."""
    left = iter(answers)
    return lambda _: next(left)


def play(
    board: str,
    policy: Policy,
    *,
    turn_budget: int,
    oracle: Oracle,
    game_name: str = "sokoban",
    step: int = 0,
    group: int = 0,
    episode: int = 0,
) -> Trajectory:
    """Play one episode and return its record; every answer counts as two tokens."""
    game = get_game(game_name)
    state = game.decode(board)
    solver = oracle.solver(game_name, board)
    ends_dead = get_solver_entry(game_name).has_deadlocks
    is_dead = solver.is_dead if ends_dead else None
    env = TextEnv(game, state, turn_budget=turn_budget, is_dead=is_dead)
    env.start()
    states, answers, turns = [board], [], []
    while not turns or not turns[-1].end_reason:
        answers.append(policy(env.position))
        turns.append(env.step(answers[-1]))
        states.append(turns[-1].state)
    count = len(turns)
    return Trajectory(
        step=step,
        group=group,
        episode=episode,
        attempt=0,
        game=game_name,
        tier="mini",
        puzzle_id=puzzle_id_of(game, game.decode(board)),
        puzzle=board,
        turn_budget=turn_budget,
        seed=0,
        token_ids=(1, 2) * count,
        loss_mask=(1, 1) * count,
        rollout_logprobs=(-0.5, -0.1) * count,
        weight_versions=(step, step) * count,
        turn_starts=tuple(range(0, 2 * count, 2)),
        turn_ends=tuple(range(2, 2 * count + 2, 2)),
        turn_seeds=(0,) * count,
        answers=tuple(answers),
        actions=tuple(turn.action for turn in turns),
        effects=tuple(turn.effect.value for turn in turns),
        states=tuple(states),
        reward=1.0 if turns[-1].end_reason == "solved" else 0.0,
        end_reason=turns[-1].end_reason,
        seconds_generation=0.0,
        seconds_environment=0.0,
    )


def scored(trajectories: Sequence[Trajectory], oracle: Oracle) -> pa.Table:
    """Return trajectories as a table of ``SCORED_SCHEMA``."""
    batch = oracle.score(to_rollout_batch(trajectories))
    return pa.Table.from_batches([batch], schema=SCORED_SCHEMA)


def step_row(step: int, **figures: Any) -> StepMetrics:
    """Return a row of metrics with the given figures, zero elsewhere."""
    names = {name: () if get_origin(kind) is tuple else 0 for name, kind in METRIC_TYPES.items()}
    return StepMetrics(**names | {"step": step, "validation_success": None} | figures)


def write_evaluation(run: RunDirectory, name: str, table: pa.Table) -> None:
    """Store played held-out games as ``evaluations/<name>.parquet``."""
    write_table(run.evaluations / f"{name}.parquet", table)


def write_step(run: RunDirectory, step: int, table: pa.Table) -> None:
    """Store the trajectories of one training step with their advantages."""
    batch, _ = add_advantages(table, AdvantageConfig(alpha=ALPHA))
    run.write_trajectories(step, batch)


def new_run(path: Path, **settings: Any) -> RunDirectory:
    """Return a fresh run directory, whose configuration fits what ``write_step`` stores."""
    credit = {"advantage": AdvantageConfig(alpha=ALPHA)}
    return RunDirectory.create(path, TrainConfig(**credit | settings))
