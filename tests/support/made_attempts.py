"""Attempts of an evaluation, made up: whatever a test does not name is the plainest there is."""

from __future__ import annotations

import math
from dataclasses import replace

from cast_ray.evaluation.attempts import Attempt
from cast_ray.games.game import Effect

_BOARD = "######\n#PXO_#\n######"


def made_attempt(
    *,
    model: str = "model",
    game: str = "sokoban",
    tier: str = "id",
    puzzle_id: str = "p0",
    is_success: bool = False,
    effects: tuple[str, ...] = (Effect.CHANGED, Effect.CHANGED),
    costs: tuple[float, ...] | None = None,
    **columns: object,
) -> Attempt:
    """Return an attempt with as many turns as ``effects``; ``columns`` are any others.

    Without ``costs`` they are unknown.
    """
    turns = len(effects)
    plain = Attempt(
        model=model,
        run=0,
        game=game,
        tier=tier,
        puzzle_id=puzzle_id,
        puzzle=_BOARD,
        group=0,
        attempt=0,
        seed=0,
        turn_budget=30,
        answers=tuple(f"Turn {turn}: on.\n```Right```" for turn in range(turns)),
        actions=("Right",) * turns,
        effects=tuple(str(effect) for effect in effects),
        states=(_BOARD,) * (turns + 1),
        reward=float(is_success),
        is_success=is_success,
        end_reason="solved" if is_success else "turn_budget",
        costs=(math.nan,) * (turns + 1) if costs is None else costs,
        excess_risks=(None,) * turns,
        safe_reveals=(None,) * turns,
        answer_tokens=(10,) * turns,
        prompt_tokens=100,
        price_usd=None,
        num_retries=0,
        seconds=1.0,
    )
    return replace(plain, **columns)  # pyright: ignore[reportArgumentType]


def attempts_at(
    outcomes: dict[str, str],
    *,
    model: str = "model",
    run: int = 0,
    game: str = "sokoban",
    tier: str = "id",
) -> list[Attempt]:
    """Return attempts by puzzle: ``{"p0": "1100"}`` is one that was solved in two of four."""
    return [
        made_attempt(
            model=model, run=run, game=game, tier=tier, puzzle_id=puzzle_id,
            group=group, attempt=number, is_success=mark == "1",
        )
        for group, (puzzle_id, marks) in enumerate(outcomes.items())
        for number, mark in enumerate(marks)
    ]  # fmt: skip
