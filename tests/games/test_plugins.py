"""Games of other packages: found by entry point, by nothing else, and refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cast_ray.config.train import PuzzleConfig
from cast_ray.datasets.splits import make_boards
from cast_ray.errors import CastRayError, ConfigError
from cast_ray.evaluation.tasks import GameTier
from cast_ray.games import GAMES, game_names, get_game, get_plugin
from cast_ray.games.generators import GENERATORS, get_generator
from cast_ray.games.plugins import forget_plugins
from lights_out.solver import LIGHTS_OUT
from solver_actors.oracle import Oracle
from solver_actors.players import Player
from solver_actors.registry import get_solver_entry, has_solver
from solver_actors.scoring import Scorer
from solver_actors.sokoban.entry import SOLVER
from solver_actors.solve_file import solve_file
from solver_actors.solver import SolverEntry
from tests.support import installed
from tests.support.refusals import refused

Install = Callable[..., None]
VALUE = "lights_out.solver:LIGHTS_OUT"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a package: ``install(name, game=value, …)``, modules in tmp_path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_plugins()

    def write(package: str, **games: str) -> None:
        installed.write_dist_info(tmp_path, package, games)
        forget_plugins()

    yield write
    forget_plugins()


@pytest.fixture
def lights_out(install: Install, tmp_path: Path) -> None:
    installed.install(installed.LIGHTS_OUT, tmp_path)


def in_a_new_process(code: str, *paths: Path) -> str:
    """Return what Python prints when it runs some code with folders on its path."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=installed.environment_with(root, *paths),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.usefixtures("lights_out")
def test_installed_game_is_known_by_name_with_its_generator_and_its_solver() -> None:
    assert game_names() == (*GAMES, "lights_out")
    assert get_game("lights_out") is LIGHTS_OUT.game
    assert get_generator("lights_out") is LIGHTS_OUT.generate
    assert get_solver_entry("lights_out") is LIGHTS_OUT.solver
    assert get_plugin("lights_out") is LIGHTS_OUT


@pytest.mark.usefixtures("lights_out")
def test_built_in_games_stay_what_they_are() -> None:
    assert get_game("sokoban") is GAMES["sokoban"]
    assert get_generator("sokoban") is GENERATORS["sokoban"]
    assert get_solver_entry("sokoban") is SOLVER


def test_every_built_in_game_has_a_generator_and_a_solver() -> None:
    assert GAMES.keys() == GENERATORS.keys()
    assert all(isinstance(get_solver_entry(game), SolverEntry) for game in GAMES)


@pytest.mark.usefixtures("install")
def test_a_game_that_is_importable_but_not_installed_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"'lights_out'.*installed"):
        get_game("lights_out")


@pytest.mark.parametrize("name", ["this", "lights_out.solver", VALUE, "", "../lights_out", "\0"])
@pytest.mark.parametrize("look_up", [get_game, get_generator, get_solver_entry, get_plugin])
@pytest.mark.usefixtures("lights_out")
def test_name_that_no_entry_point_has_is_refused(
    look_up: Callable[[str], object], name: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"game .*sokoban.*lights_out|LIGHTS_OUT has no exact solver"
    ):
        look_up(name)
    assert "this" not in sys.modules


def test_a_new_process_finds_the_game_and_imports_it_only_when_asked(tmp_path: Path) -> None:
    installed.install(installed.LIGHTS_OUT, tmp_path)
    code = (
        "import sys; from cast_ray.games import game_names, get_game; "
        "names = game_names(); get_game('sokoban'); early = 'lights_out' in sys.modules; "
        "print(names[-1], early, get_game('lights_out').name, 'ray' in sys.modules)"
    )
    found = in_a_new_process(code, tmp_path, installed.LIGHTS_OUT)
    assert found == "lights_out False lights_out False"


def test_game_with_the_name_of_a_built_in_one_is_refused_everywhere(install: Install) -> None:
    install("my-games", sokoban=VALUE)
    for look_up in (game_names, lambda: get_game("sokoban"), lambda: get_plugin("chess")):
        with refused(ConfigError, f"sokoban = {VALUE}", "my-games", "rename", "uninstall"):
            look_up()


def test_two_packages_with_a_game_of_one_name_are_refused(install: Install) -> None:
    install("my-games", lights_out=VALUE)
    install("your-games", lights_out="other:GAME")
    with refused(
        ConfigError, f"lights_out = {VALUE}", "my-games", "lights_out = other:GAME", "your-games"
    ):
        game_names()


def test_game_of_another_name_than_its_entry_point_is_refused(install: Install) -> None:
    install("my-games", lights=VALUE)
    with pytest.raises(ConfigError, match=r"lights = .*'lights_out'"):
        get_game("lights")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, r"ModuleNotFoundError.*'broken_game'"),
        ("", r"AttributeError.*'GAME'"),
        ("GAME = (", r"SyntaxError.*line 1"),
        ("x = 1\nGAME = y", r"NameError.*'y'.*broken_game\.py, line 2"),
        ("raise RuntimeError('no\\nluck')", r"RuntimeError.*broken_game\.py, line 1"),
        ("GAME = {}", r"dict.*cast_ray\.games\.plugins\.GamePlugin"),
    ],
    ids=["no module", "no attribute", "syntax", "name", "raises", "other type"],
)
def test_broken_game_is_one_sentence_and_leaves_the_others_alone(
    install: Install, tmp_path: Path, source: str | None, message: str
) -> None:
    if source is not None:
        (tmp_path / "broken_game.py").write_text(source)
    install("my-games", broken="broken_game:GAME")
    sys.modules.pop("broken_game", None)
    for look_up in (get_game, get_generator, get_solver_entry):
        with pytest.raises(ConfigError, match=message) as caught:
            look_up("broken")
        assert "broken = broken_game:GAME" in str(caught.value)
        assert "my-games" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert "broken" in game_names()
    assert get_game("sokoban") is GAMES["sokoban"]


