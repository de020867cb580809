"""Turns per second of an evaluation and of vLLM's AsyncLLM alone on the same tokens.

A round of the evaluation plays every puzzle four times, all concurrently, with the sampling of an
evaluation and answers of a fixed length, and ends when the attempts are rows with costs. Then an
AsyncLLM with the same engine arguments replays the same conversations, as many at a time.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.rollout import Round, Sides, bare_round, rollout_sides
from cast_ray.config.train import TrainConfig
from cast_ray.evaluation.build_attempts import attempts_of_trajectories
from cast_ray.rollout.specs import episode_groups, evaluation_sampling
from solver_actors.oracle import Oracle
from solver_actors.scoring import Scorer

_NUM_TOKENS = 32
_ATTEMPTS = 4
_NUM_ROUNDS = 5
_NUM_TIMES = 2
"""Passes of a round over the puzzles, each with other seeds."""
_SEED = 0
_ORACLE_BYTES = 2**28
_ROUND_TIMEOUT_S = 300.0


def bench_evaluation(*, num_rounds: int = _NUM_ROUNDS) -> dict[str, float]:
    """Return turns per second of both sides, medians over rounds, and the median ratio.

    A ratio is the evaluation's speed over that of the bare engine right after it.
    """
    with tempfile.TemporaryDirectory() as folder, rollout_sides(Path(folder)) as sides:
        # The first round warms up.
        rounds = [_round(sides, number) for number in range(num_rounds + 1)][1:]
    ratios = [path.turns_per_s / bare.turns_per_s for path, bare in rounds]
    return {
        "evaluation_turns_per_s": float(np.median([path.turns_per_s for path, _ in rounds])),
        "bare_turns_per_s": float(np.median([bare.turns_per_s for _, bare in rounds])),
        "ratio": float(np.median(ratios)),
        "worst_ratio": min(ratios),
        "turns_of_a_round": rounds[0][0].num_turns,
        "tokens_of_an_answer": _NUM_TOKENS,
    }


def _round(sides: Sides, number: int) -> tuple[Round, Round]:
    sampling = replace(
        evaluation_sampling(TrainConfig()), max_answer_tokens=_NUM_TOKENS, truncated="execute"
    )
    groups = episode_groups(
        sides.puzzles * _NUM_TIMES,
        attempts=_ATTEMPTS,
        step=number,
        seed=_SEED,
        purpose="evaluation",
    )
    folder = sides.folder / f"round-{number}"
    folder.mkdir()
    started = time.perf_counter()
    ticket = sides.collector.issue(
        groups, sampling, log_to=lambda group: folder / f"{group[0].group}.parquet"
    )
    table = sides.collector.finished(
        ticket, timeout_s=_ROUND_TIMEOUT_S, on_group=lambda done, total: None
    )
    scorer = Scorer(Oracle(max_bytes=_ORACLE_BYTES))
    attempts = attempts_of_trajectories(table, scorer, model="bench", run=0)
    seconds = time.perf_counter() - started
    num_turns = sum(len(attempt.answers) for attempt in attempts)
    path = Round(seconds=seconds, num_turns=num_turns, cpu={})
    num_concurrent = len(groups) * _ATTEMPTS
    return path, bare_round(sides, table, sampling, num_concurrent=num_concurrent)
