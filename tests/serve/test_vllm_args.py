"""The open section ``engine.vllm``: merged last for training and serving, and checked early."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from cast_ray.config.load import load_config
from cast_ray.config.train import EngineConfig
from cast_ray.errors import ConfigError
from serve.engine.vllm_args import check_vllm_options, loadable, vllm_arguments
from serve.service.plan import plan_of


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        check_vllm_options(options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_section_is_merged_last() -> None:
    config = load_config(None, ["engine.vllm.block_size=64", "engine.vllm.max_logprobs=7"])
    arguments = vllm_arguments(config.engine, max_model_len=512, seed=3, on_cpu=True, block_size=16)
    assert arguments["block_size"] == 64
    assert arguments["max_logprobs"] == 7
    assert arguments["seed"] == 3


def test_a_folder_whose_name_is_a_pattern_is_found_by_one(tmp_path: Path) -> None:
    plain, odd = tmp_path / "model", tmp_path / "run [1] *"
    odd.mkdir()
    (odd / "model.safetensors").touch()
    assert loadable(plain) == plain
    assert glob.glob(f"{odd}/*.safetensors") == []
    assert len(glob.glob(f"{loadable(odd)}/*.safetensors")) == 1


@pytest.mark.parametrize("on_cpu", [True, False])
def test_code_that_comes_with_a_model_is_not_trusted(*, on_cpu: bool) -> None:
    arguments = vllm_arguments(EngineConfig(), max_model_len=512, seed=0, on_cpu=on_cpu)
    assert arguments["trust_remote_code"] is False


def test_a_nested_option_arrives_as_plain_data() -> None:
    config = load_config(None, ["engine.vllm.compilation_config={cudagraph_mode: NONE}"])
    arguments = vllm_arguments(config.engine, max_model_len=512, seed=0, on_cpu=True)
    assert arguments["compilation_config"] == {"cudagraph_mode": "NONE"}
    assert type(arguments["compilation_config"]) is dict


def test_an_unknown_option_names_the_nearest_one() -> None:
    message = refusal(attention_backnd="FLASH_ATTN")
    assert "engine.vllm.attention_backnd" in message
    assert "engine.vllm.attention_backend" in message.partition(":")[2]


def test_an_unknown_option_that_is_close_to_a_key_of_ours_names_that_key() -> None:
    assert "engine.max_num_seqs" in refusal(max_num_seqss=3)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("seed", "seed"),
        ("model", "policy.path"),
        ("dtype", "engine.dtype"),
        ("weight_transfer_config", "engine.weight_backend"),
        ("tensor_parallel_size", "engine.tensor_parallel_size"),
        ("served_model_name", "--name"),
        ("logprobs_mode", "logprobs"),
        ("generation_config", "sampling"),
        ("worker_extension_cls", "worker"),
        ("trust_remote_code", "code"),
    ],
)
def test_what_must_be_set_elsewhere_is_refused(option: str, remedy: str) -> None:
    message = refusal(**{option: "x"})
    assert f"engine.vllm.{option}" in message
    assert remedy in message.partition(":")[2]


def test_the_shared_function_refuses_too() -> None:
    with pytest.raises(ConfigError, match=r"engine\.vllm\.seed"):
        vllm_arguments(EngineConfig(vllm={"seed": 1}), max_model_len=512, seed=0, on_cpu=True)


def test_what_only_cpus_need_is_set_only_there() -> None:
    of_both, of_cpus = (
        vllm_arguments(EngineConfig(), max_model_len=9000, seed=0, on_cpu=on_cpu)
        for on_cpu in (False, True)
    )
    assert of_cpus | of_both == of_cpus
    assert {name: of_cpus[name] for name in of_cpus.keys() - of_both.keys()} == {
        "block_size": 32,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": 9000,
        "enforce_eager": True,
    }
    eager = EngineConfig(vllm={"enforce_eager": True})
    assert vllm_arguments(eager, max_model_len=9, seed=0, on_cpu=False)["enforce_eager"]


def test_a_service_is_refused_before_its_model_is_looked_for(tmp_path: Path) -> None:
    arguments = {"model": str(tmp_path / "none"), "host": "127.0.0.1"}
    with pytest.raises(ConfigError, match=r"engine\.vllm\.seed"):
        plan_of(arguments | {"overrides": ["engine.vllm.seed=1"]})
