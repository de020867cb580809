"""``dtype=auto``: bfloat16 where it is fast, and what a run keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cast_ray.config import precision
from cast_ray.config.load import load_config, save_config
from cast_ray.config.precision import precision_note
from cast_ray.config.train import TrainConfig

INTEL = "processor : 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
AMD = "processor : 0\nflags\t\t: fpu avx2\nbugs: avx512_bf16\n"
ARM = "processor : 0\nFeatures\t: fp asimd bf16\n"


def with_cpu(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(precision, "_CPU", tmp_path / "cpuinfo")
    precision.cpu_has_bfloat16.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    precision.cpu_has_bfloat16.cache_clear()


def dtypes(*overrides: str) -> tuple[str, str]:
    config = load_config(None, overrides)
    return config.learner.dtype, config.engine.dtype


@pytest.mark.parametrize(("cpu", "has"), [(INTEL, True), (ARM, True), (AMD, False), ("", False)])
def test_a_cpu_without_bfloat16_computes_in_float32(
    cpu: str, has: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cpu(cpu, tmp_path, monkeypatch)
    auto = "bfloat16" if has else "float32"
    assert dtypes() == (auto, auto)
    assert dtypes("learner.dtype=float32", "engine.dtype=bfloat16") == ("float32", "bfloat16")
    assert dtypes("resources.gpus_per_engine=1") == (auto, "bfloat16")
    assert dtypes("resources.preset=one_gpu") == ("bfloat16", "bfloat16")
    assert dtypes("learner.zero_stage=0") == ("float32", auto)
    assert TrainConfig().learner.dtype == auto


def test_a_run_keeps_what_auto_meant_where_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cpu(INTEL, tmp_path, monkeypatch)
    save_config(load_config(None, []), tmp_path / "config.yaml")
    with_cpu(AMD, tmp_path, monkeypatch)
    assert load_config(tmp_path / "config.yaml", []).learner.dtype == "bfloat16"


def test_bfloat16_on_such_a_cpu_is_remarked_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cpu(AMD, tmp_path, monkeypatch)
    assert precision_note(load_config(None, [])) == ""
    note = precision_note(load_config(None, ["learner.dtype=bfloat16"]))
    assert "learner.dtype=bfloat16" in note
    assert "engine" not in note
    on_gpu = ["learner.dtype=bfloat16", "resources.gpus_per_learner_rank=1"]
    assert precision_note(load_config(None, on_gpu)) == ""
    with_cpu(INTEL, tmp_path, monkeypatch)
    assert precision_note(load_config(None, ["learner.dtype=bfloat16"])) == ""
