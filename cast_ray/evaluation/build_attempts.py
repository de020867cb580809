"""Rows of ``ATTEMPT_SCHEMA`` from what was played, with the solver's costs and risks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.envs.text_env import SOLVED
from cast_ray.evaluation.attempts import Attempt
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.trajectory import SCORED_SCHEMA, check_schema, costs_of
from solver_actors.scoring import Scorer

_VALUES = (
    "game", "tier", "puzzle_id", "puzzle", "group", "seed", "turn_budget", "reward", "end_reason",
)  # fmt: skip
_LISTS = ("answers", "actions", "effects", "states")
"""Columns that trajectories and attempts share."""


def scored_attempt(
    played: ChatEpisode,
    spec: EpisodeSpec,
    scorer: Scorer,
    *,
    model: str,
    price_usd: float | None = None,
) -> Attempt:
    """Return an episode that was played in text as an attempt, with the costs of its states."""
    puzzle = spec.puzzle
    record = asdict(played) | {"game": puzzle.game, "tier": puzzle.tier, "puzzle": puzzle.board}
    record |= {"puzzle_id": puzzle.puzzle_id, "group": spec.group}
    return _attempt(
        record | {"seed": spec.seed, "turn_budget": spec.turn_budget},
        scorer,
        model=model,
        run=0,
        attempt=spec.episode,
        costs=scorer.costs(puzzle.game, played.states),
        answer_tokens=played.answer_tokens,
        prompt_tokens=played.total_prompt_tokens,
        price_usd=price_usd,
        num_retries=played.num_retries,
        seconds=played.seconds,
        no_answer_reason=played.no_answer_reason,
    )


def attempts_of_trajectories(
    table: pa.Table, scorer: Scorer, *, model: str, run: int
) -> list[Attempt]:
    """Return scored trajectories of an engine's policy as attempts.

    Args:
        table: ``SCORED_SCHEMA``.
        scorer: computes the risks.
        model: label of the model.
        run: number of its run, from 0.
    """
    check_schema(table, SCORED_SCHEMA)
    return [
        _attempt(
            row,
            scorer,
            model=model,
            run=run,
            attempt=row["episode"],
            costs=tuple(costs_of(row).tolist()),
            answer_tokens=tuple(np.subtract(row["turn_ends"], row["turn_starts"]).tolist()),
            prompt_tokens=sum(row["turn_starts"]),
            price_usd=None,
            num_retries=0,
            seconds=row["seconds_generation"] + row["seconds_environment"],
        )
        for row in table.to_pylist()
    ]


def _attempt(record: Mapping[str, Any], scorer: Scorer, **more: Any) -> Attempt:
    """Return an attempt from columns that it shares with ``record``, and others."""
    played = (record[name] for name in ("game", "states", "actions", "effects"))
    risks = scorer.risks(*played)
    shared: dict[str, Any] = {name: record[name] for name in _VALUES}
    shared |= {name: tuple(record[name]) for name in _LISTS}
    return Attempt(
        **shared,
        is_success=record["end_reason"] == SOLVED,
        excess_risks=risks.excess,
        safe_reveals=risks.safe,
        **more,
    )
