"""What solvers say about an attempt that was made: costs of its states, risks of its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cast_ray.games import get_game
from cast_ray.games.game import ActionRisk, Effect
from solver_actors.oracle import Oracle
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.solver import SolverEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """``[T]`` each; None for a turn that risked nothing, and where the risk is unknown."""

    excess: tuple[float | None, ...]
    """How much likelier the action was to lose than the safest one."""
    safe: tuple[bool | None, ...]
    """Whether the action was provably safe."""


class Scorer:
    """Scores attempts at any game or benchmark; remembers the boards that it has seen."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._risks: dict[tuple[str, str, str], ActionRisk | None] = {}

    def costs(self, game: str, states: Sequence[str]) -> tuple[float, ...]:
        """Return ``[T + 1]`` costs of an attempt's states; NaN = unknown, as without a solver."""
        if not has_solver(game):
            return (float("nan"),) * len(states)
        return tuple(self._oracle.cost_to_go(game, states).tolist())

    def risks(
        self, game: str, states: Sequence[str], actions: Sequence[str], effects: Sequence[str]
    ) -> Risks:
        """Return the risks of an attempt's turns, from what was open before each.

        Args:
            game: name of the game or benchmark.
            states: ``[T + 1]`` of one layout.
            actions: ``[T]`` in canonical spelling.
            effects: ``[T]`` values of ``Effect``.
        """
        entry = get_solver_entry(game) if has_solver(game) else None
        if entry is None or entry.cell_risks is None:
            return Risks(excess=(None,) * len(actions), safe=(None,) * len(actions))
        found = [
            self._risk(game, entry, board, action) if effect == Effect.CHANGED else None
            for board, action, effect in zip(states[:-1], actions, effects, strict=True)
        ]
        return Risks(
            excess=tuple(risk.excess if risk else None for risk in found),
            safe=tuple(risk.loss == 0 if risk else None for risk in found),
        )

    def _risk(self, game: str, entry: SolverEntry, board: str, action: str) -> ActionRisk | None:
        key = (game, board, action)
        if key not in self._risks:
            rules = get_game(game)
            state = rules.decode(board)
            assert entry.cell_risks is not None
            risks = entry.cell_risks(self._oracle.solver_of(game, state), state)
            self._risks[key] = None if risks is None else rules.risk_of(risks, action)
        return self._risks[key]
