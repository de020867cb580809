"""One rank of two, with real layers of vLLM: checks them against whole tensors, prints JSON.

Run as ``python -m tests.support.rank_layers RANK FILE``; both ranks meet at the file.
"""

from __future__ import annotations

import json
import sys

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)

from serve.weights.check import check_layers

HIDDEN, HEAD, VOCAB = 64, 16, 500
"""The vocabulary is not divisible by the padding: the second rank holds less than the first."""
PARTS = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


class Layers(torch.nn.Module):
    """A layer of each kind, named as in a model."""

    packed_modules_mapping = PARTS

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = VocabParallelEmbedding(VOCAB, HIDDEN)
        for name, num_kv_heads in {"one": 1, "two": 2}.items():
            attention = torch.nn.Module()
            attention.qkv_proj = QKVParallelLinear(HIDDEN, HEAD, 4, num_kv_heads, bias=True)
            setattr(self.model, name, attention)
        self.model.gate_up_proj = MergedColumnParallelLinear(HIDDEN, [96, 96], bias=True)
        self.model.down_proj = RowParallelLinear(96, HIDDEN, bias=True)
        self.model.column = ColumnParallelLinear(HIDDEN, 32, bias=True)
        self.model.router = ReplicatedLinear(HIDDEN, 8, bias=True)
        self.lm_head = ParallelLMHead(VOCAB, HIDDEN)


def load_whole(model: Layers) -> dict[str, torch.Tensor]:
    """Draw whole tensors, let vLLM's own loaders take this rank's share; return the whole ones."""
    generator = torch.Generator().manual_seed(0)
    sent = {}
    for name, module in model.named_modules():
        prefix, _, leaf = name.rpartition(".")
        for field, parameter in module.named_parameters(recurse=False):
            ids = {"qkv_proj": "qkv", "gate_up_proj": (0, 1)}.get(leaf, (None,))
            for part, shard_id in zip(PARTS.get(leaf, [leaf]), ids, strict=True):
                shape = _whole_shape(module, field, shard_id)
                whole = torch.randn(shape, generator=generator).bfloat16()
                sent[f"{prefix}.{part}.{field}".lstrip(".")] = whole
                parameter.weight_loader(parameter, whole, *([] if shard_id is None else [shard_id]))
        if hasattr(module, "quant_method"):
            module.quant_method.process_weights_after_loading(module)
    return sent


def _whole_shape(module: torch.nn.Module, field: str, shard_id: object) -> tuple[int, ...]:
    if isinstance(module, VocabParallelEmbedding):
        return VOCAB, HIDDEN
    if shard_id == "q":
        rows = module.total_num_heads * HEAD
    elif shard_id in ("k", "v"):
        rows = module.total_num_kv_heads * HEAD
    else:
        rows = module.output_size if shard_id is None else module.output_sizes[shard_id]
    return (rows,) if field == "bias" else (rows, module.input_size)


def wrong_names(model: Layers, sent: dict[str, torch.Tensor]) -> list[str]:
    return [check.name for check in check_layers(model, sent) if not check.is_right]


def main(rank: int, meeting: str) -> None:
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(VllmConfig()), torch.no_grad():
        init_distributed_environment(
            world_size=2,
            rank=rank,
            local_rank=rank,
            distributed_init_method=f"file://{meeting}",
            backend="gloo",
        )
        initialize_model_parallel(tensor_model_parallel_size=2)
        model = Layers()
        sent = load_whole(model)
        found = {"": wrong_names(model, sent)}
        for name, tensor in sent.items():
            for place in (0, -1):
                other = tensor.clone()
                other.view(-1)[place] += 1
                found[f"{name}[{place}]"] = wrong_names(model, {**sent, name: other})
        print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
