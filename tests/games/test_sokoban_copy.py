"""A built-in game has nothing that a plug-in cannot have: a copy of Sokoban is as good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cast_ray.config.puzzles import PuzzleConfig
from cast_ray.datasets.splits import make_boards
from cast_ray.envs.gym.registry import get_numeric_rules, make_text_env
from cast_ray.games import get_game
from cast_ray.games.collections.files import read_board_files
from cast_ray.games.generators import get_generator, is_winnable
from cast_ray.games.plugins import forget_plugins
from cast_ray.runs.report.episode import shown_boards
from cast_ray.runs.report.wording import words_of
from solver_actors.oracle import Oracle
from solver_actors.registry import has_deadlocks
from solver_actors.value_net.scale import has_loss_test
from tests.support import installed

NAMES = ("sokoban", "box_push")
XSB = "#######\n#@ $ .#\n#  $. #\n#######\n"


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    installed.install(installed.BOX_PUSH, folder)
    with pytest.MonkeyPatch.context() as patch:
        for place in (folder, installed.BOX_PUSH):
            patch.syspath_prepend(str(place))
        forget_plugins()
        yield folder
    forget_plugins()


def test_starts_costs_and_dead_states_are_the_same() -> None:
    tier = get_game("box_push").tiers["mini"]
    starts = [[get_generator(n)(tier, np.random.default_rng(s)) for s in range(8)] for n in NAMES]
    assert starts[0] == starts[1]
    for start in starts[0]:
        found = [Oracle(max_bytes=1 << 26).solver_of(name, start) for name in NAMES]
        assert found[0].action_costs(start) == found[1].action_costs(start)
        assert is_winnable("box_push", start, 12) == is_winnable("sokoban", start, 12)
    assert not is_winnable("box_push", starts[0][0], 0)
    assert has_deadlocks("box_push") and has_loss_test("box_push")


def test_puzzles_are_built_and_boards_of_other_formats_are_read(tmp_path: Path) -> None:
    boards = make_boards("box_push", "mini", PuzzleConfig(num_train=4, num_held_out=2))
    assert all(puzzle.cost_to_go for puzzle in (*boards.train, *boards.held_out))
    (tmp_path / "levels.xsb").write_text(XSB)
    read = [list(read_board_files(tmp_path / "levels.xsb", get_game(name))) for name in NAMES]
    assert read[0] == read[1] and len(read[0]) == 1


def test_drawing_words_and_numbers_are_the_same() -> None:
    game, generate = get_game("box_push"), get_generator("box_push")
    starts = [generate(game.tiers["mini"], np.random.default_rng(seed)) for seed in (0, 1)]
    first, second = shown_boards("box_push", list(map(game.encode, starts)))
    assert first["picture"].startswith("data:image/svg+xml")
    assert first["picture"] != second["picture"]
    assert words_of("box_push") == words_of("sokoban")
    assert get_numeric_rules("box_push") == get_numeric_rules("sokoban")
    texts = [make_text_env(name, tier="mini").reset(seed=3)[0] for name in NAMES]
    assert texts[0] == texts[1]


def test_evaluation_of_a_players_levels_is_the_same(site: Path, tmp_path: Path) -> None:
    (tmp_path / "levels.xsb").write_text(XSB)
    results = []
    for name in NAMES:
        out = tmp_path / name
        done = installed.cast_ray_with(
            site, "eval", "--model", "solver", "--games", f"{name}:mini", "--attempts", "1",
            "--puzzles", str(tmp_path / "levels.xsb"), "--out", str(out),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads((out / "results.json").read_text())["results"]
        results.append(found[f"{name}:mini"])
    assert results[0] == results[1]
    assert results[0]["success"] == 1
