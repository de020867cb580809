"""From a step's scored trajectories to its training batch: advantages as Arrow columns.

``advantages`` has the equations; here they are applied to whole tables. Training and replay call
the same ``add_credit``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cast_ray.algorithms import advantages
from cast_ray.algorithms.shifted import shifted_of_table
from cast_ray.algorithms.tables import (
    as_lists,
    checked_numbers,
    flat_turns,
    num_response_tokens,
    rewards_of,
    token_advantages,
    turn_counts,
)
from cast_ray.config.learning import AdvantageConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import TrajectoryError
from cast_ray.functions import find_function
from cast_ray.games.game import Effect
from cast_ray.rollout.trajectory import BATCH_SCHEMA, SCORED_SCHEMA, check_schema
from cast_ray.seeds import derive_seed

Array = advantages.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSummary:
    """What the solver said about one step; fields are columns of the metrics."""

    unknown_costs: int
    """Turns of unknown cost, which have their outcome advantage only. In reverse distillation:
    turns that the teacher does not know, of advantage 0."""
    shifted_advantage_mean: float
    """Mean shifted advantage, in moves."""
    progress_fraction: float
    """Share of turns that lowered the cost-to-go."""
    harmful_fraction: float
    """Share of turns that raised it or made it infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """A step's credit on its way from costs to tokens: what it is computed from, and what is known.

    ``R`` trajectories have ``B`` turns, in row order. What no step has computed yet is empty.
    """

    scored: pa.Table
    """``SCORED_SCHEMA``, every trajectory of the step: the RMS needs them all."""
    config: AdvantageConfig
    response_tokens: int = 0
    """The bound below which ``config.overlong_buffer`` lies."""
    distillation: str = "none"
    """``distillation.mode``."""
    reward_function: str = ""
    """``reward.function``."""
    rng: np.random.Generator | None = None
    """Draws the permutation of ``config.permute_credit``."""
    shifted: Array = field(default_factory=lambda: np.zeros(0))
    """``[B]`` in moves; NaN = unknown."""
    solver: Array = field(default_factory=lambda: np.zeros(0))
    """``[B]`` the solver's signal h."""
    outcome: Array = field(default_factory=lambda: np.zeros(0))
    """``[R]`` each reward against its group's."""
    step: Array = field(default_factory=lambda: np.zeros(0))
    """``[B]`` GiGPO's step advantage."""
    turn: Array = field(default_factory=lambda: np.zeros(0))
    """``[B]`` the advantage that each turn is trained with."""
    tokens: pa.ListArray | None = None
    """``[L]`` per row, on the tokens."""

    @property
    def groups(self) -> np.ndarray:
        """Return ``[R]`` the number of each trajectory's group, ascending."""
        return self.scored["group"].to_numpy()

    @property
    def num_turns(self) -> np.ndarray:
        """Return ``[R]`` turns of each trajectory."""
        return turn_counts(self.scored)

    @property
    def rewards(self) -> Array:
        """Return ``[R]`` what each trajectory is worth: its reward, less what its length costs."""
        return rewards_of(self.scored, self.reward_function) + advantages.overlong_penalty(
            num_response_tokens(self.scored),
            bound=self.response_tokens,
            buffer=self.config.overlong_buffer,
        )


CreditStep: TypeAlias = Callable[[Credit], Credit]


def shift(credit: Credit) -> Credit:
    """Set ``shifted``: the drop in cost by each turn (eq:shifted_solver_advantage)."""
    return replace(credit, shifted=shifted_of_table(credit.scored, rescue=credit.config.rescue))


def transform(credit: Credit) -> Credit:
    """Set ``solver`` to the compressed drop (eq:asinh), by ``config.transform``.

    ``config.idle_price`` and ``config.shift`` change what is compressed, and not ``shifted``.
    """
    config, earned = credit.config, credit.shifted
    effects = flat_turns(credit.scored, "effects")
    was_executed = effects != Effect.TRUNCATED
    if config.idle_price:
        is_idle = was_executed & (effects != Effect.CHANGED)
        earned = np.where(is_idle, config.idle_price, earned)
    earned = earned - (1 - config.shift) * was_executed
    return replace(credit, solver=advantages.get_transform(config.transform)(earned))


def normalise(credit: Credit) -> Credit:
    """Divide ``solver`` by its RMS over the step (eq:rms_norm), by ``config.normalisation``."""
    if credit.config.normalisation == "none":
        return credit
    epsilon = credit.config.epsilon
    return replace(credit, solver=advantages.rms_normalised(credit.solver, epsilon=epsilon))


