"""docs/data.md names every column as it is, and its one-liners run on a run directory."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from cast_ray.evaluation.attempts import ATTEMPT_SCHEMA
from cast_ray.evaluation.experiments.arms import CURVES, TIERS, TRAINING
from cast_ray.evaluation.experiments.collect import RUN_SCHEMA
from cast_ray.evaluation.experiments.compare import CEILING_SCHEMA
from cast_ray.games.puzzles import PUZZLE_SCHEMA
from cast_ray.rollout.trajectory import BATCH_SCHEMA, ROLLOUT_SCHEMA, SCORED_SCHEMA
from cast_ray.runs.metrics import read_validation
from cast_ray.runs.run_directory import RunDirectory
from solver_actors.oracle import Oracle
from tests.support.made_up_run import new_run, play, scored, scripted, write_evaluation, write_step

DOCS = Path(__file__).parents[2] / "docs"
EVIDENCE = DOCS / "evidence"
PAGE = (DOCS / "data.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+?) \| (.*?) ?\| .+ \|$", re.MULTILINE)
_SECTIONS = {
    text.partition("\n")[0]: text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
_STAGES = ("Stage 1: played", "Stage 2: scored", "Stage 3: credited")
LINES = PAGE.partition("```python\n")[2].partition("```")[0].splitlines()
ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"


def written(kind: pa.DataType) -> str:
    if isinstance(kind, pa.ListType | pa.LargeListType):
        return f"list[{written(kind.value_type)}]"
    name = str(kind).removeprefix("large_")
    return {"float": "float32", "double": "float64"}.get(name, name)


def on_page(section: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind, _ in _ROW.findall(_SECTIONS[section])]


def of(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, written(field.type)) for field in schema]


@pytest.mark.parametrize(
    ("section", "schema"),
    [
        (_STAGES[0], ROLLOUT_SCHEMA),
        (_STAGES[1], pa.schema(list(SCORED_SCHEMA)[len(ROLLOUT_SCHEMA) :])),
        (_STAGES[2], pa.schema(list(BATCH_SCHEMA)[len(SCORED_SCHEMA) :])),
        ("Puzzle files", PUZZLE_SCHEMA),
        ("Attempts of an evaluation", ATTEMPT_SCHEMA),
    ],
)
def test_page_names_the_columns_with_their_types(section: str, schema: pa.Schema) -> None:
    assert on_page(section) == of(schema)


@pytest.mark.parametrize(
    ("section", "schema"),
    [
        ("Curves of a comparison", CURVES),
        ("Runs of a comparison", RUN_SCHEMA),
        ("Training of a comparison", TRAINING),
        ("Tiers of a comparison", TIERS),
        ("Ceiling of a comparison", CEILING_SCHEMA),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_page_names_the_columns_of_comparisons(section: str, schema: pl.Schema) -> None:
    assert on_page(section) == of(pl.DataFrame(schema=schema).to_arrow().schema)


def test_page_names_the_columns_of_a_sweep() -> None:
    """A recorded one, in which nothing failed."""
    recorded = pl.read_parquet(EVIDENCE / "rush_hour_oracles.parquet").drop("arm", "seed")
    table = recorded.cast({"failure": pl.String}).to_arrow()
    assert on_page("Results of a sweep") == of(table.schema)


def test_page_names_the_columns_of_a_validation(tmp_path: Path) -> None:
    kept = read_validation(tmp_path / "none")
    assert on_page("Validation") == of(kept.to_arrow().schema)


def test_shapes_on_the_page_are_those_of_a_trajectory(run: RunDirectory) -> None:
    row = pl.read_parquet(run.trajectory_files()[0]).row(0, named=True)
    sizes = {
        "": None,
        "`[L]`": len(row["token_ids"]),
        "`[T]`": len(row["effects"]),
        "`[T + 1]`": len(row["states"]),
    }
    assert len(set(sizes.values())) == 4
    found = {name: len(v) if isinstance(v, list) else None for name, v in row.items()}
    rows = [item for stage in _STAGES for item in _ROW.findall(_SECTIONS[stage])]
    assert found == {name: sizes[shape] for name, _, shape in rows}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Two steps of one group that is partly solved, and an evaluation."""
    run = new_run(tmp_path_factory.mktemp("runs") / "run")
    oracle = Oracle(max_bytes=2**20)
    way = ["Right", "Down", "Left", "Down", "Right"]
    for step in (1, 2):
        games = [
            play(
                ROOM,
                scripted([f"```{action}```" for action in actions]),
                turn_budget=len(actions),
                oracle=oracle,
                step=step,
                episode=episode,
            )
            for episode, actions in enumerate([way, way[::-1], ["Up", "Right"]])
        ]
        write_step(run, step, scored(games, oracle))
    write_evaluation(run, "after", scored(games, oracle))
    return run


@pytest.mark.parametrize("line", LINES)
def test_one_liner_gives_a_table(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(run.path)
    found = eval(line, {"pl": pl})
    assert isinstance(found, pl.DataFrame)
    assert len(found) > 0


def test_page_has_one_liners() -> None:
    assert len(LINES) >= 5
