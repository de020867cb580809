"""A step's stored advantages against those that its costs and rewards give.

Outcome and solver advantages are compared to 1e-12: another CPU may round asinh or a sum in
another place. All that follows from stored values by single operations is compared exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.algorithms import advantages
from cast_ray.algorithms.credit import shifted_advantages
from cast_ray.config.train import AdvantageConfig, TrainConfig
from cast_ray.rollout.trajectory import costs_of, estimates_of
from cast_ray.training.replay.row import Mismatch, ReplayedEpisode, ScoredTrajectory

Array = advantages.Array

_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditRow:
    """One trajectory's stored advantages, and what they may follow from: stored or replayed."""

    key: int
    """Of the row, in the caller's numbering."""
    group: int
    rewards: tuple[float, float]
    """Stored, replayed."""
    shifted_from: tuple[Array, Array]
    """``[T]`` shifted advantages from the stored costs and from the replayed ones."""
    boards: tuple[Sequence[str], Sequence[str]]
    """``[T]`` state before each turn, stored and replayed."""
    num_response_tokens: int
    """Stored."""
    teacher_logprobs: Array
    """``[T]`` stored; NaN = unknown."""
    outcome: float
    shifted: Array
    solver: Array
    step: Array
    turn: Array
    tokens: np.ndarray
    turn_starts: Sequence[int]
    turn_ends: Sequence[int]


def credit_row(
    key: int,
    row: ScoredTrajectory,
    columns: dict[str, Any],  # Any: the row as Arrow gives it
    replayed: ReplayedEpisode,
    costs: Array,
    *,
    rescue: str,
) -> CreditRow:
    """Return what ``credit_mismatches`` needs of a well-formed row."""
    estimates = estimates_of(columns)
    shifted = functools.partial(
        shifted_advantages,
        game=row.game,
        puzzle=row.puzzle,
        rescue=rescue,
        are_estimates=estimates is not None,
    )
    stored = shifted(costs_of(columns) if estimates is None else estimates, row.effects)
    is_comparable = len(replayed.effects) == len(row.effects)
    return CreditRow(
        key=key,
        group=row.group,
        rewards=(row.reward, replayed.reward),
        shifted_from=(stored, shifted(costs, replayed.effects) if is_comparable else stored),
        boards=(row.states[:-1], (replayed if is_comparable else row).states[:-1]),
        num_response_tokens=len(row.token_ids) - row.turn_starts[0],
        teacher_logprobs=np.array(row.teacher_logprobs, dtype=np.float64),
        outcome=columns["outcome_advantage"],
        shifted=np.array(columns["shifted_advantages"], dtype=np.float64),
        solver=np.array(columns["solver_advantages"], dtype=np.float64),
        step=np.array(columns["step_advantages"], dtype=np.float64),
        turn=np.array(columns["turn_advantages"], dtype=np.float64),
        tokens=np.array(columns["token_advantages"], dtype=np.float32),
        turn_starts=row.turn_starts,
        turn_ends=row.turn_ends,
    )


def credit_mismatches(
    rows: Sequence[CreditRow],
    config: TrainConfig,
    *,
    group_size: int,
    is_complete: bool,
) -> Iterator[tuple[int | None, Mismatch]]:
    """Yield what differs in a step's advantages, each with the key of its row, None for the step.

    One wrong cost or reward moves the RMS of the whole step, or its group's mean, and the
    advantages may have been computed before or after it went wrong. So they are computed from
    the stored and from the replayed values, and the closer of the two is reported.

    Args:
        rows: the well-formed trajectories of one step, in stored order.
        config: of the run.
        group_size: a smaller group has lost rows: its outcome and step advantages are not compared.
        is_complete: whether no row is missing; otherwise the RMS cannot be known and solver
            advantages are not compared.
    """
    for row in rows:
        yield from _with_key(row.key, _row_mismatches(row, config))
    for group in sorted({row.group for row in rows}):
        members = [row for row in rows if row.group == group]
        if len(members) == group_size:
            yield from _outcome_mismatches(members, config)
            yield from _step_mismatches(members, config.advantage)
    if not is_complete:
        found = Mismatch.of(None, "solver_advantages", "rows missing or broken", "not comparable")
        yield None, found
    elif rows:
        yield from _solver_mismatches(rows, config.advantage)


