"""Runs below a root, from real games on disk: what is there, what is refused, and no way out."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cast_ray.errors import (
    CastRayError,
    ColumnUnknown,
    RunDirectoryError,
    RunUnknown,
    StepUnknown,
    TrajectoryError,
    TrajectoryUnknown,
)
from cast_ray.games import get_game
from cast_ray.games.turn_quality import max_regret, turn_regrets
from cast_ray.parquet import read_table, write_table
from cast_ray.rollout.trajectory import BATCH_SCHEMA, costs_of
from cast_ray.runs.run_directory import RunDirectory
from serve.service.view import DEMO, view_runs
from serve.site.runs.browser import RunBrowser
from serve.site.runs.root import ReadCache
from serve.site.runs.steps import StepFilter
from solver_actors.oracle import Oracle
from tests.support.browsed_run import DETOUR, PLAYED, ROOM, trajectories, write_run
from tests.support.made_up_run import new_run, play, scored, scripted, write_evaluation, write_step
from tests.support.odd_names import ODD_NAME
from tests.support.ports import free_port

TRAFFIC = "BB...C" + "...D.C" + "AA.D.C" + "...D.." + "E....." + "E....."
MINES = "001+.\n112..\n.+...\n.+...\n+...."


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(max_bytes=2**24)


@pytest.fixture
def run(tmp_path: Path, oracle: Oracle) -> RunDirectory:
    return write_run(tmp_path / ODD_NAME / "one", oracle)


@pytest.fixture
def browser(run: RunDirectory) -> RunBrowser:
    return RunBrowser(run.path.parent)


def as_json(value: Any) -> Any:
    """Return what a client gets; trips over what JSON has no word for."""
    return json.loads(json.dumps(asdict(value), allow_nan=False))


# Which runs there are.


def test_runs_are_found_below_the_root_and_named_by_their_path(tmp_path: Path) -> None:
    for name in ("one", "sweep/trial-1", "sweep/trial-2", "a/b/c/four", "a/b/c/d/five", ".hidden"):
        new_run(tmp_path / name)
    (tmp_path / "empty").mkdir()
    new_run(tmp_path / "one/inside")
    names = {run.name for run in RunBrowser(tmp_path).runs()}
    assert names == {"one", "sweep/trial-1", "sweep/trial-2", "a/b/c/four"}


def test_a_root_that_is_a_run_is_named_by_a_dot(run: RunDirectory) -> None:
    browser = RunBrowser(run.path)
    assert [found.name for found in browser.runs()] == ["."]
    assert browser.run(".").trajectory_steps == (1,)
    assert browser.step(".", 1, StepFilter()).total == 4


def test_a_folder_that_is_named_and_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="nowhere is not a directory"):
        view_runs(tmp_path / "nowhere", host="127.0.0.1", port=free_port(), say=print)


def test_the_demo_has_a_readable_run_of_each_game_and_names_no_machine() -> None:
    browser = RunBrowser(DEMO)
    runs = {run.name: run for run in browser.runs()}
    assert set(runs) == {"sokoban", "minesweeper", "rush_hour"}
    for name, run in runs.items():
        assert run.finished and run.problem is None
        found = browser.run(name)
        assert found.config["run_dir"] == name
        assert found.trajectory_steps == (1, 6, 12)
        page = browser.step(name, 12, StepFilter())
        shown = page.trajectories[0]
        assert browser.trajectory(name, 12, group=shown["group"], episode=shown["episode"]).states
    assert sum(file.stat().st_size for file in DEMO.rglob("*")) < 500_000


@pytest.mark.parametrize("name", ["", "runs"])
def test_a_root_without_runs_or_not_there_yet_is_an_empty_list(tmp_path: Path, name: str) -> None:
    assert RunBrowser(tmp_path / name).runs() == ()


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../outside", "one/../../outside", "one/../one", "./one", "one/", "/one",
        "one//", "//one", "one/.", "one\0", "\0", "two", "..\\outside", "%2e%2e/outside", "~",
        "x" * 300, "x/" * 3000, "one/config.yaml", "link/outside", "link", "linked_config", "loop",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_root(run: RunDirectory, name: str) -> None:
    root = run.path.parent
    outside = new_run(root.parent / "outside")
    (root / "link").symlink_to(outside.path)
    (root / "loop").symlink_to(root / "loop")
    (root / "linked_config").mkdir()
    (root / "linked_config/config.yaml").symlink_to(outside.config)
    browser = RunBrowser(root)
    for ask in _every_question(browser):
        with pytest.raises(RunUnknown) as caught:
            ask(name)
        assert (caught.value.code, caught.value.field) == ("run_unknown", "run")
    assert [found.name for found in browser.runs()] == ["one"]


def _every_question(browser: RunBrowser) -> list[Callable[[str], object]]:
    return [
        browser.run,
        browser.metrics,
        lambda name: browser.step(name, 1, StepFilter()),
        lambda name: browser.trajectory(name, 1, group=0, episode=0),
    ]


def test_an_absolute_name_of_a_run_in_the_root_is_refused(
    run: RunDirectory, browser: RunBrowser
) -> None:
    with pytest.raises(RunUnknown):
        browser.run(str(run.path))


def test_a_sibling_whose_name_begins_alike_is_outside(tmp_path: Path) -> None:
    new_run(tmp_path / "root_two")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "root_two")
    with pytest.raises(RunUnknown):
        RunBrowser(tmp_path / "root").run("link")


def test_a_link_that_stays_below_the_root_is_followed(run: RunDirectory) -> None:
    (run.path.parent / "alias").symlink_to(run.path)
    browser = RunBrowser(run.path.parent)
    assert browser.run("alias").trajectory_steps == (1,)
    assert [found.name for found in browser.runs()] == ["one"]


def test_a_file_that_is_a_link_out_of_the_root_is_not_read(
    run: RunDirectory, browser: RunBrowser
) -> None:
    secret = run.path.parent.parent / "secret"
    for path in (run.metrics, run.trajectory_file(1)):
        path.replace(secret)
        path.symlink_to(secret)
        with pytest.raises(RunDirectoryError, match="link"):
            if path == run.metrics:
                browser.metrics("one")
            else:
                browser.step("one", 1, StepFilter())
    with pytest.raises(RunDirectoryError, match="link"):
        browser.trajectory("one", 1, group=0, episode=0)


# The list of runs.


def test_runs_come_newest_first(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "middle", "old"]):
        path = new_run(tmp_path / name).config
        os.utime(path, (1e9 - age, 1e9 - age))
    found = RunBrowser(tmp_path).runs()
    assert [run.name for run in found] == ["new", "middle", "old"]
    assert found[0].started == "2001-09-09T01:46:40+00:00"


def test_a_run_under_way_is_told_by_its_files(run: RunDirectory, browser: RunBrowser) -> None:
    [found] = browser.runs()
    assert as_json(found) == {
        "name": "one",
        "game": "sokoban",
        "tier": "mini",
        "algorithm": "cast",
        "model": None,
        "steps": 2,
        "planned_steps": 2,
        "started": found.started,
        "before": None,
        "after": None,
        "finished": False,
        "problem": None,
    }


def test_success_comes_from_the_games_until_there_is_a_summary(
    run: RunDirectory, browser: RunBrowser, oracle: Oracle
) -> None:
    write_evaluation(run, "before", scored(trajectories(oracle, step=0), oracle))
    before = browser.runs()[0].before
    assert before is not None
    assert (before.success, before.n) == (0.5, 4)
    told = {"success": 0.3, "low": 0.1, "high": 0.4, "n": 9}
    run.write_summary({"steps": 2, "before": told, "after": told | {"success": 0.8}})
    found = browser.runs()[0]
    assert as_json(found)["before"] == told
    assert as_json(found)["after"]["success"] == 0.8
    assert found.finished


def test_a_run_with_more_steps_to_go_is_not_finished(run: RunDirectory) -> None:
    told = {"success": 0.3, "low": 0.1, "high": 0.4, "n": 9}
    run.write_summary({"steps": 1, "before": told, "after": told})
    assert not RunBrowser(run.path.parent).runs()[0].finished


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("config.yaml", "steps: [", "not valid YAML"),
        ("config.yaml", "no_such_key: 1", "no_such_key"),
        ("summary.json", "{", "summary.json"),
        ("summary.json", "[1]", "summary.json"),
        ("summary.json", '{"before": {"success": 1}}', "summary.json"),
        ("metrics.parquet", "not Parquet", "metrics.parquet"),
        ("evaluations/after.parquet", "not Parquet", "after.parquet"),
    ],
)
def test_a_broken_run_is_listed_with_what_is_wrong(
    run: RunDirectory, oracle: Oracle, name: str, text: str, match: str
) -> None:
    write_run(run.path.parent / "two", oracle)
    (run.path / name).write_text(text)
    found = {line.name: line for line in RunBrowser(run.path.parent).runs()}
    assert match in str(found["one"].problem)
    assert found["two"].problem is None
    with pytest.raises(CastRayError, match=match):
        RunBrowser(run.path.parent).run("one")


@pytest.mark.parametrize("step", [None, "one", 0.5])
def test_a_run_whose_steps_have_no_numbers_is_listed_with_what_is_wrong(
    run: RunDirectory, step: object
) -> None:
    table = read_table(run.metrics)
    number = table.schema.get_field_index("step")
    kind = pa.int32() if step is None else None
    odd = pa.array([step] * table.num_rows, kind)
    write_table(run.metrics, table.set_column(number, "step", odd))
    assert "step" in str(RunBrowser(run.path.parent).runs()[0].problem)


# One run.


def test_a_run_tells_its_configuration_and_what_it_has(browser: RunBrowser) -> None:
    details = browser.run("one")
    told = as_json(details)
    assert told["config"]["advantage"]["alpha"] == 0.5
    assert told["config"]["steps"] == 2
    assert told["trajectory_steps"] == [1]
    assert "success" in told["columns"]
    assert "staleness_tokens" not in told["columns"]
    assert "is_replayed" not in told["columns"]


def test_metrics_are_columns_with_null_where_nothing_was_measured(browser: RunBrowser) -> None:
    names = ["success", "engine_queue_max", "validation_success"]
    assert browser.metrics("one", names) == {
        "step": [1, 2],
        "success": [0.5, 0.75],
        "engine_queue_max": [None, 0.0],
        "validation_success": [0.25, None],
    }


def test_all_numeric_metrics_come_without_a_choice(browser: RunBrowser) -> None:
    assert set(browser.metrics("one")) == set(browser.run("one").columns)


def test_an_unknown_metric_is_named(browser: RunBrowser) -> None:
    with pytest.raises(ColumnUnknown, match="'staleness_tokens'") as caught:
        browser.metrics("one", ["success", "staleness_tokens"])
    assert (caught.value.code, caught.value.field) == ("field_invalid", "columns")


def test_a_run_before_its_first_step_has_empty_columns(tmp_path: Path) -> None:
    new_run(tmp_path / "fresh")
    assert RunBrowser(tmp_path).metrics("fresh", ["success"]) == {"step": [], "success": []}
    assert RunBrowser(tmp_path).run("fresh").summary.steps == 0


# A step.


def test_a_step_lists_groups_and_trajectories(browser: RunBrowser) -> None:
    page = browser.step("one", 1, StepFilter())
    told = as_json(page)
    assert [(row["group"], row["solved"], row["episodes"]) for row in told["groups"]] == [
        (0, 1, 2),
        (1, 1, 2),
    ]
    assert [_brief(row) for row in page.trajectories] == [
        (0, 0, "solved", 2, 0, 0, 0, 2, 0),
        (0, 1, "turn_budget", 6, 0, 5, 2, 2, 3),
        (1, 0, "solved", 6, 1, 1, 2, 2, 0),
        (1, 1, "deadlock", 3, 0, 0, 2, 2, "dead"),
    ]
    assert page.total == 4


def _brief(row: dict[str, Any]) -> tuple[object, ...]:
    names = ("group", "episode", "end_reason", "turns", "invalid", "ineffective", "max_regret")
    return tuple(row[name] for name in (*names, "cost_start", "cost_end"))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (StepFilter(outcome="solved"), [(0, 0), (1, 0)]),
        (StepFilter(outcome="deadlock"), [(1, 1)]),
        (StepFilter(outcome="lost"), []),
        (StepFilter(invalid=True), [(1, 0)]),
        (StepFilter(min_regret=1), [(0, 1), (1, 0), (1, 1)]),
        (StepFilter(min_regret=3), []),
        (StepFilter(min_regret=0), [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (StepFilter(outcome="solved", min_regret=1), [(1, 0)]),
        (StepFilter(sort="turns"), [(0, 1), (1, 0), (1, 1), (0, 0)]),
        (StepFilter(sort="regret"), [(0, 1), (1, 0), (1, 1), (0, 0)]),
        (StepFilter(sort="advantage"), [(0, 0), (1, 0), (0, 1), (1, 1)]),
        (StepFilter(limit=1), [(0, 0)]),
        (StepFilter(limit=2, offset=3), [(1, 1)]),
        (StepFilter(offset=9), []),
        (StepFilter(limit=0), []),
    ],
)
def test_a_filter_leaves_what_it_says(
    browser: RunBrowser, wanted: StepFilter, expected: list[tuple[int, int]]
) -> None:
    page = browser.step("one", 1, wanted)
    assert [(row["group"], row["episode"]) for row in page.trajectories] == expected
    unpaged = browser.step("one", 1, replace(wanted, limit=100, offset=0))
    assert page.total == len(unpaged.trajectories)
    assert len(page.groups) == 2


@pytest.mark.parametrize("step", [0, 2, -1, 10**12])
def test_a_step_that_is_not_there_is_said(browser: RunBrowser, step: int) -> None:
    with pytest.raises(StepUnknown, match=f"one.*{step}") as caught:
        browser.step("one", step, StepFilter())
    assert (caught.value.code, caught.value.field) == ("step_unknown", "step")
    with pytest.raises(StepUnknown):
        browser.trajectory("one", step, group=0, episode=0)


def _random_player(game: str, seed: int) -> Callable[[Any], str]:
    rng = random.Random(seed)
    return lambda state: f"```{rng.choice(get_game(game).actions(state))}```"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("game", "board"), [("sokoban", ROOM), ("rush_hour", TRAFFIC)])
def test_regret_from_stored_costs_is_the_solvers(
    oracle: Oracle, game: str, board: str, seed: int
) -> None:
    played = play(board, _random_player(game, seed), turn_budget=12, oracle=oracle, game_name=game)
    [row] = scored([played], oracle).to_pylist()
    rules, solver = get_game(game), oracle.solver(game, board)
    expected: list[int | None] = []
    for state, action in zip(played.states, played.actions, strict=False):
        costs = solver.action_costs(rules.decode(state))
        is_scored = action in costs and math.isfinite(costs[action])
        expected.append(int(costs[action] - min(costs.values())) if is_scored else None)
    found = turn_regrets(costs_of(row).tolist(), row["effects"], game=game)
    assert found == expected


@pytest.mark.parametrize(
    ("game", "board", "sizes"),
    [("sokoban", ROOM, {0, 2, None}), ("rush_hour", TRAFFIC, {0, 1, 2, None})],
)
def test_random_play_has_regrets_of_many_sizes(
    oracle: Oracle, game: str, board: str, sizes: set[int | None]
) -> None:
    found: set[int | None] = set()
    for seed in range(40):
        player = _random_player(game, seed)
        played = play(board, player, turn_budget=12, oracle=oracle, game_name=game)
        [row] = scored([played], oracle).to_pylist()
        found |= set(turn_regrets(costs_of(row).tolist(), row["effects"], game=game))
    assert found >= sizes


def test_minesweeper_has_no_regret(oracle: Oracle) -> None:
    player = _random_player("minesweeper", 1)
    played = play(MINES, player, turn_budget=5, oracle=oracle, game_name="minesweeper")
    [row] = scored([played], oracle).to_pylist()
    costs = costs_of(row).tolist()
    assert max_regret(costs, row["effects"], game="minesweeper") is None


# A trajectory.


def test_a_trajectory_comes_back_turn_by_turn(run: RunDirectory, browser: RunBrowser) -> None:
    stored = run.read_trajectories(1).to_pylist()[2]
    found = browser.trajectory("one", 1, group=1, episode=0, attempt=0)
    assert list(found.states) == stored["states"]
    told = found.episode.model_dump()
    for name in ("game", "tier", "seed", "end_reason"):
        assert told[name] == stored[name]
    turns = told["turns"]
    assert [turn["answer"] for turn in turns] == DETOUR
    assert [turn["action"] for turn in turns] == stored["actions"]
    assert [turn["effect"] for turn in turns] == stored["effects"]
    assert [turn["cost_before"] for turn in turns] == [2, 3, 3, 3, 2, 1]
    assert [turn["cost_after"] for turn in turns] == [3, 3, 3, 2, 1, 0]
    assert [turn["regret"] for turn in turns] == [2, None, None, 0, 0, 0]
    assert [turn["num_tokens"] for turn in turns] == [2] * 6
    for name in ("shifted", "solver", "step", "turn"):
        advantages = [turn["advantages"][name] for turn in turns]
        np.testing.assert_array_equal(advantages, stored[f"{name}_advantages"])
    assert told["board"]["rows"] == ROOM.split("\n")
    assert turns[0]["board_after"] == turns[1]["board"]
    assert told["board_now"] == turns[-1]["board_after"]


def test_a_minefield_that_is_over_shows_its_mines(run: RunDirectory, oracle: Oracle) -> None:
    answers = ["```flag 4 0```", "```reveal 0 3```"]
    played = play(
        MINES, scripted(answers), turn_budget=5, oracle=oracle, game_name="minesweeper", step=2
    )
    write_step(run, 2, scored([played], oracle))
    found = RunBrowser(run.path.parent).trajectory("one", 2, group=0, episode=0).episode
    assert found.board.rows == ["001..", "112..", ".....", ".....", "....."]
    assert found.board.mines == [(0, 3), (2, 1), (3, 1), (4, 0)]
    assert found.board_now.rows == ["001*.", "112..", ".....", ".....", "F...."]
    assert found.turns[0].cost_before == "dead"
    assert [turn.regret for turn in found.turns] == [None, None]
    assert found.end_reason == "lost"


def test_the_last_attempt_comes_unless_one_is_named(run: RunDirectory, oracle: Oracle) -> None:
    first, _ = trajectories(oracle, step=2)[:2]
    attempts = [replace(first, attempt=number, seed=number) for number in (0, 2, 1)]
    write_step(run, 2, scored(attempts, oracle))
    browser = RunBrowser(run.path.parent)
    assert browser.trajectory("one", 2, group=0, episode=0).episode.seed == 2
    assert browser.trajectory("one", 2, group=0, episode=0, attempt=1).episode.seed == 1


@pytest.mark.parametrize(("group", "episode", "attempt"), [(2, 0, None), (0, 2, 0), (0, 0, 1)])
def test_a_trajectory_that_is_not_there_is_said(
    browser: RunBrowser, group: int, episode: int, attempt: int | None
) -> None:
    with pytest.raises(TrajectoryUnknown, match=f"group {group}, episode {episode}") as caught:
        browser.trajectory("one", 1, group=group, episode=episode, attempt=attempt)
    assert (caught.value.code, caught.value.field) == ("trajectory_unknown", "episode")


# What is read of a file.


def test_tokens_are_not_read(run: RunDirectory, browser: RunBrowser) -> None:
    heavy = ["token_ids", "loss_mask", "rollout_logprobs", "weight_versions", "token_advantages"]
    table = run.read_trajectories(1).drop_columns(heavy)
    write_table(run.trajectory_file(1), table)
    assert browser.step("one", 1, StepFilter()).total == 4
    assert len(browser.trajectory("one", 1, group=1, episode=0).episode.turns) == 6


def test_of_other_row_groups_only_the_keys_are_read(run: RunDirectory, browser: RunBrowser) -> None:
    path = run.trajectory_file(1)
    pq.write_table(run.read_trajectories(1), path, row_group_size=1, compression="zstd")
    data = bytearray(path.read_bytes())
    part = pq.ParquetFile(path).metadata.row_group(0)
    answers = next(
        column
        for column in map(part.column, range(part.num_columns))
        if column.path_in_schema.startswith("answers")
    )
    start = answers.dictionary_page_offset or answers.data_page_offset
    data[start : start + answers.total_compressed_size] = bytes(answers.total_compressed_size)
    path.write_bytes(data)
    for group, episode in ((0, 1), (1, 0), (1, 1)):
        found = browser.trajectory("one", 1, group=group, episode=episode)
        assert [turn.answer for turn in found.episode.turns] == PLAYED[group][episode]
    with pytest.raises(RunDirectoryError, match=r"step-00001\.parquet"):
        browser.trajectory("one", 1, group=0, episode=0)


@pytest.mark.parametrize("cut", [0, 10, 0.5, 0.99])
def test_a_broken_file_is_a_sentence(run: RunDirectory, browser: RunBrowser, cut: float) -> None:
    path = run.trajectory_file(1)
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data)) if cut < 1 else int(cut)])
    for ask in _every_question(browser)[2:]:
        with pytest.raises(RunDirectoryError, match=r"step-00001\.parquet"):
            ask("one")


def test_a_file_of_another_version_is_a_sentence(run: RunDirectory, browser: RunBrowser) -> None:
    table = run.read_trajectories(1)
    write_table(run.trajectory_file(1), table.drop_columns(["effects"]))
    for ask in _every_question(browser)[2:]:
        with pytest.raises(TrajectoryError, match="effects"):
            ask("one")


@pytest.mark.parametrize("name", ["answers", "turn_ends", "states", "cost_status"])
def test_a_row_that_contradicts_itself_is_a_sentence(
    run: RunDirectory, browser: RunBrowser, name: str
) -> None:
    rows = run.read_trajectories(1).to_pylist()
    rows[0][name] = rows[0][name][:-1]
    write_table(run.trajectory_file(1), pa.Table.from_pylist(rows, schema=BATCH_SCHEMA))
    with pytest.raises(TrajectoryError, match=f"{name} of group 0, episode 0"):
        browser.trajectory("one", 1, group=0, episode=0)


@pytest.mark.parametrize(("name", "value"), [("states", "?"), ("game", "chess")])
def test_a_board_that_cannot_be_shown_is_a_sentence(
    run: RunDirectory, browser: RunBrowser, name: str, value: str
) -> None:
    rows = run.read_trajectories(1).to_pylist()
    rows[0][name] = value if name == "game" else [value] * len(rows[0][name])
    write_table(run.trajectory_file(1), pa.Table.from_pylist(rows, schema=BATCH_SCHEMA))
    with pytest.raises(TrajectoryError, match="group 0, episode 0"):
        browser.trajectory("one", 1, group=0, episode=0)


def test_a_step_that_is_written_anew_is_read_anew(
    run: RunDirectory, browser: RunBrowser, oracle: Oracle
) -> None:
    assert browser.step("one", 1, StepFilter()).total == 4
    write_step(run, 1, scored(trajectories(oracle)[:3], oracle))
    assert browser.step("one", 1, StepFilter()).total == 3


def test_files_are_read_once_and_the_least_recent_is_dropped(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    read: list[str] = []

    def read_text(path: Path) -> str:
        read.append(path.name)
        return path.read_text()

    cache = ReadCache(read_text, max_entries=2)
    a, b, c = paths
    assert [cache.get(path) for path in (a, b, a, a, b)] == ["a", "b", "a", "a", "b"]
    assert read == ["a", "b"]
    cache.get(a)
    cache.get(c)  # drops b
    cache.get(a)
    assert read == ["a", "b", "c"]
    cache.get(b)
    assert read == ["a", "b", "c", "b"]
