"""Low-rank adapters on a policy: added, disabled for a moment, and merged into the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear
from torch import Tensor
from transformers import PreTrainedModel

_NAME = "default"
_OF_ADAPTED = ".base_layer."


def add_adapters(model: PreTrainedModel, *, rank: int, alpha: int) -> None:
    """Add an adapter to every linear layer but the output head; then only adapters are trained.

    Adapters are always float32: without ZeRO the optimizer works on them directly, and a bfloat16
    weight would lose small updates.

    Args:
        model: changed in place. Its output is unchanged until the first update.
        rank: of the adapters.
        alpha: an adapter's output counts ``alpha / rank`` times.
    """
    model.add_adapter(
        LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.0),
        adapter_name=_NAME,
    )
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


@contextmanager
def without_adapters(model: PreTrainedModel) -> Iterator[None]:
    """Disable the adapters inside the block."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


@torch.no_grad()
def merged_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return all weights with their adapters added, under the names of the model without them.

    The sum of a weight and its adapter is float32: rounding it to the weight's type loses what is
    below that type's precision.
    """
    found = {
        name.replace(_OF_ADAPTED, "."): weight
        for name, weight in model.state_dict(keep_vars=True).items()
        if ".lora_" not in name
    }
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            weight = module.get_base_layer().weight
            assert isinstance(weight, Tensor)
            found[f"{name}.weight"] = weight.float() + module.get_delta_weight(_NAME).float()
    return found
