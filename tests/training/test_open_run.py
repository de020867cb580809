"""A run's input is looked at before anything starts or is written."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.training.run import open_run
from cast_ray.training.workers import learner_settings
from tests.support.odd_names import ODD_NAME
from tests.support.scripted import build_test_policy

GRPO = "algorithm=grpo"


def opened(tmp_path: Path, *overrides: str, resume: bool = False) -> None:
    """Open a run of a tier that does not exist, which is refused after everything else."""
    config = load_config(None, [f"run_dir={tmp_path / 'run'}", "tier=huge", *overrides])
    open_run(config, resume=resume, progress=TrainProgress(Console(file=io.StringIO())))


@pytest.mark.parametrize("resume", [False, True])
def test_an_option_that_vllm_does_not_know_is_refused_and_nothing_written(
    tmp_path: Path, *, resume: bool
) -> None:
    with pytest.raises(ConfigError, match=r"engine\.vllm\.nonsense"):
        opened(tmp_path, "engine.vllm.nonsense=1", resume=resume)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("resume", [False, True])
def test_reference_model_that_is_not_there_is_refused_and_nothing_written(
    tmp_path: Path, *, resume: bool
) -> None:
    with pytest.raises(ModelError, match=r"objective\.reference=.*/reference"):
        opened(tmp_path, GRPO, f"objective.reference={tmp_path / 'reference'}", resume=resume)

    assert not list(tmp_path.iterdir())


def test_reference_model_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    with pytest.raises(ModelError, match=r"objective\.reference=.*safetensors"):
        opened(tmp_path, GRPO, f"objective.reference={tmp_path}")


def test_reference_model_that_is_there_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"one": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")

    with pytest.raises(ConfigError, match="tier"):
        opened(tmp_path, GRPO, f"objective.reference={tmp_path}")


def test_reference_model_that_no_objective_asks_for_need_not_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tier"):
        opened(tmp_path, "algorithm=dapo", "objective.reference=/nowhere")


def test_model_whose_template_rewrites_is_refused_and_nothing_written(tmp_path: Path) -> None:
    model = tmp_path / "model"
    build_test_policy(model)
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("message.content", "message.content | trim"))
    with pytest.raises(ModelError, match=r"/model .*policy\.chat_template=append_only"):
        opened(tmp_path, f"policy.path={model}", "tier=mini")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="tier"):
        opened(tmp_path, f"policy.path={model}", "policy.chat_template=append_only")


def test_run_keeps_to_the_conversations_that_its_model_holds(tmp_path: Path) -> None:
    model = tmp_path / "model"
    build_test_policy(model)  # made for 4,096 positions
    few = [f"puzzles.num_{name}=4" for name in ("train", "validation", "held_out")]
    config = load_config(None, [f"run_dir={tmp_path / 'run'}", f"policy.path={model}", *few])
    for resume in (False, True):
        quiet = TrainProgress(Console(file=io.StringIO()))
        run = open_run(config, resume=resume, progress=quiet)
        run.on_exit.close()
        assert run.config.engine.max_model_len == 4096
    assert load_config(run.directory.config, []).engine.max_model_len == 0


def test_names_of_a_run_s_parts_hold_no_letter_that_serve_or_a_list_divides_at(
    tmp_path: Path,
) -> None:
    few = [f"puzzles.num_{each}=2" for each in ("train", "validation", "held_out")]
    config = load_config(None, [f"run_dir={tmp_path / ODD_NAME}", *few])
    ids = []
    for resume in (False, True):
        run = open_run(config, resume=resume, progress=TrainProgress(Console(file=io.StringIO())))
        run.on_exit.close()
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", run.run_id)
        assert run.earlier_ids == ids
        ids.append(run.run_id)


@pytest.mark.parametrize("resume", [False, True])
def test_unknown_transform_is_refused_with_the_known_ones(tmp_path: Path, *, resume: bool) -> None:
    with pytest.raises(ConfigError, match=r"advantage\.transform .*asinh.*'sqrt'"):
        opened(tmp_path, "advantage.transform=sqrt", resume=resume)

    assert not list(tmp_path.iterdir())


def test_learner_is_told_the_reference_wherever_its_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config(None, [GRPO, "objective.reference=models/reference"])

    settings = learner_settings(config, model_dir=Path("models/start"))

    assert settings.reference_dir == str(tmp_path / "models" / "reference")
    assert settings.model_dir == str(tmp_path / "models" / "start")


def test_who_comes_second_to_a_new_directory_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "run"
    few = [f"puzzles.num_{each}=2" for each in ("train", "validation", "held_out")]
    config = load_config(None, [f"run_dir={path}", *few])
    taken = pytest.raises(RunDirectoryError, match="another process trains")
    with RunDirectory(path).locked(), taken:
        open_run(config, resume=False, progress=TrainProgress(Console(file=io.StringIO())))
    assert [file.name for file in path.iterdir()] == [".lock"]
