"""Facts on single pages are those of the code: columns, keys, metrics, commands, turns."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import yaml

from cast_ray.config.reference import config_reference
from cast_ray.config.train import TrainConfig
from cast_ray.evaluation.attempts import ATTEMPT_SCHEMA
from cast_ray.evaluation.experiments.arms import CURVES, TIERS, TRAINING
from cast_ray.evaluation.experiments.collect import RUN_SCHEMA
from cast_ray.evaluation.experiments.compare import CEILING_SCHEMA
from cast_ray.games import get_game
from cast_ray.games.puzzles import PUZZLE_SCHEMA
from cast_ray.games.testing import CHECKS
from cast_ray.rollout.trajectory import BATCH_SCHEMA, ROLLOUT_SCHEMA, SCORED_SCHEMA
from cast_ray.runs.metrics import StepMetrics, read_validation
from cast_ray.runs.run_directory import CHANGEABLE_KEYS
from cast_ray.training import prometheus
from tests.support.installed import LIGHTS_OUT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
METRICS = {item.name for item in fields(StepMetrics)}
KEYS = {key.key for key in config_reference(TrainConfig)}
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \| .*\|$", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text()


def section(name: str, title: str) -> str:
    """Return the text between a heading of a page and the next one of its level."""
    return page(name).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


# docs/data.md


def type_name(kind: pa.DataType) -> str:
    if isinstance(kind, pa.ListType | pa.LargeListType):
        return f"list[{type_name(kind.value_type)}]"
    name = str(kind).removeprefix("large_")
    return {"float": "float32", "double": "float64"}.get(name, name)


def sweep_results() -> pl.DataFrame:
    """Return the results of a recorded sweep, in which no trial failed."""
    recorded = pl.read_parquet(DOCS / "evidence" / "rush_hour_oracles.parquet")
    return recorded.drop("arm", "seed").cast({"failure": pl.String})


TABLES: dict[str, pa.Schema | pl.Schema] = {
    "Stage 1: played": ROLLOUT_SCHEMA,
    "Stage 2: scored": pa.schema(list(SCORED_SCHEMA)[len(ROLLOUT_SCHEMA) :]),
    "Stage 3: credited": pa.schema(list(BATCH_SCHEMA)[len(SCORED_SCHEMA) :]),
    "Puzzle files": PUZZLE_SCHEMA,
    "Attempts of an evaluation": ATTEMPT_SCHEMA,
    "Curves of a comparison": CURVES,
    "Runs of a comparison": RUN_SCHEMA,
    "Training of a comparison": TRAINING,
    "Tiers of a comparison": TIERS,
    "Ceiling of a comparison": CEILING_SCHEMA,
    "Results of a sweep": sweep_results().schema,
    "Validation": read_validation(Path("missing")).schema,
}


@pytest.mark.parametrize("title", TABLES)
def test_data_page_has_all_columns_with_their_types(title: str) -> None:
    schema = TABLES[title]
    if isinstance(schema, pl.Schema):
        schema = pl.DataFrame(schema=schema).to_arrow().schema
    assert _ROW.findall(section("data.md", title)) == [
        (field.name, type_name(field.type)) for field in schema
    ]


# docs/operations.md and docs/observability.md


def test_operations_page_has_every_metric_and_no_unknown_name() -> None:
    words = set(re.findall(r"`([a-z_.]+)(?:=[^`]*)?`", page("operations.md")))
    assert sorted(METRICS - words) == []
    sections = {key.partition(".")[0] for key in KEYS}
    files = {"metrics.parquet", "recoveries.jsonl"}
    assert sorted(words - METRICS - KEYS - sections - files - set(BATCH_SCHEMA.names)) == []


def test_observability_page_has_every_metric_of_a_step() -> None:
    named = set(re.findall(r"`(\w+)`", section("observability.md", "Where to look")))
    assert named - {"StepMetrics", "max_staleness"} == METRICS - {"step"}


def test_observability_page_names_exported_metrics() -> None:
    ours = {metric.prometheus_name for metric in prometheus.ALL}
    text = page("observability.md")
    assert set(re.findall(r"`(ray_cast_\w+)`", text)) <= ours
    endings = {f"ray_cast_engine{ending}" for ending in re.findall(r"`…(_\w+)`", text)}
    assert endings | {"ray_cast_engine_up"} == {
        name for name in ours if name.startswith("ray_cast_engine_")
    }


# docs/add_a_game.md


@pytest.mark.parametrize(
    ("file", "code"),
    re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page("add_a_game.md"), re.MULTILINE | re.DOTALL),
)
def test_code_of_a_new_game_is_that_of_the_example(file: str, code: str) -> None:
    assert f"\n{code}" in "\n" + (LIGHTS_OUT / file).read_text()


def test_files_and_checks_of_a_new_game_exist() -> None:
    text = page("add_a_game.md")
    tree = text.partition("```\nlights_out/")[2].partition("```")[0]
    for line in tree.splitlines()[1:]:
        assert list(LIGHTS_OUT.rglob(line.split()[0].rstrip("/"))), line
    assert set(re.findall(r'skips=\{"(\w+)"', text)) <= CHECKS.keys()


# Others


def test_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == version
    assert version in (ROOT / "README.md").read_text()


def test_the_readme_can_be_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text()) < 8_000


def test_the_glossary_has_at_most_forty_terms_each_once() -> None:
    terms = re.findall(r"^\| (?!term|---|\*\*)([^|]+) \|", page("glossary.md"), re.MULTILINE)
    assert 30 <= len(terms) <= 40
    assert len(terms) == len(set(terms))


def test_runs_page_has_the_keys_that_a_resumed_run_may_change() -> None:
    text = section("runs.md", "What may change on the way")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    others = {key for key in CHANGEABLE_KEYS if not key.startswith("resources.")}
    assert set(re.findall(r"`([\w.]+)`", rows)) == others
    assert "`resources`" in text


def test_games_page_has_the_turns_of_every_tier() -> None:
    (row,) = [line for line in page("games.md").splitlines() if line.startswith("| turns, ")]
    tiers = re.findall(r"`([\w-]+)`", row)
    turns = [
        " / ".join(str(get_game(game).tiers[tier].turn_budget) for tier in tiers)
        for game in ("sokoban", "minesweeper", "rush_hour")
    ]
    assert len(tiers) == 4
    assert [cell.strip() for cell in row.split("|")[2:-1]] == turns