def test_solver_of_another_type_is_refused(install: Install, tmp_path: Path) -> None:
    (tmp_path / "unsolved_game.py").write_text(
        "from dataclasses import replace\nfrom lights_out.solver import LIGHTS_OUT\n"
        "GAME = replace(LIGHTS_OUT, solver='mine')\n"
    )
    install("my-games", lights_out="unsolved_game:GAME")
    with pytest.raises(ConfigError, match=r"solver.*lights_out.*str"):
        get_solver_entry("lights_out")


def test_game_that_nobody_solves_has_boards_of_unknown_cost(
    install: Install, tmp_path: Path
) -> None:
    (tmp_path / "nobody_solves.py").write_text(
        "from dataclasses import replace\nfrom lights_out.solver import LIGHTS_OUT\n"
        "GAME = replace(LIGHTS_OUT, solver=None)\n"
    )
    install("my-games", lights_out="nobody_solves:GAME")
    assert not has_solver("lights_out")
    with pytest.raises(ConfigError, match=r"oracle=value_net"):
        get_solver_entry("lights_out")
    sizes = PuzzleConfig(num_train=20, num_validation=2, num_held_out=3)
    boards = make_boards("lights_out", "mini", sizes)
    found = [*boards.train, *boards.validation, *boards.held_out]
    assert len({puzzle.puzzle_id for puzzle in found}) == 25
    assert {(puzzle.cost_to_go, puzzle.cost_status) for puzzle in found} == {(None, "unknown")}
    assert np.isnan(Scorer(Oracle(max_bytes=0)).costs("lights_out", [found[0].board])).all()
    with pytest.raises(ConfigError, match=r"lights_out.*solver.*greedy"):
        Player("greedy", Oracle(max_bytes=0)).check_plays("lights_out")


@pytest.mark.usefixtures("lights_out")
def test_boards_and_costs_of_an_added_game_are_made_like_any_other() -> None:
    sizes = PuzzleConfig(num_train=20, num_validation=2, num_held_out=3)
    boards = make_boards("lights_out", "mini", sizes)
    assert (len(boards.train), len(boards.validation), len(boards.held_out)) == (20, 2, 3)
    for puzzle in boards.train:
        costs = Oracle(max_bytes=2**20).cost_to_go("lights_out", [puzzle.board])
        assert costs.tolist() == [puzzle.cost_to_go]


@pytest.mark.usefixtures("lights_out")
def test_solve_answers_a_line_of_an_added_game(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"game": "lights_out", "board": [".o.", "ooo", ".o."]},
        {"game": "lights_out", "board": ["oo..", "....", "....", "...."]},
        {"game": "this", "board": ["o"]},
    ]
    source.write_text("\n".join(map(json.dumps, lines)))
    assert solve_file(source, target, with_q=False) == 1
    first, second, third = map(json.loads, target.read_text().splitlines())
    assert first == {"cost": 1, "best": "press 1 1"}
    assert second == {"cost": "dead", "best": None}
    assert f"use one of {', '.join(game_names())}" in third["error"]
    assert "this" not in sys.modules


def test_evaluation_without_a_tier_takes_id_or_the_first_there_is(
    install: Install, tmp_path: Path
) -> None:
    (tmp_path / "one_tier.py").write_text(
        "from dataclasses import replace\nfrom lights_out.solver import LIGHTS_OUT\n"
        "class OneTier(type(LIGHTS_OUT.game)):\n"
        "    name = 'one_tier'\n"
        "    tiers = {'mini': LIGHTS_OUT.game.tiers['mini']}\n"
        "GAME = replace(LIGHTS_OUT, game=OneTier())\n"
    )
    install("my-games", one_tier="one_tier:GAME", lights_out=VALUE)
    assert str(GameTier.parse("one_tier")) == "one_tier:mini"
    assert str(GameTier.parse("lights_out")) == "lights_out:id"
    with pytest.raises(CastRayError, match=r"one_tier.*mini.*'id'"):
        GameTier.parse("one_tier:id")


@pytest.mark.usefixtures("lights_out")
def test_generated_boards_follow_from_the_seed_in_every_process(tmp_path: Path) -> None:
    code = (
        "import numpy as np; from cast_ray.games import get_game; "
        "from cast_ray.games.generators import get_generator; game = get_game('lights_out'); "
        "make = get_generator('lights_out'); "
        "print(game.encode(make(game.tiers['mini'], np.random.default_rng(5))))"
    )
    tier = LIGHTS_OUT.game.tiers["mini"]
    here = LIGHTS_OUT.game.encode(LIGHTS_OUT.generate(tier, np.random.default_rng(5)))
    assert in_a_new_process(code, tmp_path, installed.LIGHTS_OUT) == here
