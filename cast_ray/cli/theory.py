"""The page of ``cast-ray theory``: the theorem, checked by exact enumeration on small boards."""

from __future__ import annotations

from pathlib import Path

from cast_ray.algorithms.theory.finite_game import FiniteGame, tabulate
from cast_ray.algorithms.theory.measurements import measure
from cast_ray.games import get_game
from cast_ray.runs.report.theory import write_theory_page
from solver_actors.registry import get_solver_entry

ROOM = "######\n#P__##\n#_X_O#\n#____#\n######"
TWO_BOXES = "######\n#P__##\n#_X_O#\n#__X_#\n#_O__#\n######"
CORRIDOR = "########\n#_PX__O#\n########"
"""The box can only move right: no deadlock."""
_ALPHA = 0.1  # the paper's
_TAU = 0.5
_SEED = 0


def make_theory_page(out: Path) -> None:
    """Enumerate the boards, which takes about ten seconds, and write the page.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    numbers = measure(
        _tabulated(ROOM, horizon=6),
        _tabulated(TWO_BOXES, horizon=12),
        [_tabulated(CORRIDOR, horizon=turns) for turns in (4, 8, 16, 32, 64, 128)],
        alpha=_ALPHA,
        tau=_TAU,
        seed=_SEED,
    )
    write_theory_page(numbers, out)


def _tabulated(text: str, *, horizon: int) -> FiniteGame:
    game = get_game("sokoban")
    start = game.decode(text)
    solver = get_solver_entry("sokoban").build(start)
    return tabulate(game, start, solver.cost_to_go, horizon=horizon)
