"""Lights Out solved exactly, by elimination over GF(2), and the plugin that adds the game.

The order of presses does not matter and two presses of a cell cancel out, so a solution is a set
of cells. Two solutions of one board differ by a set of presses that switches nothing (a *quiet*
set; a 5 x 5 board has 4 of them, the empty one included). The smallest of all solutions is N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cast_ray.envs.gym.numeric import plain_rules
from cast_ray.games.plugins import GamePlugin
from lights_out.game import (
    LightsOut,
    LightsOutState,
    generate_lights_out,
    lights_as_numbers,
    presses,
    switched_by,
)
from solver_actors.solver import SolverEntry

_GAME = LightsOut()
_BYTES_OF_A_SET = 32


class LightsOutSolver:
    """Knows the presses that make each light of one board size, and the quiet sets."""

    def __init__(self, rows: int, cols: int) -> None:
        self._rows, self._cols = rows, cols
        self._pivots: list[tuple[int, int, int]] = []
        """(a light, what some presses switch, those presses): no two have their light in common."""
        quiet: list[int] = []
        for cell in range(rows * cols):
            lights, presses = self._reduced(switched_by(cell, rows=rows, cols=cols), 1 << cell)
            if lights:
                self._pivots.append((lights & -lights, lights, presses))
            else:
                quiet.append(presses)
        self._quiet_sets = [0]
        for presses in quiet:
            self._quiet_sets += [other ^ presses for other in self._quiet_sets]

    @property
    def memory_bytes(self) -> int:
        """Return about what the solver keeps in memory."""
        return _BYTES_OF_A_SET * (3 * len(self._pivots) + len(self._quiet_sets))

    def cost_to_go(self, states: Sequence[LightsOutState]) -> np.ndarray:
        """Return ``[len(states)]`` float64 N in presses; inf = no presses solve it. Never NaN.

        Raises:
            ValueError: a state has another size.
        """
        for state in states:
            if (state.rows, state.cols) != (self._rows, self._cols):
                raise ValueError(
                    f"this solver is for {self._rows} x {self._cols} cells, not for "
                    f"{state.rows} x {state.cols}: build another"
                )
        return np.array([self._num_presses(state.lights) for state in states], np.float64)

    def action_costs(self, state: LightsOutState) -> dict[str, float]:
        """Return N after each press, row by row."""
        actions = _GAME.scored_actions(state)
        after = [_GAME.apply(state, action).state for action in actions]
        return dict(zip(actions, self.cost_to_go(after).tolist(), strict=True))

    def best_action(self, state: LightsOutState) -> str | None:
        """Return the first press of least cost; None where all is dark or nothing helps."""
        cost = self.cost_to_go([state])[0]
        if cost == 0 or np.isinf(cost):
            return None
        costs = self.action_costs(state)
        return min(costs, key=costs.__getitem__)

    def is_dead(self, state: LightsOutState) -> bool:
        """Return whether no presses solve the board: so it is from the start, or never."""
        return bool(np.isinf(self.cost_to_go([state])[0]))

    def _reduced(self, lights: int, presses: int) -> tuple[int, int]:
        """Return lights and presses after all pivots were used to switch their light off."""
        for pivot, switched, pressed in self._pivots:
            if lights & pivot:
                lights, presses = lights ^ switched, presses ^ pressed
        return lights, presses

    def _num_presses(self, lights: int) -> float:
        left, presses = self._reduced(lights, 0)
        if left:
            return math.inf
        return min((presses ^ quiet).bit_count() for quiet in self._quiet_sets)


LIGHTS_OUT = GamePlugin(
    game=LightsOut(),
    generate=generate_lights_out,
    solver=SolverEntry(
        build=lambda state: LightsOutSolver(state.rows, state.cols),
        layout_key=lambda state: (state.rows, state.cols),
    ),
    numeric=plain_rules(
        LightsOut(),
        cells=lights_as_numbers,
        num_symbols=lambda tier: 2,
        actions=lambda tier: presses(tier.rows, tier.cols),
    ),
)
