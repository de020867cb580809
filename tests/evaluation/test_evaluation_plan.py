"""Who is evaluated on what, and the directory that only the same evaluation may go on with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.evaluation.directory import EvaluationDirectory
from cast_ray.evaluation.models import Kind, parse_model, parse_models, pieces_of
from cast_ray.evaluation.tasks import GameTier, parse_games
from cast_ray.rollout.chat_template import read_chat_pieces, store_chat_pieces
from cast_ray.runs.run_directory import RunDirectory
from tests.support.scripted import build_test_policy

DESCRIPTION = {"models": [{"label": "a", "seed": 0}], "attempts": 4}


def test_closed_models_have_the_papers_sampling_and_budgets() -> None:
    [config] = parse_model("openai:big", []).configs
    assert (config.evaluation.temperature, config.evaluation.top_p) == (1.0, 1.0)
    assert (config.rollout.prompt_tokens, config.rollout.response_tokens) == (2048, 16384)
    [changed] = parse_model("openai:big", ["evaluation.temperature=0.3"]).configs
    assert changed.evaluation.temperature == 0.3


def test_a_model_directory_has_the_papers_sampling_and_what_it_can_hold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build_test_policy(tmp_path / "tiny")  # made for 4,096 positions
    model = parse_model(str(tmp_path / "tiny"), [])
    assert (model.kind, model.label) == (Kind.ENGINE, "tiny")
    [config] = model.configs
    assert (config.evaluation.temperature, config.evaluation.top_p) == (0.6, 0.95)
    assert config.rollout.prompt_tokens + config.rollout.response_tokens == 4096
    assert "less than the paper's 18432" in caplog.text


def test_tokens_may_be_counted_for_each_turn(tmp_path: Path) -> None:
    build_test_policy(tmp_path / "tiny")
    overrides = [
        "evaluation.tokens_per_turn=true",
        "rollout.response_tokens=100",
        "rollout.prompt_tokens=1000",
    ]
    [config] = parse_model(str(tmp_path / "tiny"), overrides).configs
    assert (config.rollout.max_answer_tokens, config.rollout.response_tokens) == (100, 3096)
    [config] = parse_model("openai:big", overrides).configs
    assert (config.rollout.max_answer_tokens, config.rollout.response_tokens) == (100, 44000)


def test_a_model_without_a_chat_template_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    build_test_policy(tmp_path / "tiny")
    (tmp_path / "tiny/chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="chat template"):
        parse_model(str(tmp_path / "tiny"), [])


def test_the_template_is_chosen_for_a_model_and_stored_with_a_run(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    build_test_policy(model)
    own = read_chat_pieces(model)
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("message.content", "message.content | trim"))
    chosen = ["policy.chat_template=append_only"]
    with pytest.raises(ModelError, match=r"tiny.*policy\.chat_template=append_only"):
        parse_model(str(model), [])
    [config] = parse_model(str(model), chosen).configs
    assert pieces_of(model, config) == own
    run = RunDirectory.create(tmp_path / "run", load_config(None, chosen))
    stored = replace(own, before_system="Trained on another day. ")
    store_chat_pieces(stored, Path(shutil.copytree(model, run.model)))
    [config] = parse_model(str(run.path), []).configs
    assert pieces_of(run.path, config) == stored
    assert config.engine.max_model_len == 4096  # of the model, far below both budgets


def test_models_are_told_apart_by_label(tmp_path: Path) -> None:
    for name in ("a/one", "b/one"):
        build_test_policy(tmp_path / name)
    texts = [str(tmp_path / "a/one"), str(tmp_path / "b/one")]
    with pytest.raises(ConfigError, match=r"\bone\b.* --name"):
        parse_models(texts, [], labels=[])
    assert [m.label for m in parse_models(texts, [], labels=["first"])] == ["first", "one"]
    [averaged] = parse_models([",".join(texts)], [], labels=["both"])
    assert (averaged.sources, len(averaged.configs)) == (tuple(texts), 2)


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("nowhere", ModelError, r"nowhere.*config\.json.*config\.yaml"),
        ("openai:", ConfigError, "openai:NAME"),
        ("soft-solver:cold", ConfigError, "temperature"),
        ("solver:1", ConfigError, "solver:1"),
    ],
)
def test_unknown_model_is_refused_in_one_sentence(
    text: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason) as found:
        parse_model(text, [])
    assert "\n" not in str(found.value)


def test_games_and_benchmarks_are_named_with_their_tiers() -> None:
    described = "sokoban:near@6x6x1,4-6,8"  # as config.yaml has it
    assert [str(which) for which in parse_games(f"{described},rush_hour")] == [
        described,
        "rush_hour:id",
    ]
    with pytest.raises(ConfigError, match=r"'2048'"):  # a name of digits is no part of a tier
        parse_games(f"{described},2048")
    assert parse_games("sokoban:unseen, rush_hour") == [
        GameTier(game="sokoban", tier="unseen"),
        GameTier(game="rush_hour", tier="id"),
    ]
    for text, reason in {
        "chess": "'chess'.*sokoban",
        "sokoban:huge": "sokoban.* id.*'huge'",
        "sokoban,sokoban:id": "--games.*sokoban:id.*twice",
        " , ": "--games GAME",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            parse_games(text)


def begin(place: Path, description: dict[str, Any] = DESCRIPTION) -> None:
    with EvaluationDirectory.open(place, description):
        pass


def test_the_same_evaluation_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"
    begin(place)
    begin(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(RunDirectoryError, match=r"attempts 4 .*8; .*--out"):
        begin(place, DESCRIPTION | {"attempts": 8})
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"exists.*--out"):
        begin(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"exists.*--out"):
        begin(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_description_is_no_empty_one(tmp_path: Path) -> None:
    begin(tmp_path / "out")
    (tmp_path / "out/evaluation.json").write_text('{"format": 1, "mod')
    with pytest.raises(RunDirectoryError, match=r"evaluation\.json .*--out"):
        begin(tmp_path / "out")


def test_two_processes_do_not_evaluate_in_one_directory(tmp_path: Path) -> None:
    place = tmp_path / "out"
    program = (
        "import json, sys; from pathlib import Path\n"
        "from cast_ray.evaluation.directory import EvaluationDirectory\n"
        "with EvaluationDirectory.open(Path(sys.argv[1]), json.loads(sys.argv[2])): pass\n"
    )
    command = [sys.executable, "-c", program, str(place), json.dumps(DESCRIPTION)]
    with EvaluationDirectory.open(place, DESCRIPTION):
        other = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert other.returncode == 1
    assert "RunDirectoryError" in other.stderr and str(place) in other.stderr
    assert subprocess.run(command, timeout=60).returncode == 0
