"""Adapters: nothing at their start, one sum with the weights at their end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from cast_ray.learner.lora import add_adapters, merged_weights, without_adapters

TOKEN_IDS = torch.tensor([[3, 1, 4, 1, 5]])


def build(*, is_tied: bool = False) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        attention_bias=True,
        initializer_range=0.3,
        tie_word_embeddings=is_tied,
    )
    return Qwen3ForCausalLM(config).eval()


def logits(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return model(input_ids=TOKEN_IDS).logits


def train_adapters(model: PreTrainedModel) -> None:
    """Move every adapter far off its start."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += torch.randn(weight.shape, generator=generator)


def test_new_adapters_change_nothing() -> None:
    model = build()
    before = logits(model)

    add_adapters(model, rank=2, alpha=4)

    assert torch.equal(logits(model), before)


def test_adapters_alone_are_trained_on_every_linear_layer_but_the_head() -> None:
    model = build()

    add_adapters(model, rank=2, alpha=4)

    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    layers = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert all(".lora_" in name for name in trained)
    assert len(trained) == 2 * 2 * len(layers)
    assert all(any(layer in name for name in trained) for layer in layers)


def test_trained_adapters_are_gone_for_a_moment_and_back_after_it() -> None:
    model = build()
    before = logits(model)
    add_adapters(model, rank=2, alpha=4)
    train_adapters(model)
    trained = logits(model)

    with without_adapters(model):
        without = logits(model)

    assert torch.equal(without, before)
    assert torch.equal(logits(model), trained)
    assert not torch.allclose(trained, before, atol=0.1)


def test_adapters_are_back_after_an_error_and_still_trained() -> None:
    model = build()
    add_adapters(model, rank=2, alpha=4)
    train_adapters(model)
    trained = logits(model)

    with pytest.raises(KeyError), without_adapters(model):
        raise KeyError

    assert torch.equal(logits(model), trained)
    assert any(weight.requires_grad for weight in model.parameters())
    assert all(
        ".lora_" in name for name, weight in model.named_parameters() if weight.requires_grad
    )


@pytest.mark.parametrize("is_tied", [False, True])
def test_merged_weights_in_a_model_without_adapters_give_the_same_logits(is_tied: bool) -> None:
    model, plain = build(is_tied=is_tied), build(is_tied=is_tied)
    add_adapters(model, rank=2, alpha=4)
    train_adapters(model)

    merged = merged_weights(model)
    plain.load_state_dict(merged, strict=True)

    assert merged.keys() == plain.state_dict().keys()
    torch.testing.assert_close(logits(plain), logits(model), rtol=1e-4, atol=1e-4)


def test_an_adapter_counts_alpha_over_rank_times() -> None:
    model = build()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    add_adapters(model, rank=2, alpha=6)
    train_adapters(model)
    name = "model.layers.1.mlp.up_proj"
    layer = model.get_submodule(name)
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight

    merged = merged_weights(model)[f"{name}.weight"]

    torch.testing.assert_close(merged, before[f"{name}.weight"] + 3 * up @ down)


def test_merging_leaves_weights_and_adapters_as_they_are() -> None:
    model = build()
    add_adapters(model, rank=2, alpha=4)
    train_adapters(model)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    merged_weights(model)

    after = model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_a_sum_of_bfloat16_weight_and_adapter_is_not_rounded() -> None:
    model = build().bfloat16()
    add_adapters(model, rank=2, alpha=4)
    train_adapters(model)

    merged = merged_weights(model)

    adapted = merged["model.layers.0.self_attn.q_proj.weight"]
    assert adapted.dtype == torch.float32
    assert not torch.equal(adapted, adapted.bfloat16().float())
    assert merged["model.norm.weight"].dtype == torch.bfloat16
