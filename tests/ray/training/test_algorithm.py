"""``Algorithm`` with real engines and learners: the run of the command line, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import cast_ray
from cast_ray import Algorithm, AlgorithmConfig
from cast_ray.errors import CallbackError, RunDirectoryError
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.replay.replay import replay_run
from cast_ray.training.train import train

pytestmark = pytest.mark.ray
STEPS = 3


class Recorder(cast_ray.Callbacks):
    """Notes every call; raises where it is told to."""

    seen: ClassVar[list[tuple[str, Any]]] = []
    raises_in = ""

    def on_algorithm_init(self, **kwargs: Any) -> None:
        self._note("init", None)

    def on_checkpoint_loaded(self, **kwargs: Any) -> None:
        self._note("loaded", None)

    def on_episode_end(self, *, episode: pa.Table, **kwargs: Any) -> None:
        self._note("episode", episode.num_rows)

    def on_sample_end(self, *, samples: pa.Table, **kwargs: Any) -> None:
        self._note("sample", samples.num_rows)

    def on_train_result(self, *, result: Mapping[str, Any], **kwargs: Any) -> None:
        self._note("result", result["cast_ray"]["step"])

    def on_evaluate_start(self, **kwargs: Any) -> None:
        self._note("evaluate", None)

    def on_evaluate_end(self, *, evaluation_metrics: Mapping[str, Any], **kwargs: Any) -> None:
        self._note("evaluated", evaluation_metrics["env_runners"]["num_episodes"])

    def _note(self, name: str, value: Any) -> None:
        self.seen.append((name, value))
        if name == self.raises_in:
            raise ValueError("of the user")


def small(run_dir: Path) -> AlgorithmConfig:
    return (
        AlgorithmConfig("cast")
        .environment("sokoban", tier="mini", num_train=200, num_validation=8, num_held_out=8)
        .engines(dtype="float32")
        .training(alpha=0.3, group_size=4, puzzles_per_step=4, steps=STEPS)
        .warm_start(steps=20, careless_steps=4)
        .evaluation(evaluation_interval=2, held_out_attempts=1)
        .debugging(seed=5)
        .checkpointing(run_dir=str(run_dir))
    )


def played(run_dir: Path, step: int) -> pa.Table:
    table = RunDirectory(run_dir).read_trajectories(step)
    return table.select([name for name in table.column_names if not name.startswith("seconds_")])


def same_state(one: Path, other: Path) -> bool:
    """Whether the newest checkpoints hold the same weights and moments, byte for byte."""
    files = sorted((one / "checkpoints" / f"step-{STEPS:05d}").glob("*.safetensors"))
    assert files
    return all(file.read_bytes() == (other / file.relative_to(one)).read_bytes() for file in files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with ``run``, made step by step, and ``saved``, its copy after one step."""
    folder = tmp_path_factory.mktemp("algorithm")
    Recorder.seen = []
    with small(folder / "run").callbacks(Recorder).build_algo() as algo:
        results = [algo.train()]
        algo.save_to_path(folder / "saved")
        results += [algo.train(), algo.train()]
        evaluated = algo.evaluate()
        board = algo.directory.puzzles
        [puzzle, *_] = cast_ray.read_puzzles(board / "held_out.parquet")
        policy = algo.get_policy()
        game = policy.play(puzzle.board, seed=3)
        assert policy.act(puzzle.board, seed=3) == game.actions[0]
        assert game.states[0] == puzzle.board
        with pytest.raises(RunDirectoryError, match="not empty"):
            algo.save_to_path(folder / "saved")
    assert [result["training_iteration"] for result in results] == [1, 2, 3]
    assert [result["done"] for result in results] == [False, False, True]
    for result in results:
        turns = result["cast_ray"]["num_turns"]
        assert result["env_runners"]["num_env_steps_sampled"] == turns
        assert result["env_runners"]["num_episodes"] == 16
        assert result["learners"]["default_policy"]["total_loss"] == result["cast_ray"]["loss"]
    assert "evaluation" in results[1]
    assert evaluated["env_runners"]["num_episodes"] == 8
    yield folder


def test_callbacks_saw_every_episode_step_and_evaluation(folder: Path) -> None:
    step = [*[("episode", 1)] * 16, ("sample", 16)]
    steps = [event for number in (1, 2, 3) for event in (*step, ("result", number))]
    assert Recorder.seen[:1] == [("init", None)]
    assert Recorder.seen[1 : len(steps) + 1] == steps
    assert Recorder.seen[len(steps) + 1 :] == [("evaluate", None), ("evaluated", 8)]


def test_command_line_plays_and_learns_the_same(folder: Path) -> None:
    config = small(folder / "by-command").validate()
    with TrainProgress() as progress:
        train(config, resume=False, progress=progress)
    for step in range(1, STEPS + 1):
        assert played(folder / "by-command", step).equals(played(folder / "run", step))
    assert same_state(folder / "by-command", folder / "run")


def test_run_from_a_checkpoint_goes_on_to_the_same_bytes(folder: Path) -> None:
    config = AlgorithmConfig.from_file(folder / "saved" / "config.yaml")
    config.checkpointing(run_dir=str(folder / "again"))
    with Algorithm.from_checkpoint(folder / "saved", config=config) as algo:
        assert algo.steps_done == 1
        while not algo.train()["done"]:
            pass
    for step in range(1, STEPS + 1):
        assert played(folder / "again", step).equals(played(folder / "run", step))
    assert same_state(folder / "again", folder / "run")


def test_other_credit_from_a_checkpoint_is_replayed_with_the_values_of_each_step(
    folder: Path,
) -> None:
    config = AlgorithmConfig.from_file(folder / "saved" / "config.yaml")
    config.checkpointing(run_dir=str(folder / "tuned")).training(alpha=1.0, lr=1e-4, steps=2)
    with Algorithm.from_checkpoint(folder / "saved", config=config) as algo:
        assert algo.train()["done"]
    assert cast_ray.load_run(folder / "tuned").config.advantage.alpha == 1.0
    assert replay_run(folder / "tuned").differences == ()


def test_other_boards_from_a_checkpoint_are_refused(folder: Path) -> None:
    config = AlgorithmConfig.from_file(folder / "saved" / "config.yaml")
    config.checkpointing(run_dir=str(folder / "other")).environment(num_train=100)
    with pytest.raises(RunDirectoryError, match=r"puzzles\.num_train"):
        Algorithm.from_checkpoint(folder / "saved", config=config)
    assert not (folder / "other").exists()


def test_callback_that_raises_ends_the_run_and_keeps_what_was_played(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "raises_in", "sample")
    config = AlgorithmConfig.from_file(folder / "saved" / "config.yaml").callbacks(Recorder)
    config.checkpointing(run_dir=str(folder / "raising"))
    with Algorithm.from_checkpoint(folder / "saved", config=config) as algo:
        with pytest.raises(CallbackError) as failure:
            algo.train()
        for fact in ("Recorder.on_sample_end", "ValueError: of the user", __file__, "raising"):
            assert fact in str(failure.value)
        # All that was played is there, and the next call resumes and learns from it.
        assert played(folder / "raising", 2).equals(played(folder / "run", 2))
        monkeypatch.setattr(Recorder, "raises_in", "")
        assert algo.train()["cast_ray"]["step"] == 3
