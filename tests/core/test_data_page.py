"""docs/data.md names every column as it is, and its one-liners run on a run directory."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from cast_ray.run_directory import RunDirectory
from cast_ray.trajectory import BATCH_SCHEMA, ROLLOUT_SCHEMA, SCORED_SCHEMA
from solver_actors.oracle import Oracle
from tests.made_up_run import new_run, play, scored, scripted, write_evaluation, write_step

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (\S+) \| (.*?) ?\| .+ \|$", re.MULTILINE)
_STAGES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
LINES = PAGE.partition("```python\n")[2].partition("```")[0].splitlines()
ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"


def written(kind: pa.DataType) -> str:
    if isinstance(kind, pa.ListType):
        return f"list[{written(kind.value_type)}]"
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))


def on_page(stage: int) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind, _ in _ROW.findall(_STAGES[stage])]


def of(names: list[str]) -> list[tuple[str, str]]:
    return [(name, written(BATCH_SCHEMA.field(name).type)) for name in names]


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        (0, ROLLOUT_SCHEMA.names),
        (1, SCORED_SCHEMA.names[len(ROLLOUT_SCHEMA) :]),
        (2, BATCH_SCHEMA.names[len(SCORED_SCHEMA) :]),
    ],
)
def test_page_names_the_columns_of_each_stage_with_their_types(
    stage: int, names: list[str]
) -> None:
    assert on_page(stage) == of(names)


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
    assert found == {name: sizes[shape] for name, _, shape in _ROW.findall(PAGE)}


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