def _row_mismatches(row: CreditRow, config: TrainConfig) -> Iterator[Mismatch]:
    """Yield what one row's own values contradict: shifted, turn and token advantages."""
    shifted = _closer(row.shifted, row.shifted_from, _is_same)
    yield from _per_turn("shifted_advantages", row.shifted, shifted, _is_same)
    without_solver = row.outcome + config.advantage.step_weight * row.step
    turn = advantages.final_advantage(without_solver, row.solver, alpha=config.advantage.alpha)
    if config.distillation.mode == "reverse":
        turn = advantages.teacher_advantage(row.teacher_logprobs)
    yield from _per_turn("turn_advantages", row.turn, turn, _is_same)
    tokens = np.zeros(len(row.tokens), dtype=np.float32)
    for start, end, value in zip(row.turn_starts, row.turn_ends, row.turn, strict=True):
        tokens[start:end] = value
    wrong = np.flatnonzero(~_is_same(row.tokens, tokens))
    turns = np.searchsorted(row.turn_starts, wrong, side="right") - 1
    for number, first in zip(*np.unique(turns, return_index=True), strict=True):
        at = wrong[first]
        turn_or_prompt = int(number) if number >= 0 else None
        name = f"token_advantages[{at}]"
        yield Mismatch.of(turn_or_prompt, name, row.tokens[at], tokens[at])


def _outcome_mismatches(
    members: Sequence[CreditRow], config: TrainConfig
) -> Iterator[tuple[int, Mismatch]]:
    stored = np.array([row.outcome for row in members])
    penalty = advantages.overlong_penalty(
        np.array([row.num_response_tokens for row in members]),
        bound=config.rollout.response_tokens,
        buffer=config.advantage.overlong_buffer,
    )
    candidates = [
        advantages.outcome_advantage(
            np.array([row.rewards[source] for row in members]) + penalty,
            std=config.advantage.std,
            delta=config.advantage.delta,
        )
        for source in (0, 1)
    ]
    expected = _closer(stored, candidates, _is_close)
    for index in np.flatnonzero(~_is_close(stored, expected)):
        what = "outcome_advantage"
        yield members[index].key, Mismatch.of(None, what, stored[index], expected[index])


def _step_mismatches(
    members: Sequence[CreditRow], config: AdvantageConfig
) -> Iterator[tuple[int, Mismatch]]:
    stored = np.concatenate([row.step for row in members])
    expected = np.zeros(len(stored))
    if config.step_weight:
        candidates = [_step(members, config, source=source) for source in (0, 1)]
        expected = _closer(stored, candidates, _is_close)
    yield from _split(members, "step_advantages", expected)


def _step(members: Sequence[CreditRow], config: AdvantageConfig, *, source: int) -> Array:
    returns = [
        advantages.discounted_returns(
            row.rewards[source], len(row.step), discount=config.step_discount
        )
        for row in members
    ]
    boards = [board for row in members for board in row.boards[source]]
    return advantages.step_advantage(np.concatenate(returns), boards, std=config.std)


def _solver_mismatches(
    rows: Sequence[CreditRow], config: AdvantageConfig
) -> Iterator[tuple[int | None, Mismatch]]:
    stored = np.concatenate([row.solver for row in rows])
    candidates = [
        _solver(np.concatenate([row.shifted_from[source] for row in rows]), config)
        for source in (0, 1)
    ]
    if config.permute_credit:
        # The control shuffles the values among all turns: only all together are they known.
        stored, candidates = np.sort(stored), [np.sort(values) for values in candidates]
        if not _is_close(stored, _closer(stored, candidates, _is_close)).all():
            found = Mismatch.of(None, "solver_advantages", "other values", "a permutation")
            yield None, found
        return
    expected = _closer(stored, candidates, _is_close)
    yield from _split(rows, "solver_advantages", expected)


def _split(rows: Sequence[CreditRow], what: str, expected: Array) -> Iterator[tuple[int, Mismatch]]:
    """Yield what differs from the expected values of all turns of some rows."""
    ends = np.cumsum([len(row.solver) for row in rows])
    for row, values in zip(rows, np.split(expected, ends[:-1]), strict=True):
        stored = row.solver if what == "solver_advantages" else row.step
        yield from _with_key(row.key, _per_turn(what, stored, values, _is_close))


def _solver(shifted: Array, config: AdvantageConfig) -> Array:
    transformed = advantages.TRANSFORMS[config.transform](shifted)
    if config.normalisation == "none":
        return transformed
    return advantages.rms_normalised(transformed, epsilon=config.epsilon)


def _is_same(stored: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return (stored == expected) | (np.isnan(stored) & np.isnan(expected))


def _is_close(stored: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.isclose(stored, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _closer(
    stored: np.ndarray,
    candidates: Sequence[np.ndarray],
    agree: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the candidate that agrees with the stored values in more places."""
    return max(candidates, key=lambda candidate: int(agree(stored, candidate).sum()))


def _per_turn(
    what: str,
    stored: Array,
    expected: Array,
    agree: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Iterator[Mismatch]:
    for turn in np.flatnonzero(~agree(stored, expected)):
        yield Mismatch.of(int(turn), what, stored[turn], expected[turn])


def _with_key(key: int, found: Iterator[Mismatch]) -> Iterator[tuple[int, Mismatch]]:
    return ((key, mismatch) for mismatch in found)
