"""Every game keeps the contract, and the check that is meant to notice a fault notices it."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cast_ray.games import game_names, get_game
from cast_ray.games.generators import get_generator
from cast_ray.games.plugins import GamePlugin
from cast_ray.games.testing import CHECKS, Check, conformance_checks
from lights_out.game import symmetric_forms as lights_out_forms
from lights_out.solver import LIGHTS_OUT
from solver_actors.registry import get_solver_entry
from tests.support.broken_lights_out import (
    BROKEN,
    Mutates,
    OffByOne,
    ReadsDigits,
    with_game,
    with_solver,
)
from tests.support.rooms import symmetric_forms


def square_forms(game: str) -> Callable[[Any], Iterable[Any]]:
    """Return what turns and mirrors the states of a game whose text is its grid."""

    def forms(state: Any) -> Iterable[Any]:
        return map(get_game(game).decode, symmetric_forms(get_game(game).encode(state)))

    return forms


def relabelled(state: Any) -> Iterable[Any]:
    """Yield a Rush Hour state with the letters of all vehicles but A in reverse order."""
    game = get_game("rush_hour")
    text = game.encode(state)
    letters = "".join(sorted(set(text) - set(".xA")))
    yield game.decode(text.translate(str.maketrans(letters, letters[::-1])))


DECLARED: dict[str, dict[str, Any]] = {
    "sokoban": {"symmetries": square_forms("sokoban")},
    "minesweeper": {
        "symmetries": square_forms("minesweeper"),
        "skips": {
            "all_changes_scored": "to set a flag changes the state and is never scored",
            "best_is_least": "best is the peek-free solver's own reveal, never the least cost",
            "best_play": "K does not know that a flag on a safe cell stops a flood fill",
            "dead_is_final": "an infinite K says that the solver loses, which is no proof",
        },
    },
    "rush_hour": {"symmetries": relabelled},
}
"""What the built-in games say to ``conformance_checks``; a game that is not here says nothing."""


def checks_of(name: str) -> list[Check]:
    whole = GamePlugin(
        game=get_game(name), generate=get_generator(name), solver=get_solver_entry(name)
    )
    return conformance_checks(whole, **DECLARED.get(name, {}))


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{check}")
        for name in game_names()
        for check in checks_of(name)
    ],
)
def test_every_game_keeps_the_contract(check: Check) -> None:
    check()


def failures(plugin: GamePlugin) -> dict[str, str]:
    """Return the first line of what each failing check of a game says."""
    found: dict[str, str] = {}
    for check in conformance_checks(plugin, symmetries=lights_out_forms, puzzles_per_tier=2):
        try:
            check()
        except AssertionError as error:
            found[str(check)] = str(error)
    return found


@pytest.mark.parametrize(
    ("name", "plugin"), BROKEN, ids=[f"{name}-{number}" for number, (name, _) in enumerate(BROKEN)]
)
def test_fault_is_noticed_by_the_check_that_is_meant_to(name: str, plugin: GamePlugin) -> None:
    checks = conformance_checks(plugin, symmetries=lights_out_forms, puzzles_per_tier=2)
    (check,) = [check for check in checks if str(check) == name]
    with pytest.raises(AssertionError, match=r"\w+ ") as caught:
        check()
    assert "\n" not in str(caught.value)


def test_every_check_can_fail() -> None:
    assert {name for name, _ in BROKEN} == set(CHECKS)


def test_game_without_fault_fails_no_check() -> None:
    assert failures(LIGHTS_OUT) == {}


def test_parser_that_raises_is_named_with_the_answer() -> None:
    found = failures(with_game(ReadsDigits()))
    assert found.keys() == {"parser"}
    assert found["parser"].startswith("parse('")
    assert "raised ValueError" in found["parser"]


def test_apply_that_mutates_is_named_with_the_action() -> None:
    found = failures(with_game(Mutates()))
    assert "changed the state it was given" in found["pure_rules"]


def test_solver_that_is_off_by_one_is_caught_by_playing_its_advice() -> None:
    found = failures(with_solver(OffByOne))
    assert found.keys() == {"best_play"}
    assert "lowers the cost from 2 to 0, not to 1" in found["best_play"]


def test_skipped_check_says_why_and_the_others_are_run() -> None:
    reasons = {"best_play": "moves cost 1 or 2", "dead_is_final": "no proof"}
    checks = {str(c): c for c in conformance_checks(LIGHTS_OUT, skips=reasons)}
    assert checks.keys() == set(CHECKS)
    for name, reason in {**reasons, "symmetry": "the game declares no symmetries"}.items():
        with pytest.raises(unittest.SkipTest, match=f"{name}: {reason}"):
            checks[name]()
    assert [name for name, check in checks.items() if check.skip_reason] == [
        "symmetry", "best_play", "dead_is_final",
    ]  # fmt: skip


@pytest.mark.parametrize("skips", [{"best_plan": "typed wrong"}, {"best_play": ""}])
def test_skip_of_no_check_or_for_no_reason_is_refused(skips: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"skips\['best_.*give a reason for one of declaration"):
        conformance_checks(LIGHTS_OUT, skips=skips)