def permute(credit: Credit) -> Credit:
    """Shuffle ``solver`` among the turns: the control ``config.permute_credit``."""
    if not credit.config.permute_credit:
        return credit
    if credit.rng is None:
        raise ValueError("advantage.permute_credit needs an rng that draws the permutation")
    return replace(credit, solver=credit.rng.permutation(credit.solver))


def pool(credit: Credit) -> Credit:
    """Give all turns of a trajectory the same ``solver``: the control ``config.level``."""
    config = credit.config
    if config.level == "turn":
        return credit
    pooled = advantages.trajectory_credit(
        credit.solver, credit.num_turns, is_mean=config.level == "trajectory_mean"
    )
    known = ~np.isnan(pooled)
    pooled[known] = _within_groups(pooled[known], credit.groups[known], config)
    return replace(credit, solver=np.repeat(pooled, credit.num_turns))


def compare(credit: Credit) -> Credit:
    """Set ``outcome`` (eq:outcome_advantage) and ``step``: comparisons within each group.

    Or what ``config.function`` returns: ``outcome`` if it has a value per trajectory, ``step`` if
    it has one per turn.

    Raises:
        CallbackError: the function failed, or returned another shape or what is not finite.
    """
    config, num_turns = credit.config, credit.num_turns
    no_step = np.zeros(num_turns.sum())
    if config.function:
        name = f"advantage.function={config.function}"
        found = find_function("advantage.function", config.function, 1)(_read_only(credit))
        found = checked_numbers(found, name, {"trajectory": len(num_turns), "turn": len(no_step)})
        if len(found) == len(num_turns):
            return replace(credit, outcome=found, step=no_step)
        return replace(credit, outcome=np.zeros(len(num_turns)), step=found)
    step = _step_advantages(credit) if config.step_weight else no_step
    outcome = _within_groups(credit.rewards, credit.groups, config)
    return replace(credit, outcome=outcome, step=step)


def weigh(credit: Credit) -> Credit:
    """Set ``turn``: the outcome plus alpha times the solver's signal (eq:final_advantage).

    With ``distillation`` ``reverse`` it is the teacher's log-probability of the action alone.

    Raises:
        TrajectoryError: an advantage is not finite.
    """
    scored = credit.scored
    num_turns = turn_counts(scored)
    is_distilled = credit.distillation == "reverse"
    turn = combined_advantages(
        np.repeat(credit.outcome, num_turns),
        credit.solver,
        credit.step,
        flat_turns(scored, "teacher_logprobs") if is_distilled else None,
        credit.config,
    )
    _refuse_non_finite(turn, num_turns, scored)
    return replace(credit, turn=turn)


def spread(credit: Credit) -> Credit:
    """Set ``tokens``: each turn's advantage on every token of its answer."""
    return replace(credit, tokens=token_advantages(credit.scored, credit.turn))


CREDIT_STEPS: tuple[CreditStep, ...] = (
    shift,
    transform,
    normalise,
    permute,
    pool,
    compare,
    weigh,
    spread,
)
"""From costs to tokens, in order. To inspect a step, apply those up to it; to change one, pass a
list with another function in its place to ``add_advantages``."""


def add_credit(
    scored: pa.Table, config: TrainConfig, *, step: int
) -> tuple[pa.Table, CreditSummary]:
    """Return ``add_advantages`` as a run computes them; everything follows from the arguments.

    Args:
        scored: ``SCORED_SCHEMA``, every trajectory of the step.
        config: of the run.
        step: its number, which seeds the permutation of ``advantage.permute_credit``.
    """
    return add_advantages(
        scored,
        config.advantage,
        response_tokens=config.rollout.response_tokens,
        distillation=config.distillation.mode,
        reward_function=config.reward.function,
        rng=np.random.default_rng(derive_seed(config.seed, "permuted credit", step)),
    )


