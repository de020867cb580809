"""Credit for every turn, one pure function per equation of the paper. NumPy only.

Letters: ``T`` turns of one trajectory, ``G`` trajectories of one group, ``B`` turns of a batch.
Nothing here knows Arrow, Ray or a model; ``credit`` applies these functions to tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cast_ray.errors import ConfigError

Array = NDArray[np.float64]

_SIGMA_FLOOR = 1e-6
_STEP_DELTA = 1e-6


def shifted_solver_advantage(
    cost_to_go: Array,
    has_effect: NDArray[np.bool_],
    *,
    rescue: str,
    win_from_infinite: float = 0.0,
) -> Array:
    """Return the drop in cost-to-go caused by each turn (paper, eq:shifted_solver_advantage).

    One more than eq:solver_advantage, the advantage where every move costs 1.

    Args:
        cost_to_go: ``[T + 1]`` N(s_0) .. N(s_T), in moves; ``inf`` = infinite, NaN = unknown.
        has_effect: ``[T]`` whether the turn changed the state; the others earn 0.
        rescue: what a turn from an infinite cost to a finite one earns: ``cost``, the cost that it
            leads to, or ``zero``. Such a turn is possible only in games whose infinite cost is not
            a proof.
        win_from_infinite: what such a turn earns with ``rescue="cost"`` if it wins: the cost that
            it leads to is then 0.

    Returns:
        ``[T]`` credit in moves: +1 for an optimal move, 0 for no progress, ``-N(s_t)`` for a move
        that makes the cost infinite, 0 from an infinite cost to an infinite one, ``+N(s_{t+1})``
        or ``win_from_infinite`` for a rescue, NaN where either side is unknown.

    Raises:
        ValueError: the lengths do not fit, a cost is negative, or ``rescue`` is unknown.
    """
    if cost_to_go.ndim != 1 or len(cost_to_go) != len(has_effect) + 1:
        raise ValueError(f"{len(has_effect)} turns need {len(has_effect) + 1} costs")
    if (cost_to_go < 0).any():
        raise ValueError(f"cost_to_go must be >= 0, got {np.nanmin(cost_to_go)}")
    drop = drop_in_cost(
        cost_to_go[:-1], cost_to_go[1:], rescue=rescue, win_from_infinite=win_from_infinite
    )
    return np.where(has_effect, drop, 0.0)


def estimated_advantage(cost_estimates: Array) -> Array:
    """Return the drop in an estimate of the cost by each turn (paper, app:dqn).

    Args:
        cost_estimates: ``[T + 1]`` -scale * V(s_0) .. -scale * V(s_T) of a value network, where
            success and failure have fixed values; or minus what the environment's rewards add up
            to before and after each turn. All finite.

    Returns:
        ``[T]`` scale * (V(s_{t+1}) - V(s_t)), also where a game is lost or won, and 0 where the
        state is the same; or the reward of each turn.

    Raises:
        ValueError: an estimate is not finite.
    """
    if not np.isfinite(cost_estimates).all():
        raise ValueError("an estimate of the cost must be finite")
    return cost_estimates[:-1] - cost_estimates[1:]


def drop_in_cost(
    before: Array, after: Array, *, rescue: str, win_from_infinite: float = 0.0
) -> Array:
    """Return what actions that change the state earn, from the cost before and after each.

    Args:
        before: ``[...]`` cost before each action; inf = infinite, NaN = unknown.
        after: ``[...]`` cost after each action.
        rescue, win_from_infinite: as in ``shifted_solver_advantage``.

    Returns:
        ``[...]`` credit in moves, by the rules of ``shifted_solver_advantage``.

    Raises:
        ValueError: ``rescue`` is unknown.
    """
    if rescue not in ("cost", "zero"):
        raise ValueError(f"rescue must be cost or zero, got {rescue!r}")
    with np.errstate(invalid="ignore"):  # inf - inf is replaced below
        drop = before - after
    drop = np.where(np.isfinite(before) & np.isinf(after), -before, drop)
    rescued = np.where(after == 0, win_from_infinite, after) if rescue == "cost" else 0.0
    drop = np.where(np.isinf(before) & np.isfinite(after), rescued, drop)
    drop = np.where(np.isinf(before) & np.isinf(after), 0.0, drop)
    return np.where(np.isnan(before) | np.isnan(after), np.nan, drop)


def asinh(shifted_advantage: Array) -> Array:
    """Return the advantages compressed, sign and zero kept (paper, eq:asinh)."""
    return np.arcsinh(shifted_advantage)


def identity(shifted_advantage: Array) -> Array:
    """Return the advantages unchanged (the paper's ablation without asinh)."""
    return shifted_advantage


def signed_log(shifted_advantage: Array) -> Array:
    """Return sign(x) * log(1 + |x|), an alternative compression."""
    return np.sign(shifted_advantage) * np.log1p(np.abs(shifted_advantage))


TRANSFORMS: Mapping[str, Callable[[Array], Array]] = {
    "asinh": asinh,
    "identity": identity,
    "signed_log": signed_log,
}
"""What ``advantage.transform`` can name. Each is elementwise and keeps NaN; add yours here."""


def get_transform(name: str) -> Callable[[Array], Array]:
    """Return the transform of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in TRANSFORMS:
        raise ConfigError(
            f"advantage.transform must be one of {', '.join(TRANSFORMS)}, got {name!r}"
        )
    return TRANSFORMS[name]


def rms_normalised(transformed: Array, *, epsilon: float) -> Array:
    """Return the signal divided by its root mean square over the batch (paper, eq:rms_norm).

    The mean is not subtracted: 0 must keep meaning "no progress". A turn of unknown cost (NaN) is
    left out of the mean and stays NaN; without any known turn the RMS is taken as 1.

    Args:
        transformed: ``[B]`` g of every turn of the step, terminal and invalid turns included.
        epsilon: added to the RMS.
    """
    known = transformed[~np.isnan(transformed)]
    rms = float(np.sqrt(np.mean(known**2))) if known.size else 1.0
    return transformed / (rms + epsilon)


def outcome_advantage(rewards: Array, *, std: str, delta: float) -> Array:
    """Return each trajectory's reward against its group (paper, eq:outcome_advantage).

    Args:
        rewards: ``[G]`` rewards of one group.
        std: ``population`` (the paper) or ``sample`` (the reference implementation).
        delta: added to the standard deviation.

    Returns:
        ``[G]``; zeros for a group of one, and for a group whose standard deviation is below 1e-6.

    Raises:
        ValueError: the group is empty or ``std`` is unknown.
    """
    if rewards.size == 0:
        raise ValueError("an empty group has no outcome advantage")
    return _standardised(rewards, std=std, delta=delta)


def trajectory_credit(solver: Array, num_turns: NDArray[np.integer], *, is_mean: bool) -> Array:
    """Return the sum or the mean of the solver's signal over each trajectory.

    Args:
        solver: ``[B]`` h of every turn in row order; NaN = unknown, left out.
        num_turns: ``[R]`` turns of each trajectory.
        is_mean: the mean over the known turns, not their sum.

    Returns:
        ``[R]``; NaN for a trajectory without a known turn.
    """
    rows = np.repeat(np.arange(len(num_turns)), num_turns)
    known = ~np.isnan(solver)
    size = len(num_turns)
    total = np.bincount(rows[known], solver[known], minlength=size)
    count = np.bincount(rows[known], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 becomes NaN
        return total / (count if is_mean else count > 0)


def overlong_penalty(num_response_tokens: NDArray[np.integer], *, bound: int, buffer: int) -> Array:
    """Return what a long episode adds to its reward: DAPO's soft overlong punishment.

    Args:
        num_response_tokens: ``[R]`` tokens of each trajectory after its opening prompt,
            observations included: what the bound counts.
        bound: most of them.
        buffer: tokens below the bound over which the penalty grows; 0 = no penalty.

    Returns:
        ``[R]`` 0 up to ``bound - buffer`` tokens, -1 from ``bound`` on, linear between.
    """
    if buffer == 0:
        return np.zeros(len(num_response_tokens))
    return np.clip((bound - buffer - num_response_tokens) / buffer, -1.0, 0.0)


def discounted_returns(reward: float, num_turns: int, *, discount: float) -> Array:
    """Return each turn's return: the reward at the end of the trajectory, discounted back.

    Args:
        reward: of the trajectory.
        num_turns: T.
        discount: per turn, 0 to 1.

    Returns:
        ``[T]`` discount^(T - 1 - t) * reward; the last turn has the reward itself.
    """
    return reward * discount ** np.arange(num_turns - 1, -1, -1, dtype=np.float64)


def step_advantage(returns: Array, boards: Sequence[str], *, std: str) -> Array:
    """Return each turn's return against those of its group that saw the same board (GiGPO).

    Args:
        returns: ``[M]`` discounted returns of all turns of one group.
        boards: ``[M]`` text of the state before each turn. Turns are compared where the texts are
            equal, in whichever trajectory; one that comes to a board twice is counted twice.
        std: as in ``outcome_advantage``.

    Returns:
        ``[M]`` (return - mean) / (std + 1e-6); 0 for a turn whose board no other turn saw, and
        where the standard deviation is below 1e-6.
    """
    advantage = np.zeros_like(returns)
    _, board_numbers = np.unique(np.array(boards, dtype=np.str_), return_inverse=True)
    for number in range(int(board_numbers.max(initial=-1)) + 1):
        is_same = board_numbers == number
        advantage[is_same] = _standardised(returns[is_same], std=std, delta=_STEP_DELTA)
    return advantage


def final_advantage(outcome: float | Array, solver_advantage: Array, *, alpha: float) -> Array:
    """Return outcome + alpha * h for each turn (paper, eq:final_advantage).

    A turn whose solver advantage is unknown (NaN) keeps its outcome advantage alone.
    """
    return outcome + alpha * np.nan_to_num(solver_advantage, nan=0.0, posinf=np.inf, neginf=-np.inf)


def teacher_advantage(teacher_logprobs: Array) -> Array:
    """Return what reverse distillation gives each turn: log pi_S of the action taken.

    The policy gradient with this weight is that of the cross-entropy to the teacher (paper,
    thm:main), so there is no outcome, no transform, no RMS and no alpha, and the mean stays.

    Args:
        teacher_logprobs: ``[B]``, at most about 0; NaN = unknown.

    Returns:
        ``[B]`` the same, 0 where it is unknown: such a turn is not learned from.
    """
    return np.where(np.isnan(teacher_logprobs), 0.0, teacher_logprobs)


def soft_optimal_logprobs(shifted_advantage: Array, temperature: float) -> Array:
    """Return log pi_S of each scored action, pi_S ~ exp(advantage / tau) (eq:app_soft_optimal).

    Args:
        shifted_advantage: ``[A]`` what each scored action of one state would earn, in moves. The
            paper has Q here; the two differ by a term of the state alone, which cancels.
        temperature: tau, in moves, > 0.

    Returns:
        ``[A]`` logarithms of probabilities that sum to 1; all NaN where an advantage is unknown.
    """
    normaliser = soft_optimal_log_normaliser(shifted_advantage, temperature)
    return shifted_advantage / temperature - normaliser


def soft_optimal_log_normaliser(shifted_advantage: Array, temperature: float) -> float:
    """Return the logarithm of the sum of exp(advantage / tau) over the scored actions ``[A]``.

    NaN where one is unknown, or where there is none.
    """
    if shifted_advantage.size == 0:
        return float("nan")
    scaled = shifted_advantage / temperature
    largest = scaled.max()  # factored out: exp would overflow
    return float(largest + np.log(np.exp(scaled - largest).sum()))


def _standardised(values: Array, *, std: str, delta: float) -> Array:
    """Return (x - mean) / (std + delta); zeros for one value and for values that are the same."""
    if std not in ("population", "sample"):
        raise ValueError(f"std must be population or sample, got {std!r}")
    if values.size == 1:
        return np.zeros(1)
    sigma = float(np.std(values, ddof=1 if std == "sample" else 0))
    if sigma < _SIGMA_FLOOR:
        return np.zeros_like(values)
    return (values - values.mean()) / (sigma + delta)
