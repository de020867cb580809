"""Rows of ``ATTEMPT_SCHEMA`` from what was played, with the solver's costs and risks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cast_ray.envs.text_env import SOLVED
from cast_ray.evaluation.attempts import Attempt
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.trajectory import SCORED_SCHEMA, check_schema, costs_of
from solver_actors.scoring import Scorer

_VALUES = ("game", "tier", "puzzle_id", "puzzle", "group", "seed", "turn_budget", "reward")
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
    risks = scorer.risks(puzzle.game, played.states, played.actions, played.effects)
    return Attempt(
        model=model,
        run=0,
        game=puzzle.game,
        tier=puzzle.tier,
        puzzle_id=puzzle.puzzle_id,
        puzzle=puzzle.board,
        group=spec.group,
        attempt=spec.episode,
        seed=spec.seed,
        turn_budget=spec.turn_budget,
        answers=played.answers,
        actions=played.actions,
        effects=played.effects,
        states=played.states,
        reward=played.reward,
        is_success=played.end_reason == SOLVED,
        end_reason=played.end_reason,
        costs=scorer.costs(puzzle.game, played.states),
        excess_risks=risks.excess,
        safe_reveals=risks.safe,
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
    found: list[Attempt] = []
    for row in table.to_pylist():
        risks = scorer.risks(row["game"], row["states"], row["actions"], row["effects"])
        spans = zip(row["turn_starts"], row["turn_ends"], strict=True)
        shared: dict[str, Any] = {name: row[name] for name in _VALUES}  # Any: Arrow's rows
        shared |= {name: tuple(row[name]) for name in _LISTS}
        found.append(
            Attempt(
                model=model,
                run=run,
                attempt=row["episode"],
                **shared,
                is_success=row["end_reason"] == SOLVED,
                end_reason=row["end_reason"],
                costs=tuple(costs_of(row).tolist()),
                excess_risks=risks.excess,
                safe_reveals=risks.safe,
                answer_tokens=tuple(end - start for start, end in spans),
                prompt_tokens=sum(row["turn_starts"]),
                price_usd=None,
                num_retries=0,
                seconds=row["seconds_generation"] + row["seconds_environment"],
            )
        )
    return found
