"""A plug-in states the facts that a built-in game states, and everybody who asks hears them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from cast_ray.algorithms.shifted import win_from_infinite
from cast_ray.games import get_game
from cast_ray.games.analysis import visible_board
from cast_ray.games.json_state import parse_state
from cast_ray.games.plugins import forget_plugins
from cast_ray.games.turn_quality import has_regret
from cast_ray.runs.report.episode import shown_boards
from cast_ray.runs.report.wording import words_of
from solver_actors.analyst.analyst import analyse
from solver_actors.oracle import Oracle
from solver_actors.players import is_privileged
from solver_actors.scoring import Scorer
from tests.support import installed

BLACKOUT = """
from dataclasses import replace


from cast_ray.games.game import ActionRisk
from cast_ray.games.wording import GameWording
from lights_out.game import LightsOut
from lights_out.solver import LIGHTS_OUT


class Blackout(LightsOut):
    name = "blackout"
    has_hidden_state = True
    json_keys = ("lights",)
    wording = GameWording(unit="press")

    def visible_rows(self, state):
        return ("?" * state.cols,) * state.rows

    def hidden_cells(self, state):
        return ((0, 1),)

    def rescue_value(self, board):
        return 7.0

    def risk_of(self, risks, action):
        return ActionRisk(loss=risks[0][0], excess=risks[0][0] - 0.125)

    def from_json(self, request):
        return self.decode("\\n".join(request["lights"]))


PLUGIN = replace(
    LIGHTS_OUT,
    game=Blackout(),
    solver=replace(LIGHTS_OUT.solver, cell_risks=lambda solver, state: ((0.25, 0.125),)),
    drawing=lambda text: f"<svg>{text}</svg>",
)
"""


@pytest.fixture(autouse=True)
def blackout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "blackout.py").write_text(BLACKOUT)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.write_dist_info(tmp_path, "blackout", {"blackout": "blackout:PLUGIN"})
    forget_plugins()
    yield
    forget_plugins()


def test_what_is_hidden_is_shown_when_the_episode_is_over() -> None:
    game = get_game("blackout")
    state = game.decode(".o")
    playing = visible_board(game, state, is_over=False)
    assert (playing.rows, playing.mines) == (("??",), None)
    assert visible_board(game, state, is_over=True).mines == ((0, 1),)


def test_costs_of_a_hidden_state_are_privileged_and_no_measure_of_regret() -> None:
    assert not has_regret("blackout")
    assert is_privileged("greedy", "blackout") and not is_privileged("solver", "blackout")
    (found,) = analyse(Oracle(max_bytes=2**20), "blackout", ["oo."], privileged=False)
    assert (found.cost, found.action_costs) == (None, None)
    assert found.cell_risks == ((0.25, 0.125),)


def test_risks_are_those_that_game_and_solver_state() -> None:
    scorer = Scorer(Oracle(max_bytes=2**20))
    risks = scorer.risks("blackout", ["oo.", "..."], ["press 0 0"], ["changed"])
    assert (risks.excess, risks.safe) == ((0.125,), (False,))


def test_credit_of_a_rescue_is_the_games() -> None:
    assert win_from_infinite("blackout", "oo.") == 7.0
    assert win_from_infinite("not_installed", "oo.") == 0.0


def test_reports_use_its_words_and_its_drawing() -> None:
    assert words_of("blackout").unit == "press"
    assert get_game("blackout").title == "Blackout"
    (board,) = shown_boards("blackout", [".o"])
    source = board["picture"].removeprefix("data:image/svg+xml;base64,")
    assert b64decode(source) == b"<svg>.o</svg>"
    assert (board["rows"], board["mines"]) == (("??",), ((0, 1),))


def test_its_own_json_is_read() -> None:
    found = parse_state({"game": "blackout", "lights": [".o", "o."]})
    assert found.state == get_game("blackout").decode(".o\no.")
