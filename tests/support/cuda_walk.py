"""A weight update of Qwen3-4B on a fake GPU, by the engine's own receiver; prints JSON.

vLLM's own model class and layers, with fake tensors. Its layer-wise reload cannot run on them,
because its parameters are of a class that fake tensors lose: real engines on CPU run that. On CUDA,
layers are used as they are; vLLM's CPU build would pack them, which is left out here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, Qwen3Config
from vllm.config import (
    CacheConfig,
    ModelConfig,
    VllmConfig,
    WeightTransferConfig,
    set_current_vllm_config,
)
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers import utils
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from cast_ray.weights.file import TensorSpec
from cast_ray.weights.manifest import WeightManifest
from serve.weights import receiver
from serve.weights.check import compare_layers
from tests.support.fake_cuda import CUDA, fake_cuda

CONFIG = Qwen3Config(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
    architectures=["Qwen3ForCausalLM"],
    dtype="bfloat16",
)


def devices(tensors: object) -> list[str]:
    return sorted({str(tensor.device) for tensor in tensors})


def walk(config: VllmConfig) -> dict[str, object]:
    with fake_cuda(), CUDA:
        model = Qwen3ForCausalLM(vllm_config=config)
        for layer in model.modules():
            if hasattr(layer, "quant_method"):
                layer.quant_method.process_weights_after_loading(layer)
        with torch.device("cpu"):
            learner = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
        published = dict(learner.named_parameters())
        specs = [
            TensorSpec(name=name, shape=tuple(tensor.shape), dtype="bfloat16")
            for name, tensor in published.items()
        ]
        manifest = WeightManifest(
            version=1, path="", num_bytes=0, checksum="", piece_bytes=8, tensors=tuple(specs)
        )
        receiver.read_weights = lambda manifest: published
        engine = receiver.WeightReceiver(
            WeightTransferConfig(backend=receiver.FILE_BACKEND), config, CUDA, model
        )
        acquired = engine.acquire(manifest, None)
        compared = compare_layers(model, acquired)
        try:
            compare_layers(model, published)
            as_published = ""
        except RuntimeError as error:
            as_published = type(error).__name__
        return {
            "parameters": sum(tensor.numel() for tensor in model.parameters()),
            "published": devices(published.values()),
            "acquired": devices(acquired.values()),
            "same": sum(tensor.shape == published[name].shape for name, tensor in acquired.items()),
            "compared": len(compared),
            "results": devices(one.is_same for one in compared),
            "rounding": devices(one.rounding for one in compared if one.rounding is not None),
            "as_published": as_published,
        }


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    CONFIG.save_pretrained(folder)
    torch.set_default_dtype(torch.bfloat16)
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: setattr(
        layer, "cpu_linear", functional.linear
    )
    receiver.register()
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096
        ),
        cache_config=CacheConfig(block_size=32),
    )
    with set_current_vllm_config(config), torch.no_grad():
        init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            distributed_init_method=f"file://{folder}/meeting",
            backend="gloo",
        )
        initialize_model_parallel(1)
        print(json.dumps(walk(config)))


if __name__ == "__main__":
    main()
