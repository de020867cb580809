"""Checks that every game and its solver must pass, for use in your game's tests.

    @pytest.mark.parametrize("check", conformance_checks(LIGHTS_OUT), ids=str)
    def test_lights_out_is_a_game_for_cast_ray(check):
        check()

Needs no pytest: a check is a function of no arguments. It returns if all is well, raises
AssertionError with a sentence if not, and ``unittest.SkipTest``, which pytest reports as a skip,
where the game said that it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from cast_ray.games.plugins import GamePlugin
from cast_ray.games.testing.game_checks import GAME_CHECKS
from cast_ray.games.testing.samples import Check, Samples
from cast_ray.games.testing.solver_checks import SOLVER_CHECKS
from cast_ray.games.testing.text_checks import TEXT_CHECKS

CHECKS: dict[str, Callable[[Samples], None]] = {**GAME_CHECKS, **TEXT_CHECKS, **SOLVER_CHECKS}
"""Every check by name; its docstring says what it demands."""


def conformance_checks(
    plugin: GamePlugin,
    *,
    skips: Mapping[str, str] | None = None,
    symmetries: Callable[[Any], Iterable[Any]] | None = None,
    puzzles_per_tier: int = 3,
    seed: int = 0,
) -> list[Check]:
    """Return all checks of a game, to be called one by one.

    Args:
        plugin: the game, its generator and its solver.
        skips: reasons by the name of a check that cannot hold for this game, e.g. ``best_play``
            where a cost is no number of turns.
        symmetries: from a state (Any: of this game's own type) to all states that count as the
            same puzzle; None skips that check.
        puzzles_per_tier: how many puzzles of each tier are generated and played at random.
        seed: of puzzles, play and junk.

    Raises:
        ValueError: ``skips`` names no check, or gives no reason.
    """
    reasons = dict(skips or {})
    for name, reason in reasons.items():
        if name not in CHECKS or not reason:
            raise ValueError(
                f"skips[{name!r}] = {reason!r}: give a reason for one of {', '.join(CHECKS)}"
            )
    if symmetries is None:
        reasons.setdefault("symmetry", "the game declares no symmetries")
    samples = Samples(plugin, symmetries=symmetries, puzzles_per_tier=puzzles_per_tier, seed=seed)
    return [
        Check(name=name, run=partial(check, samples), skip_reason=reasons.get(name, ""))
        for name, check in CHECKS.items()
    ]
