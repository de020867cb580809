"""What is wrong with a model directory is named by its file, without loading anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cast_ray.errors import ModelError
from cast_ray.runs.model_files import model_fault, num_values, weight_files
from cast_ray.runs.remote_directories import sound_model
from tests.support.refusals import refused

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 8000000\n"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model of two shards, of 6 and 12 values."""
    for number, name in enumerate(SHARDS, start=1):
        save_file({f"weight-{number}": np.zeros((number, 6), np.float32)}, tmp_path / name)
    names = {f"weight-{number}": name for number, name in enumerate(SHARDS, start=1)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": names}))
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_sound_model_has_no_fault_and_its_values_are_counted(model: Path) -> None:
    assert model_fault(model, is_trained=True) == ""
    assert num_values(model) == 18
    assert sound_model(model) == model


def test_directory_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    for place, fault in ((tmp_path / "nowhere", "not a directory"), (tmp_path, "empty")):
        with refused(ModelError, str(place), fault):
            sound_model(place)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX])
@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_text_that_is_not_a_json_object_is_named(model: Path, name: str, content: str) -> None:
    (model / name).write_text(content, encoding="latin-1")

    with refused(ModelError, str(model), f" {name} "):
        sound_model(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX, SHARDS[0]])
def test_pointer_of_git_lfs_is_named_with_the_command_that_replaces_it(
    model: Path, name: str
) -> None:
    (model / name).write_bytes(POINTER)

    with refused(ModelError, f" {name} ", "git lfs pull"):
        sound_model(model)


@pytest.mark.parametrize("kept", [0, 4, 60, -1])
def test_shard_that_is_cut_off_is_named(model: Path, kept: int) -> None:
    shard = model / SHARDS[1]
    shard.write_bytes(shard.read_bytes()[:kept])

    with refused(ModelError, f" {SHARDS[1]} ", f"{shard.stat().st_size} bytes"):
        sound_model(model)


def test_shard_that_the_index_names_and_that_is_missing_is_named(model: Path) -> None:
    (model / SHARDS[0]).unlink()

    with refused(ModelError, f" {SHARDS[0]} ", "No such file"):
        sound_model(model)


def test_index_without_a_map_is_named(model: Path) -> None:
    (model / INDEX).write_text("{}")

    with refused(ModelError, INDEX, "weight_map"):
        sound_model(model)


def test_what_no_index_names_is_not_read(model: Path) -> None:
    (model / "consolidated.safetensors").write_bytes(b"junk")

    assert model_fault(model) == ""
    assert [file.name for file in weight_files(model)] == list(SHARDS)


def test_pickles_are_no_weights(model: Path) -> None:
    for file in model.glob("model*"):
        file.unlink()
    (model / "pytorch_model.bin").write_bytes(b"pickle")

    with refused(ModelError, str(model), "safetensors"):
        sound_model(model)
    assert model_fault(model, with_weights=False) == ""


def test_quantised_weights_are_for_engines_only(model: Path) -> None:
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    (model / "config.json").write_text(json.dumps(config))

    assert model_fault(model) == ""
    with refused(ModelError, "policy.path=mine ", " gptq ", "config.json"):
        sound_model(model, called="policy.path=mine", is_trained=True)


def test_weights_are_judged_without_torch(model: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cast_ray.runs.model_files import model_fault; "
        f"assert not model_fault(Path({str(model)!r})); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
