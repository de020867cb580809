from dataclasses import replace
from pathlib import Path

import pytest

from cast_ray.config import TrainConfig
from cast_ray.config_file import load_config
from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.run_directory import RunDirectory, write_table
from cast_ray.trajectory import ROLLOUT_SCHEMA


def test_a_directory_with_content_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(RunDirectoryError, match="is not empty"):
        RunDirectory.create(tmp_path, TrainConfig())

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resume_with_another_configuration_names_the_keys(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", TrainConfig(seed=1))

    with pytest.raises(RunDirectoryError, match=r"seed \(1 there, 2 given\)"):
        RunDirectory.reopen(tmp_path / "run", TrainConfig(seed=2))


def test_resume_may_only_lengthen_the_run(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", TrainConfig(steps=5))

    RunDirectory.reopen(tmp_path / "run", TrainConfig(steps=9))
    assert load_config(tmp_path / "run/config.yaml", []).steps == 9
    with pytest.raises(RunDirectoryError, match="steps"):
        RunDirectory.reopen(tmp_path / "run", TrainConfig(steps=3))


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        RunDirectory.reopen(tmp_path, TrainConfig())


def test_an_unfinished_checkpoint_is_not_the_newest(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    run.checkpoint(5).mkdir()
    (run.checkpoints / "step-00010.partial").mkdir()

    assert run.newest_checkpoint() == run.checkpoint(5)


def test_old_checkpoints_are_dropped_and_the_newest_kept(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", replace(TrainConfig(), steps=20))
    for step in (5, 10, 15):
        run.checkpoint(step).mkdir()

    run.drop_old_checkpoints(kept=2)

    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-00010", "step-00015"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentSetupError, match="cannot be written"):
        write_table(tmp_path / "absent" / "step.parquet", ROLLOUT_SCHEMA.empty_table())
