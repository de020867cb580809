"""From a step's scored trajectories to its training batch: the advantages as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import advantages
from cast_ray.errors import TrajectoryError
from cast_ray.games import find_game
from cast_ray.games.game import Effect
from cast_ray.rollout.trajectory import (
    BATCH_SCHEMA,
    SCORED_SCHEMA,
    check_schema,
    costs_of,
    estimates_of,
)

Array = advantages.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSummary:
    """What the solver said about one step, for the metrics."""

    num_turns: int
    num_unknown: int
    """Turns without a known cost: outcome advantage only. In reverse distillation: turns of which
    the teacher says nothing, of advantage 0."""
    shifted_mean: float
    """Mean shifted advantage, in moves."""
    share_progress: float
    """Share of turns that lowered the cost-to-go."""
    share_harmful: float
    """Share of turns that raised it or made it infinite."""


def add_advantages(
    scored: pa.Table,
    *,
    alpha: float,
    transform: str = "asinh",
    normalisation: str = "rms",
    rescue: str = "cost",
    std: str = "population",
    delta: float = 1e-6,
    epsilon: float = 1e-8,
    step_weight: float = 0.0,
    step_discount: float = 0.95,
    overlong_buffer: int = 0,
    response_tokens: int = 0,
    distillation: str = "none",
    permute: np.random.Generator | None = None,
) -> tuple[pa.Table, CreditSummary]:
    """Return a whole step's table widened by its advantages, and a summary of the solver's signal.

    Args:
        scored: ``SCORED_SCHEMA``, every trajectory of the step: the RMS needs them all.
        alpha, transform, normalisation, rescue, std, delta, epsilon: as in ``advantages``.
        step_weight: of GiGPO's step advantage beside the outcome; 0 = it is not computed.
        step_discount: of the returns that it compares, a turn.
        overlong_buffer: tokens over which the penalty of ``advantages.overlong_penalty`` grows. It
            counts in the outcome advantage alone: the column ``reward`` stays the game's, and so do
            the returns of step advantages.
        response_tokens: the bound that it belongs to.
        distillation: ``reverse`` makes the teacher's log-probability the turn's advantage, alone;
            the other columns stay what they are. ``none`` and ``forward`` change nothing here.
        permute: a control, not a method: shuffles the solver advantages among all turns of the
            batch, which keeps their distribution and takes away their meaning.

    Raises:
        TrajectoryError: a table of another stage, or an advantage that is not finite.
    """
    check_schema(scored, SCORED_SCHEMA)
    num_turns = np.array([len(row) for row in scored["effects"].to_pylist()], dtype=np.int64)
    shifted = _shifted_advantages(scored, rescue=rescue)
    solver = advantages.TRANSFORMS[transform](shifted)
    if normalisation == "rms":
        solver = advantages.rms_normalised(solver, epsilon=epsilon)
    if permute is not None:
        solver = permute.permutation(solver)
    penalty = advantages.overlong_penalty(
        num_response_tokens(scored), bound=response_tokens, buffer=overlong_buffer
    )
    outcome = _outcome_advantages(scored, penalty, std=std, delta=delta)
    step = np.zeros(len(solver))
    if step_weight:
        step = _step_advantages(scored, num_turns, discount=step_discount, std=std)
    without_solver = np.repeat(outcome, num_turns) + step_weight * step
    per_turn = advantages.final_advantage(without_solver, solver, alpha=alpha)
    is_unknown = np.isnan(shifted)
    if distillation == "reverse":
        flat = scored["teacher_logprobs"].combine_chunks().flatten()
        teacher_logprobs = flat.to_numpy(zero_copy_only=False)  # a null becomes NaN
        per_turn = advantages.teacher_advantage(teacher_logprobs)
        is_unknown = np.isnan(teacher_logprobs)
    _refuse_non_finite(per_turn, num_turns, scored)
    columns = [
        pa.array(outcome),
        _as_lists(shifted, num_turns),
        _as_lists(solver, num_turns),
        _as_lists(step, num_turns),
        _as_lists(per_turn, num_turns),
        _token_advantages(scored, per_turn, num_turns),
    ]
    batch = pa.Table.from_arrays([*scored.columns, *columns], schema=BATCH_SCHEMA)
    return batch, _summarise(shifted, num_unknown=int(is_unknown.sum()))


def shifted_advantages(
    costs: Array,
    effects: Sequence[str],
    *,
    game: str,
    puzzle: str,
    rescue: str,
    are_estimates: bool = False,
) -> Array:
    """Return ``[T]`` shifted advantages of one trajectory (paper, eq:shifted_solver_advantage).

    Args:
        costs: ``[T + 1]`` as in ``advantages.shifted_solver_advantage``, or a value network's.
        effects: ``[T]`` values of ``Effect``.
        game: name of the game.
        puzzle: text of a state of the puzzle.
        rescue: ``cost`` or ``zero``.
        are_estimates: the costs are a value network's: ``advantages.estimated_advantage``.
    """
    has_effect = np.array([effect == Effect.CHANGED for effect in effects], dtype=bool)
    if are_estimates:
        return advantages.estimated_advantage(costs, has_effect)
    return advantages.shifted_solver_advantage(
        costs,
        has_effect,
        rescue=rescue,
        win_from_infinite=win_from_infinite(game, puzzle),
    )


def win_from_infinite(game: str, puzzle: str) -> float:
    """Return what a win from an infinite cost earns (``Game.rescue_value``); 0 in a benchmark."""
    rules = find_game(game)
    return 0.0 if rules is None else rules.rescue_value(puzzle)


def _shifted_advantages(scored: pa.Table, *, rescue: str) -> Array:
    """Return ``[B]`` shifted advantages of every turn, in row order."""
    columns = ["game", "puzzle", "cost_to_go", "cost_status", "cost_estimates", "effects"]
    parts: list[Array] = [np.zeros(0)]
    for row in scored.select(columns).to_pylist():
        estimates = estimates_of(row)
        parts.append(
            shifted_advantages(
                costs_of(row) if estimates is None else estimates,
                row["effects"],
                game=row["game"],
                puzzle=row["puzzle"],
                rescue=rescue,
                are_estimates=estimates is not None,
            )
        )
    return np.concatenate(parts)


def num_response_tokens(table: pa.Table) -> np.ndarray:
    """Return ``[R]`` tokens of each trajectory after its opening prompt, observations included."""
    first_turns = [starts[0] for starts in table["turn_starts"].to_pylist()]
    lengths = table["token_ids"].combine_chunks().value_lengths().to_numpy()
    return lengths - np.array(first_turns, dtype=np.int64)


def _outcome_advantages(scored: pa.Table, penalty: Array, *, std: str, delta: float) -> Array:
    groups = scored["group"].to_numpy()
    rewards = scored["reward"].to_numpy().astype(np.float64) + penalty
    outcome = np.zeros(len(rewards))
    for group in np.unique(groups):
        rows = groups == group
        outcome[rows] = advantages.outcome_advantage(rewards[rows], std=std, delta=delta)
    return outcome


def _step_advantages(
    scored: pa.Table, num_turns: np.ndarray, *, discount: float, std: str
) -> Array:
    """Return ``[B]`` step advantages of every turn, in row order."""
    rewards = scored["reward"].to_numpy().astype(np.float64)
    per_row = [
        advantages.discounted_returns(reward, count, discount=discount)
        for reward, count in zip(rewards, num_turns, strict=True)
    ]
    returns = np.concatenate([*per_row, np.zeros(0)])
    boards = np.array([b for states in scored["states"].to_pylist() for b in states[:-1]], object)
    groups = np.repeat(scored["group"].to_numpy(), num_turns)
    step = np.zeros(len(returns))
    for group in np.unique(groups):
        turns = groups == group
        step[turns] = advantages.step_advantage(returns[turns], boards[turns].tolist(), std=std)
    return step


def _token_advantages(scored: pa.Table, per_turn: Array, num_turns: np.ndarray) -> pa.Array:
    """Broadcast each turn's advantage to the tokens of its stored span."""
    spans = scored.select(["turn_starts", "turn_ends", "token_ids"])
    per_row = np.split(per_turn, np.cumsum(num_turns)[:-1]) if len(num_turns) else []
    lists = []
    for index, values in enumerate(per_row):
        tokens = np.zeros(len(spans["token_ids"][index]), dtype=np.float32)
        starts = spans["turn_starts"][index].as_py()
        ends = spans["turn_ends"][index].as_py()
        for start, end, value in zip(starts, ends, values, strict=True):
            tokens[start:end] = value
        lists.append(tokens)
    offsets = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lists])]).astype(np.int32)
    flat = np.concatenate([*lists, np.zeros(0, dtype=np.float32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def _as_lists(flat: Array, num_turns: np.ndarray) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(num_turns)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, from_pandas=True))


def _refuse_non_finite(per_turn: Array, num_turns: np.ndarray, scored: pa.Table) -> None:
    bad = np.flatnonzero(~np.isfinite(per_turn))
    if not bad.size:
        return
    row = int(np.searchsorted(np.cumsum(num_turns), bad[0], side="right"))
    name = ", ".join(
        f"{column} {scored[column][row].as_py()}" for column in ("step", "group", "episode")
    )
    raise TrajectoryError(f"the advantage of a turn is {per_turn[bad[0]]} in trajectory {name}")


def _summarise(shifted: Array, *, num_unknown: int) -> CreditSummary:
    known = shifted[~np.isnan(shifted)]
    return CreditSummary(
        num_turns=len(shifted),
        num_unknown=num_unknown,
        shifted_mean=float(known.mean()) if known.size else 0.0,
        share_progress=float((known > 0).mean()) if known.size else 0.0,
        share_harmful=float((known < 0).mean()) if known.size else 0.0,
    )
