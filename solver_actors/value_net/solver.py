"""A value network as a solver: the surrogate -scale * V(s) instead of the cost-to-go.

V(s) = max over legal a of Q(s, a) (paper, app:dqn); a won state has the value 1, a lost one a fixed
value, and the network's own values stay between the two, so that a winning move always earns
something and a losing one always costs something. The only solver that needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from cast_ray.envs.gym import get_numeric_rules
from cast_ray.errors import ModelError, PuzzleError
from cast_ray.games import get_game
from cast_ray.games.game import Status
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import SolverEntry, action_costs
from solver_actors.value_net.network import QNetwork, masked_q
from solver_actors.value_net.scale import ValueNetOracle, ValueScale

SOLVED_VALUE = 1.0
"""Above every return: that of the last move is 1 less the penalty of a step."""
MARGIN = 0.01
"""By which the network's own values stay within those of success and failure."""
_BOARDS_AT_ONCE = 1024
_MOST_STATES = 100_000
"""States that one solver remembers; with one more it forgets all."""
_BYTES_OF_A_STATE = 300
"""A state, its estimate and their place in a dictionary, roughly."""


class ValueNet:
    """A network and the arrays of its game. Any: each game has its own state type."""

    def __init__(self, network: QNetwork, *, device: str = "cpu") -> None:
        """Move a network to its device.

        Args:
            network: as ``load_q_network`` returns it.
            device: ``cpu`` or ``cuda``.

        Raises:
            ModelError: there is no such device.
        """
        try:
            self._network = network.to(device)
        except (RuntimeError, AssertionError) as error:  # torch says both
            raise ModelError(f"the value network cannot compute on {device!r}: {error}") from None
        shape = network.shape
        self._device = device
        self.game = get_game(shape.game)
        self.actions = shape.actions
        self._rules = get_numeric_rules(shape.game)
        self._tier = next(
            tier
            for tier in self.game.tiers.values()
            if self._rules.actions(tier) == shape.actions
            and (tier.rows, tier.cols) == (shape.rows, shape.cols)
        )

    def q_values(self, states: Sequence[Any]) -> np.ndarray:
        """Return ``[len(states), A]`` float64 Q-values, -inf where an action is illegal.

        Raises:
            ModelError: a prediction is not finite.
            PuzzleError: a board has another size, or a piece that no action names.
        """
        found = [self._chunk(states[i : i + _BOARDS_AT_ONCE]) for i in _starts(len(states))]
        return np.concatenate([*found, np.zeros((0, len(self.actions)))])

    def _chunk(self, states: Sequence[Any]) -> np.ndarray:
        for state in states:
            self._check_size(*self._rules.size(state))
        arrays = [self._rules.load(state, self._tier)[:2] for state in states]
        cells, masks = (torch.from_numpy(np.stack(part)) for part in zip(*arrays, strict=True))
        with torch.inference_mode():
            q = self._network(cells.to(self._device)).cpu()
        bad = torch.argwhere(~q.isfinite())
        if len(bad):
            row, action = bad[0].tolist()
            raise ModelError(
                f"the value network predicts {q[row, action].item()} for {self.actions[action]} on "
                f"the board {self.game.encode(states[row])!r}: train it again"
            )
        return masked_q(q, masks).double().numpy()

    def _check_size(self, rows: int, cols: int) -> None:
        if (rows, cols) != (self._tier.rows, self._tier.cols):
            raise PuzzleError(
                f"the value network reads {self._tier.rows} x {self._tier.cols} boards, this one "
                f"is {rows} x {cols}: use one that was trained on that size"
            )


class ValueNetSolver:
    """The estimates of one layout's states, remembered; is a ``Solver``."""

    def __init__(
        self, net: ValueNet, scale: ValueScale, *, is_lost: Callable[[Any], bool] | None
    ) -> None:
        """Set up a solver that was asked nothing yet.

        Args:
            net: the network.
            scale: of its values.
            is_lost: proves states lost that the rules leave open; None = nothing does.
        """
        self._net, self._scale, self._is_lost = net, scale, is_lost
        self._estimates: dict[Any, float] = {}

    @property
    def memory_bytes(self) -> int:
        """Return the size of what is remembered; the network is shared."""
        return _BYTES_OF_A_STATE * (len(self._estimates) + 1)

    def cost_to_go(self, states: Sequence[Any]) -> np.ndarray:
        """Return ``[len(states)]`` float64 -scale * V: finite, and below 0 near the goal.

        Raises:
            ModelError: a prediction is not finite.
            PuzzleError: a board has another size, or a piece that no action names.
        """
        new = list(dict.fromkeys(state for state in states if state not in self._estimates))
        if len(self._estimates) + len(new) > _MOST_STATES:
            self._estimates, new = {}, list(dict.fromkeys(states))
        if new:
            self._estimates |= zip(
                new, (-self._scale.scale * self._values(new)).tolist(), strict=True
            )
        return np.array([self._estimates[state] for state in states], np.float64)

    def action_costs(self, state: Any) -> dict[str, float]:
        """Return the estimate after each scored action, in the game's canonical order."""
        return action_costs(self._net.game, self.cost_to_go, state)

    def best_action(self, state: Any) -> str | None:
        """Return the legal action of the largest Q-value; None where the game is decided."""
        if self._fixed(state) is not None:
            return None
        q = self._net.q_values([state])[0]
        return None if np.isneginf(q).all() else self._net.actions[int(q.argmax())]

    def is_dead(self, state: Any) -> bool:
        """Return whether the rules or the loss test prove the state lost; the network cannot."""
        return self._fixed(state) == self._scale.failure

    def _values(self, states: Sequence[Any]) -> np.ndarray:
        """Return ``[len(states)]`` V."""
        values = np.array([math.nan if (v := self._fixed(s)) is None else v for s in states])
        asked = np.flatnonzero(np.isnan(values))
        best = self._net.q_values([states[index] for index in asked]).max(axis=1, initial=-np.inf)
        low, high = self._scale.failure + MARGIN, SOLVED_VALUE - MARGIN
        # Where nothing is legal nothing can be won.
        values[asked] = np.where(np.isneginf(best), self._scale.failure, best.clip(low, high))
        return values

    def _fixed(self, state: Any) -> float | None:
        """Return the value of a state that needs no network; None for others."""
        status = self._net.game.status(state)
        if status is Status.WON:
            return SOLVED_VALUE
        if status is Status.LOST or (self._is_lost is not None and self._is_lost(state)):
            return self._scale.failure
        return None


def value_net_entry(oracle: ValueNetOracle) -> SolverEntry:
    """Return a network as the solver of its game.

    Raises:
        ModelError: there is no such device.
    """
    net, scale = ValueNet(oracle.network, device=oracle.device), oracle.scale
    game = net.game.name
    own = get_solver_entry(game) if has_solver(game) else None
    loss_test = own.loss_test if own else None
    return SolverEntry(
        build=lambda state: ValueNetSolver(
            net, scale, is_lost=loss_test(state) if loss_test else None
        ),
        layout_key=own.layout_key if own else lambda state: game,
        has_deadlocks=loss_test is not None,
    )


def _starts(count: int) -> range:
    return range(0, count, _BOARDS_AT_ONCE)