def add_advantages(
    scored: pa.Table,
    config: AdvantageConfig,
    *,
    steps: Sequence[CreditStep] = CREDIT_STEPS,
    **given: Any,
) -> tuple[pa.Table, CreditSummary]:
    """Return a whole step's table widened by its advantages, and a summary of the solver's signal.

    Args:
        scored: ``SCORED_SCHEMA``, every trajectory of the step.
        config: the section ``advantage``. ``overlong_buffer`` counts in the outcome advantage
            alone, and so does a reward function: the column ``reward`` stays the game's.
        steps: compute the advantages.
        **given: further fields of ``Credit``.

    Raises:
        TrajectoryError: a table of another stage, or an advantage that is not finite.
        ConfigError: there is no transform of that name.
    """
    check_schema(scored, SCORED_SCHEMA)
    credit = Credit(scored=scored, config=config, **given)
    for one in steps:
        credit = one(credit)
    num_turns = turn_counts(scored)
    columns = [
        pa.array(credit.outcome),
        as_lists(credit.shifted, num_turns),
        as_lists(credit.solver, num_turns),
        as_lists(credit.step, num_turns),
        as_lists(credit.turn, num_turns),
        credit.tokens,
    ]
    batch = pa.Table.from_arrays([*scored.columns, *columns], schema=BATCH_SCHEMA)
    is_distilled = credit.distillation == "reverse"
    teacher = flat_turns(scored, "teacher_logprobs")
    num_unknown = int(np.isnan(teacher if is_distilled else credit.shifted).sum())
    return batch, _summarise(credit.shifted, unknown_costs=num_unknown)


def combined_advantages(
    outcome: Array,
    solver: Array,
    step: Array,
    teacher_logprobs: Array | None,
    config: AdvantageConfig,
) -> Array:
    """Return ``[B]`` the advantage that each turn is trained with, from its ``[B]`` parts.

    ``teacher_logprobs`` are given in reverse distillation, which uses nothing else.
    """
    if teacher_logprobs is not None:
        return advantages.teacher_advantage(teacher_logprobs)
    without_solver = outcome + (1.0 if config.function else config.step_weight) * step
    return advantages.final_advantage(without_solver, solver, alpha=config.alpha)


def _read_only(credit: Credit) -> Credit:
    """Return a copy for a user's function, whose arrays it cannot change."""
    shifted, solver = credit.shifted.copy(), credit.solver.copy()
    shifted.flags.writeable = solver.flags.writeable = False
    return replace(credit, shifted=shifted, solver=solver)


def _within_groups(values: Array, groups: np.ndarray, config: AdvantageConfig) -> Array:
    """Return each trajectory's value against those of its group (eq:outcome_advantage)."""
    compared = np.zeros(len(values))
    for group in np.unique(groups):
        rows = groups == group
        compared[rows] = advantages.outcome_advantage(
            values[rows], std=config.std, delta=config.delta
        )
    return compared


def _step_advantages(credit: Credit) -> Array:
    """Return ``[B]`` step advantages of every turn, in row order."""
    scored, num_turns, config = credit.scored, credit.num_turns, credit.config
    rewards = rewards_of(scored, credit.reward_function)
    per_row = [
        advantages.discounted_returns(reward, count, discount=config.step_discount)
        for reward, count in zip(rewards, num_turns, strict=True)
    ]
    returns = np.concatenate([*per_row, np.zeros(0)])
    boards = np.array([b for states in scored["states"].to_pylist() for b in states[:-1]], object)
    groups = np.repeat(credit.groups, num_turns)
    step = np.zeros(len(returns))
    for group in np.unique(groups):
        turns = groups == group
        step[turns] = advantages.step_advantage(
            returns[turns], boards[turns].tolist(), std=config.std
        )
    return step


def _refuse_non_finite(per_turn: Array, num_turns: np.ndarray, scored: pa.Table) -> None:
    bad = np.flatnonzero(~np.isfinite(per_turn))
    if not bad.size:
        return
    row = int(np.searchsorted(np.cumsum(num_turns), bad[0], side="right"))
    name = ", ".join(
        f"{column} {scored[column][row].as_py()}" for column in ("step", "group", "episode")
    )
    raise TrajectoryError(f"the advantage of a turn is {per_turn[bad[0]]} in trajectory {name}")


def _summarise(shifted: Array, *, unknown_costs: int) -> CreditSummary:
    # Without a solver, only the zeros of turns without effect are known: they measure nothing.
    is_measured = not unknown_costs or np.nan_to_num(shifted).any()
    known = shifted[~np.isnan(shifted) & is_measured]
    return CreditSummary(
        unknown_costs=unknown_costs,
        shifted_advantage_mean=float(known.mean()) if known.size else math.nan,
        progress_fraction=float((known > 0).mean()) if known.size else math.nan,
        harmful_fraction=float((known < 0).mean()) if known.size else math.nan,
    )
