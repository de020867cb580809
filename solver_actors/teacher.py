"""The soft-optimal teacher: a solver used as a policy, in the states that a student visited.

Letters: ``T`` turns of one trajectory, ``A`` scored actions of one state. Where a game hides part
of its state, the costs after an action are privileged: this is credit for finished episodes, never
advice in a live one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cast_ray.algorithms import advantages
from cast_ray.algorithms.shifted import shifted_advantages, win_from_infinite
from cast_ray.config.train import TrainConfig
from cast_ray.games import get_game
from cast_ray.games.game import Status
from cast_ray.rollout.trajectory import TeacherTurns
from cast_ray.seeds import derive_seed
from solver_actors.solver import Solver


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTeacher:
    """How a solver's costs become probabilities of actions."""

    temperature: float
    """tau, in the game's moves."""
    rescue: str
    """``cost`` or ``zero``, as in ``advantages.shifted_solver_advantage``."""
    are_estimates: bool = False
    """Whether the costs are a value network's, all finite, and may be below 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherChoice:
    """What the teacher would do in one state."""

    actions: tuple[str, ...]
    probabilities: np.ndarray
    """``[A]``."""
    log_normaliser: float


class PuzzleTeacher:
    """The teacher of one layout; remembers the states that it was asked about."""

    def __init__(
        self,
        teacher: SoftTeacher,
        *,
        game: str,
        solver: Solver[Any],  # Any: each game has a state type of its own
        states: Mapping[str, Any],
    ) -> None:
        """Set up the teacher of a layout.

        Args:
            teacher: temperature and rule for rescues.
            game: name of the game.
            solver: of the layout.
            states: by their texts, all that ``turns`` will name.
        """
        self._teacher, self._game, self._solver = teacher, game, solver
        self._states = states
        self._choices: dict[str, TeacherChoice | None] = {}

    def turns(
        self, boards: Sequence[str], costs: np.ndarray, effects: Sequence[str], *, seed: int
    ) -> TeacherTurns:
        """Return the log-probability of each action taken, and an action drawn in its place.

        For an action taken, log pi = A~ / tau - log Z, with its own shifted advantage and the
        normaliser of the scored actions. For a scored action that is its log-probability. An action
        without effect (ineffective, illegal, invalid, truncated) has A~ = 0 and counts as one that
        leads nowhere: without a place on the teacher's scale it would earn 0, more than any scored
        action can. A change that is not scored (setting a flag) counts by its effect on the cost.

        Args:
            boards: ``[T + 1]`` texts of the visited states.
            costs: ``[T + 1]`` of these; inf = infinite, NaN = unknown.
            effects: ``[T]`` values of ``Effect``.
            seed: of the trajectory; turn t draws with a seed derived from it.

        Returns:
            ``[T]``; unknown where a cost before or after any scored action is unknown, where no
            action is scored, and where the game is already decided.
        """
        shifted = shifted_advantages(
            costs,
            effects,
            game=self._game,
            puzzle=boards[0],
            rescue=self._teacher.rescue,
            are_estimates=self._teacher.are_estimates,
        )
        logprobs = np.full(len(effects), np.nan)
        actions = [""] * len(effects)
        for turn, (board, cost) in enumerate(zip(boards[:-1], costs[:-1], strict=True)):
            if board not in self._choices:
                self._choices[board] = teacher_choice(
                    self._teacher,
                    game=self._game,
                    solver=self._solver,
                    state=self._states[board],
                    cost=cost,
                )
            choice = self._choices[board]
            if choice is not None:
                logprobs[turn] = shifted[turn] / self._teacher.temperature - choice.log_normaliser
                rng = np.random.default_rng(derive_seed(seed, "teacher", turn))
                drawn = rng.choice(len(choice.actions), p=choice.probabilities)
                actions[turn] = choice.actions[drawn]
        return TeacherTurns(logprobs=logprobs, actions=tuple(actions))


def teacher_choice(
    teacher: SoftTeacher,
    *,
    game: str,
    solver: Solver[Any],  # Any: each game has a state type of its own
    state: Any,
    cost: float,
) -> TeacherChoice | None:
    """Return the teacher's probabilities in one state.

    Args:
        teacher: temperature and rule for rescues.
        game: name of the game.
        solver: of the state's layout.
        state: to act in.
        cost: of the state; inf = infinite, NaN = unknown.

    Returns:
        None where the cost before or after a scored action is unknown, where no action is scored,
        and where the game is already decided.
    """
    rules = get_game(game)
    if rules.status(state) is not Status.PLAYING:
        return None
    costs_after = solver.action_costs(state)
    shifted = advantages.drop_in_cost(
        np.array(cost),
        np.array(list(costs_after.values())),
        rescue=teacher.rescue,
        win_from_infinite=win_from_infinite(game, rules.encode(state)),
    )
    logprobs = advantages.soft_optimal_logprobs(shifted, teacher.temperature)
    if not costs_after or np.isnan(logprobs).any():
        return None
    return TeacherChoice(
        actions=tuple(costs_after),
        probabilities=np.exp(logprobs),
        log_normaliser=advantages.soft_optimal_log_normaliser(shifted, teacher.temperature),
    )


def teacher_of(config: TrainConfig) -> SoftTeacher | None:
    """Return the teacher of a run's oracles; None if the run distils nothing."""
    if config.distillation.mode == "none":
        return None
    return SoftTeacher(
        temperature=config.distillation.temperature,
        rescue=config.advantage.rescue,
        are_estimates=config.oracle == "value_net",
    )
