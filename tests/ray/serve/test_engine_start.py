"""Engines that do not start: the first error in one sentence, and nothing left of them."""

from __future__ import annotations

import json
import re
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve as ray_serve
from vllm.engine.arg_utils import AsyncEngineArgs

from cast_ray.config.resources import ResourcesConfig
from cast_ray.config.train import EngineConfig
from cast_ray.errors import EngineError
from serve.engine.deployment import deploy_engines
from serve.engine.first_error import first_error
from serve.engine.vllm_args import vllm_option_names
from serve.engine.vllm_start import WORK_GIB, check_fits, engine_arguments
from serve.messages import EngineOptions
from tests.support.scripted import build_test_policy
from tests.support.tiny_model import build_tiny_model

pytestmark = pytest.mark.ray

LIMIT_S = 120.0


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    build_tiny_model(tmp_path / "model", seed=0)
    return tmp_path / "model"


def engine_options(model_dir: Path, **engine: Any) -> EngineOptions:
    return EngineOptions(
        engine=EngineConfig(**{"kv_cache_gib": 0.25, "max_num_seqs": 4} | engine),
        model_dir=str(model_dir),
        max_model_len=512,
        seed=0,
        stall_timeout_s=30,
        probe_timeout_s=30,
    )


def failure_of(model_dir: Path, **engine: Any) -> str:
    """Deploy an engine that cannot start; return the message, which must be one sentence."""
    options = engine_options(model_dir, **engine)
    weights = str(model_dir / "weights")
    started = time.monotonic()
    with pytest.raises(EngineError) as caught:
        deploy_engines("broken", options, ResourcesConfig(), weights_directory=weights)
    seconds = time.monotonic() - started
    print(f"{seconds:.1f} s: {caught.value}")
    assert seconds < LIMIT_S
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert "broken-policy-0" not in ray_serve.status().applications
    return str(caught.value)


def test_the_known_options_are_the_fields_of_vllms_arguments() -> None:
    assert vllm_option_names() == {field.name for field in fields(AsyncEngineArgs)}


def test_the_open_section_wins_over_what_is_set_here(tmp_path: Path) -> None:
    section = {"enable_prefix_caching": False, "gpu_memory_utilization": 0.5}
    arguments = engine_arguments(engine_options(tmp_path, vllm=section), share_of_gpu=0.7)
    assert not arguments.enable_prefix_caching
    assert arguments.gpu_memory_utilization == 0.5
    assert arguments.logprobs_mode == "raw_logprobs"


def test_workers_of_one_engine_are_its_own_processes(tmp_path: Path) -> None:
    """In a placement group vLLM would choose Ray's executor, which refuses two GPUs in a bundle."""
    assert engine_arguments(engine_options(tmp_path)).distributed_executor_backend is None
    pair = engine_arguments(engine_options(tmp_path, tensor_parallel_size=2))
    assert pair.distributed_executor_backend == "mp"


def test_an_engine_beside_a_learner_wants_its_own_share_of_the_gpu(tmp_path: Path) -> None:
    needed = check_fits(tmp_path, 7.5, 20.0, 60.0, "its GPU of 79.2 GiB", WORK_GIB)
    assert needed == 27.5 + WORK_GIB
    assert AsyncEngineArgs.gpu_memory_utilization > needed / 79.2
    arguments = engine_arguments(engine_options(tmp_path), share_of_gpu=needed / 79.2)
    assert arguments.gpu_memory_utilization == needed / 79.2
    with pytest.raises(EngineError) as refused:
        check_fits(tmp_path, 7.5, 60.0, 60.0, "its GPU of 79.2 GiB", WORK_GIB)
    for fact in (
        "70.5 GiB",
        "(60 ",
        " 7.5 ",
        " 3 ",
        "79.2",
        "60.0 GiB free",
        "engine.kv_cache_gib",
    ):
        assert fact in str(refused.value)


def test_cpus_that_others_hold_are_named(local_ray: None, model_dir: Path) -> None:
    @ray.remote(num_cpus=4)
    class Greedy:
        def hold(self) -> None:
            pass

    greedy = Greedy.remote()
    ray.get(greedy.hold.remote(), timeout=30)
    message = failure_of(model_dir)
    ray.kill(greedy)
    assert re.search(r" \d+ s\b.* 1 CPUs.* 0 .* 4 ", message)


def test_a_model_that_is_missing_is_named(local_ray: None, tmp_path: Path) -> None:
    message = failure_of(tmp_path / "nowhere")
    assert re.search(rf"{tmp_path / 'nowhere'} .*directory", message)


def test_memory_that_is_missing_is_counted(local_ray: None, model_dir: Path) -> None:
    message = failure_of(model_dir, kv_cache_gib=5000)
    assert re.search(r" 5000\.\d GiB .*\b5000\b.* GiB free.*engine\.kv_cache_gib", message)


def test_a_wrong_dtype_is_named(local_ray: None, model_dir: Path) -> None:
    assert "float7" in failure_of(model_dir, dtype="float7")


def test_weights_that_are_damaged_are_named_by_their_file(local_ray: None, model_dir: Path) -> None:
    file = model_dir / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    message = failure_of(model_dir)
    assert re.search(rf": {model_dir} .*\bmodel\.safetensors\b", message)
    assert "cast_ray.errors" not in message


def test_layer_without_weights_is_the_first_error_of_vllms_core(
    local_ray: None, model_dir: Path
) -> None:
    file = model_dir / "config.json"
    config = json.loads(file.read_text())
    config["num_hidden_layers"] += 1
    config["layer_types"].append("full_attention")
    file.write_text(json.dumps(config))
    assert re.search(r"ValueError: .*layers\.4\.", failure_of(model_dir))


def test_core_that_dies_of_its_first_request_says_why(local_ray: None, tmp_path: Path) -> None:
    """vLLM starts with such heads on a CPU, and its kernel refuses the first prompt."""
    build_test_policy(tmp_path / "narrow", head_dim=16)
    message = failure_of(tmp_path / "narrow")
    assert re.search(r"probe: .*Unsupported CPU attention configuration.*head_dim=16", message)
    assert "stack trace" not in message


def test_the_first_of_several_exceptions_is_the_cause() -> None:
    written = """(EngineCore pid=7) INFO 11-22 06:00:00 [core.py:1] Error: none yet
(EngineCore pid=7) ERROR 11-22 06:00:01 [core.py:9] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-22 06:00:01 [core.py:9] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 06:00:01 [core.py:9]   File "x.py", line 1, in load
(EngineCore pid=7) ERROR 11-22 06:00:01 [core.py:9]     raise ValueError("no")
(EngineCore pid=7) ERROR 11-22 06:00:01 [core.py:9] torch.OutOfMemoryError: 3 GiB
(EngineCore pid=7) Process EngineCore:
(EngineCore pid=7) RuntimeError: failed, see above
"""
    assert first_error(written) == "OutOfMemoryError: 3 GiB"
    assert first_error("all is well\nnot an Error: at all\n") == ""
