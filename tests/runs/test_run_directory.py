import re
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pytest

from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.parquet import write_table
from cast_ray.rollout.trajectory import ROLLOUT_SCHEMA
from cast_ray.runs.directories import make_partial, partial_path, publish
from cast_ray.runs.run_directory import ResumePoint, RunDirectory


def test_a_directory_with_content_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(RunDirectoryError, match=r"run_dir=.*--resume"):
        RunDirectory.create(tmp_path, TrainConfig())

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_resume_with_another_configuration_names_the_keys(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", TrainConfig(seed=1))

    with pytest.raises(RunDirectoryError, match=r"seed \(1 .*2 .*run_dir="):
        RunDirectory(tmp_path / "run").reopen(TrainConfig(seed=2))


def test_resume_may_only_lengthen_the_run(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", TrainConfig(steps=5))

    RunDirectory(tmp_path / "run").reopen(TrainConfig(steps=9))
    assert load_config(tmp_path / "run/config.yaml", []).steps == 9
    with pytest.raises(RunDirectoryError, match="steps"):
        RunDirectory(tmp_path / "run").reopen(TrainConfig(steps=3))


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
        RunDirectory.existing(tmp_path)


@pytest.mark.parametrize(
    "key",
    [
        "resources.learner_ranks",
        "learner.zero_stage",
        "resources.gpus_per_learner_rank",
        "learner.offload_optimizer",
        "learner.gradient_checkpointing",
        "learner.tokens_per_micro_batch",
        "learner.num_threads",
        "engine.request_timeout_s",
        "checkpoint_every",
    ],
)
def test_what_changes_no_result_may_change_at_a_resume(tmp_path: Path, key: str) -> None:
    stored = TrainConfig()
    RunDirectory.create(tmp_path / "run", stored)
    value = attrgetter(key)(stored)
    other = str(not value).lower() if isinstance(value, bool) else value + 1

    changed = RunDirectory(tmp_path / "run").reopen(
        load_config(tmp_path / "run/config.yaml", [f"{key}={other}"])
    )

    assert [text.split(" (")[0] for text in changed] == [key]
    assert attrgetter(key)(load_config(tmp_path / "run/config.yaml", [])) != value


def test_change_that_is_not_allowed_is_named_beside_one_that_is(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", TrainConfig())
    given = load_config(None, ["resources.learner_ranks=5", "learner.lr=0.5"])

    with pytest.raises(RunDirectoryError) as refusal:
        RunDirectory(tmp_path / "run").reopen(given)

    assert re.search(r"learner\.lr \(0\.0002 .*0\.5 ", str(refusal.value))
    assert "num_ranks" not in str(refusal.value)
    assert load_config(tmp_path / "run/config.yaml", []) == TrainConfig()


def run_with_checkpoints(directory: Path, *steps: int) -> RunDirectory:
    run = RunDirectory.create(directory / "run", TrainConfig())
    for step in steps:
        (make_partial(run.checkpoint(step)) / "weights").write_text(f"of step {step}")
        publish(partial_path(run.checkpoint(step)), run.checkpoint(step))
    return run


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_run_without_checkpoint_goes_on_at_its_start(tmp_path: Path) -> None:
    found = run_with_checkpoints(tmp_path).resume_point()

    assert found == ResumePoint(step=0, checkpoint=None)
    assert "no checkpoint yet" in str(found)


def test_a_run_goes_on_from_the_newest_checkpoint_by_number(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 99_999, 100_000)

    found = run.resume_point()

    assert found == ResumePoint(step=100_000, checkpoint=run.checkpoint(100_000))
    assert str(found).endswith(f" {run.checkpoint(100_000)}")


def test_an_unfinished_checkpoint_is_invisible(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 5)
    make_partial(run.checkpoint(10))

    assert run.resume_point() == ResumePoint(step=5, checkpoint=run.checkpoint(5))


def test_a_damaged_checkpoint_is_skipped_and_named(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 5, 10, 15)
    flip_a_bit(run.checkpoint(15) / "weights")
    (run.checkpoint(10) / "weights").unlink()

    found = run.resume_point()

    assert found.checkpoint == run.checkpoint(5)
    said = str(found)
    assert f" {run.checkpoint(5)};" in said
    assert re.search(rf"step 15\b.*{run.checkpoint(15) / 'weights'}.*checksum", said)
    assert re.search(rf"step 10\b.*{run.checkpoint(10) / 'weights'}.*bytes", said)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 5, 10)
    for step in (5, 10):
        flip_a_bit(run.checkpoint(step) / "weights")

    with pytest.raises(RunDirectoryError, match=r"step 10's.* step 5's.*run_dir="):
        run.resume_point()


def test_old_checkpoints_are_dropped_and_the_newest_kept(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 5, 10, 15)

    run.drop_old_checkpoints(15, kept=2)

    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-00010", "step-00015"]


def test_a_checkpoint_that_a_resumed_run_skipped_does_not_outlive_newer_ones(
    tmp_path: Path,
) -> None:
    """Were it counted as the newest, it would stay and the good one go."""
    run = run_with_checkpoints(tmp_path, 5, 6, 10)

    run.drop_old_checkpoints(6, kept=1)

    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00006"]


def test_what_a_killed_run_left_half_written_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path, 5)
    make_partial(run.checkpoint(4))
    (run.checkpoints / ".step-00003.replaced").mkdir()
    (run.checkpoints / "notes.txt").write_text("mine")

    run.drop_old_checkpoints(5, kept=1)

    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["notes.txt", "step-00005"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentSetupError, match="file"):
        write_table(tmp_path / "file" / "step.parquet", ROLLOUT_SCHEMA.empty_table())


def test_groups_are_kept_until_their_step_is_written(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    for step, group in ((1, 0), (1, 3), (2, 0)):
        write_table(run.group_file(step, group), pa.table({"group": [group]}))

    run.write_trajectories(1, pa.table({"group": [0, 3]}))

    assert [path.name for path in run.groups.iterdir()] == ["step-00002-group-00000.parquet"]


def test_groups_of_a_step_that_was_written_go_when_its_writer_was_killed(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    run.write_trajectories(1, pa.table({"group": [0]}))
    for step in (1, 2):
        write_table(run.group_file(step, 0), pa.table({"group": [0]}))

    run.tidy_trajectories()

    assert [path.name for path in run.groups.iterdir()] == ["step-00002-group-00000.parquet"]


def test_tidying_removes_half_files_and_sets_steps_aside_that_follow_a_gap(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    for step in (1, 2, 4):
        run.write_trajectories(step, pa.table({"group": [0]}))
    half = run.groups / ".step-00003-group-00000.parquet.77.partial"
    half.write_bytes(b"PAR1")

    run.tidy_trajectories()

    assert not half.exists()
    assert run.last_logged_step == 2
    assert [path.name for path in run.trajectory_files()] == [
        "step-00001.parquet",
        "step-00002.parquet",
    ]
    assert run.inspection(4).is_file()


def test_step_set_aside_takes_the_groups_played_after_it_along(tmp_path: Path) -> None:
    """They were played by weights that this step led to, and a resumed run plays it anew."""
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    for step in (1, 2, 3):
        run.write_trajectories(step, pa.table({"group": [0]}))
    write_table(run.group_file(4, 0), pa.table({"group": [0]}))

    run.set_aside(2)

    assert list(run.groups.iterdir()) == []
    run.tidy_trajectories()
    assert [path.name for path in run.trajectory_files()] == ["step-00001.parquet"]
    assert {path.name for path in (run.path / "inspection").iterdir()} == {
        "step-00002.parquet",
        "step-00003.parquet",
    }


def test_directory_of_a_process_killed_at_its_first_write_is_free(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / ".config.yaml.77.partial").write_text("seed:")
    (path / ".lock").touch()

    assert RunDirectory.create(path, TrainConfig()).config.is_file()


def test_second_process_in_a_directory_is_refused_before_it_writes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    with (
        run.locked(),
        pytest.raises(RunDirectoryError, match=r"another process.*run_dir="),
        RunDirectory.existing(run.path).locked(),
    ):
        pass
    with RunDirectory.existing(run.path).locked():
        pass


def test_summary_says_of_how_many_steps_it_is(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    assert not run.has_finished(0)  # not even a run of no steps, as long as it plays
    run.write_summary({"steps": 15})
    assert run.has_finished(15) and not run.has_finished(16)


def test_groups_of_an_evaluation_are_kept_until_it_is_whole_and_belong_to_their_weights(
    tmp_path: Path,
) -> None:
    run = RunDirectory.create(tmp_path / "run", TrainConfig())
    played = [run.evaluation_group("after", step, group) for step in (3, 5) for group in (0, 1)]
    other = run.evaluation_group("validation", 5, 0)
    training = run.group_file(5, 0)
    assert len({*played, other, training}) == 6
    for path in (*played, other, training):
        path.touch()
    run.tidy_trajectories()
    assert all(path.exists() for path in (*played, other, training))
    run.drop_evaluation_groups("after")
    assert [path.exists() for path in (*played, other, training)] == [False] * 4 + [True] * 2
