"""Attempts as rows of the result: what was played, and what the solvers say about it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from cast_ray.envs.text_env import SOLVED
from cast_ray.evaluation.attempts import Attempt
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat_episode import ChatEpisode
from cast_ray.rollout.trajectory import SCORED_SCHEMA, check_schema, costs_of
from solver_actors.scoring import Scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptName:
    """Whose attempt it is, and at what; fields as in ``Attempt``."""

    model: str
    run: int
    puzzle: Puzzle
    group: int
    attempt: int
    seed: int
    turn_budget: int


def judged(
    played: ChatEpisode, scorer: Scorer, name: AttemptName, *, price_usd: float | None = None
) -> Attempt:
    """Return an attempt that was played by texts, with the costs of its states."""
    costs = scorer.costs(name.puzzle.game, played.states)
    return _attempt(played, scorer, name, costs=costs, price_usd=price_usd)


def attempts_of_trajectories(
    table: pa.Table, scorer: Scorer, *, model: str, run: int
) -> list[Attempt]:
    """Return what an engine's policy played, which has its costs already.

    Args:
        table: ``SCORED_SCHEMA``.
        scorer: tells the risks.
        model: label of the model.
        run: number of its run, from 0.
    """
    check_schema(table, SCORED_SCHEMA)
    found: list[Attempt] = []
    for row in table.to_pylist():
        spans = list(zip(row["turn_starts"], row["turn_ends"], strict=True))
        played = ChatEpisode(
            answers=tuple(row["answers"]),
            actions=tuple(row["actions"]),
            effects=tuple(row["effects"]),
            states=tuple(row["states"]),
            reward=row["reward"],
            end_reason=row["end_reason"],
            answer_tokens=tuple(end - start for start, end in spans),
            prompt_tokens=tuple(start for start, _ in spans),
            num_retries=0,
            num_from_journal=0,
            seconds=row["seconds_generation"] + row["seconds_environment"],
        )
        puzzle = Puzzle(
            game=row["game"],
            tier=row["tier"],
            puzzle_id=row["puzzle_id"],
            board=row["puzzle"],
            cost_to_go=row["cost_to_go"][0],
            cost_status=row["cost_status"][0],
            seed=0,
        )
        name = AttemptName(
            model=model,
            run=run,
            puzzle=puzzle,
            group=row["group"],
            attempt=row["episode"],
            seed=row["seed"],
            turn_budget=row["turn_budget"],
        )
        found.append(_attempt(played, scorer, name, costs=tuple(costs_of(row).tolist())))
    return found


def _attempt(
    played: ChatEpisode,
    scorer: Scorer,
    name: AttemptName,
    *,
    costs: tuple[float, ...],
    price_usd: float | None = None,
) -> Attempt:
    puzzle = name.puzzle
    risks = scorer.risks(puzzle.game, played.states, played.actions, played.effects)
    return Attempt(
        model=name.model,
        run=name.run,
        game=puzzle.game,
        tier=puzzle.tier,
        puzzle_id=puzzle.puzzle_id,
        puzzle=puzzle.board,
        group=name.group,
        attempt=name.attempt,
        seed=name.seed,
        turn_budget=name.turn_budget,
        answers=played.answers,
        actions=played.actions,
        effects=played.effects,
        states=played.states,
        reward=played.reward,
        is_success=played.end_reason == SOLVED,
        end_reason=played.end_reason,
        costs=costs,
        excess_risks=risks.excess,
        safe_reveals=risks.safe,
        answer_tokens=played.answer_tokens,
        prompt_tokens=played.total_prompt_tokens,
        price_usd=price_usd,
        num_retries=played.num_retries,
        seconds=played.seconds,
    )
