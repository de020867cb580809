"""What solvers say about an attempt that was made: costs of its states, risks of its reveals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cast_ray.games import get_game
from cast_ray.games.game import Effect
from cast_ray.games.minesweeper import Minesweeper
from cast_ray.games.turn_quality import RevealRisk, reveal_risk
from solver_actors.analyst.analyst import mine_probabilities_of
from solver_actors.minesweeper.solver import MinesweeperSolver
from solver_actors.oracle import Oracle
from solver_actors.registry import has_solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """``[T]`` each; None for a turn that revealed nothing, in other games, and out of budget."""

    excess: tuple[float | None, ...]
    """How much likelier a mine was in the revealed cell than in the safest one."""
    safe: tuple[bool | None, ...]
    """Whether the revealed cell was provably safe."""


class Scorer:
    """Judges attempts at any game or benchmark; remembers the boards that it saw."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._risks: dict[tuple[str, str], RevealRisk | None] = {}

    def costs(self, game: str, states: Sequence[str]) -> tuple[float, ...]:
        """Return ``[T + 1]`` costs of an attempt's states; NaN = unknown: nobody solves it."""
        if not has_solver(game):
            return (float("nan"),) * len(states)
        return tuple(self._oracle.cost_to_go(game, states).tolist())

    def risks(
        self, game: str, states: Sequence[str], actions: Sequence[str], effects: Sequence[str]
    ) -> Risks:
        """Return the risks of an attempt's turns, told from what was open before each.

        Args:
            game: name of the game or benchmark.
            states: ``[T + 1]`` of one layout.
            actions: ``[T]`` in canonical spelling.
            effects: ``[T]`` values of ``Effect``.
        """
        if game != Minesweeper.name:
            return Risks(excess=(None,) * len(actions), safe=(None,) * len(actions))
        found = [
            self._risk(board, action) if effect == Effect.CHANGED else None
            for board, action, effect in zip(states[:-1], actions, effects, strict=True)
        ]
        return Risks(
            excess=tuple(risk.excess if risk else None for risk in found),
            safe=tuple(risk.mine == 0 if risk else None for risk in found),
        )

    def _risk(self, board: str, action: str) -> RevealRisk | None:
        key = (board, action)
        if key not in self._risks:
            state = get_game(Minesweeper.name).decode(board)
            solver = self._oracle.solver_of(Minesweeper.name, state)
            assert isinstance(solver, MinesweeperSolver)
            mines = mine_probabilities_of(solver, state)
            self._risks[key] = None if mines is None else reveal_risk(mines, action)
        return self._risks[key]
