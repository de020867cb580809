"""The learner's state as float32 tensors that fit any number of ranks and any ZeRO stage.

DeepSpeed keeps weights and moments in pieces that depend on the number of ranks and the ZeRO
stage, and its own checkpoints are pickle files for one number of ranks. Here each trained parameter
is gathered, one at a time, and written under its Hugging Face name; a tied weight is written once.
Every rank calls the same functions at the same time.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed import comm
from deepspeed.accelerator import get_accelerator
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
)
from safetensors.torch import load_file, save_file
from torch import Tensor

from cast_ray.errors import LearnerError
from cast_ray.learner.state_shards import StoredTensor, stored_tensors, write_shards

logger = logging.getLogger(__name__)

_WEIGHT = "weight"
_MOMENTS = ("exp_avg", "exp_avg_sq")
"""PyTorch's names for AdamW's running means of the gradient and of its square."""


def num_updates(engine: Any) -> int:
    """Return the optimizer's own count of its updates; 0 if it has no state."""
    counts = {int(state["step"]) for state in _optimizer_states(engine) if "step" in state}
    assert len(counts) <= 1, "all parameters take every update"
    return counts.pop() if counts else 0


def write_state(engine: Any, model: torch.nn.Module, directory: Path) -> None:
    """Write weights, and moments if there are any; rank 0 writes.

    Args:
        engine: DeepSpeed's; Any, because it annotates itself with what it is before its set-up.
        model: in the engine.
        directory: exists, without any other state.
    """
    parameters = _trained(model)
    for kind in (_WEIGHT, *_moments(engine)):
        # One parameter at a time; all ranks must take all.
        gathered = ((name, _whole(engine, weight, kind)) for name, weight in parameters.items())
        if comm.get_rank() == 0:
            write_shards(gathered, directory, kind=kind)
        else:
            deque(gathered, maxlen=0)


def read_state(engine: Any, model: torch.nn.Module, directory: Path, *, num_updates: int) -> None:
    """Set weights, moments and the count of updates to those of ``write_state``.

    Args:
        engine: of any number of ranks and stage, fresh or not.
        model: in the engine.
        directory: that was written to; assumed to be complete.
        num_updates: what ``num_updates`` returned then.

    Raises:
        LearnerError: the state is of other parameters; nothing was changed.
    """
    parameters = _trained(model)
    stored = {_WEIGHT: _stored(parameters, directory, _WEIGHT)}
    if num_updates:
        stored |= {kind: _stored(parameters, directory, kind) for kind in _MOMENTS}
        if not _moments(engine):
            _make_moments(engine)
    for kind in (_WEIGHT, *_moments(engine)):
        for name, weight in parameters.items():
            # Nothing is stored before the first update, which starts with zeros.
            is_stored = kind in stored
            value = stored[kind][name].read() if is_stored else torch.zeros(_shape(weight))
            _set(engine, weight, kind, value)
    for state in _optimizer_states(engine):
        if "step" in state:
            state["step"].fill_(num_updates)


def write_random_states(directory: Path) -> None:
    """Write this rank's random states, one file per rank."""
    save_file(_random_states(), _random_file(directory))


def read_random_states(directory: Path, *, seed: int) -> None:
    """Set this rank's random states to those that the rank of the same number wrote.

    Args:
        directory: that was written to.
        seed: for a rank that wrote none, or had another kind of device.
    """
    path = _random_file(directory)
    states = load_file(path) if path.is_file() else {}
    accelerator: Any = get_accelerator()  # Any: annotated as None
    if states.keys() != _random_states().keys():
        logger.info(
            "learner rank %d: no random states in %s: seeded with %d", comm.get_rank(), path, seed
        )
        torch.manual_seed(seed)
        accelerator.manual_seed_all(seed)
        return
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            accelerator.set_rng_state(state)


def _trained(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return what the optimizer changes, by name; a tied weight once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _random_states() -> dict[str, Tensor]:
    """Return a state by kind of device, uint8."""
    accelerator: Any = get_accelerator()  # Any: annotated as None
    device = {accelerator.device_name(): accelerator.get_rng_state()}
    return {**device, "cpu": torch.get_rng_state()}


def _random_file(directory: Path) -> Path:
    return directory / f"random_states-{comm.get_rank():05d}.safetensors"


def _whole(engine: Any, weight: Tensor, kind: str) -> Tensor:
    """Return a parameter's complete float32 value."""
    if engine.zero_optimization_stage() == 0:
        return _at_stage_0(engine, weight, kind)
    found = (
        safe_get_full_fp32_param(weight)
        if kind == _WEIGHT
        else safe_get_full_optimizer_state(weight, kind)
    )
    assert found is not None, "DeepSpeed knows every trained parameter"
    return found


@torch.no_grad()
def _set(engine: Any, weight: Tensor, kind: str, value: Tensor) -> None:
    """Set a parameter's float32 weight and the narrow one that follows from it, or a moment."""
    stage = engine.zero_optimization_stage()
    if stage == 0:
        _at_stage_0(engine, weight, kind).copy_(value)
        return
    if kind != _WEIGHT:
        if stage == 3:
            safe_set_local_optimizer_state(weight, _own_piece(weight, value), kind)
        else:
            safe_set_full_optimizer_state(weight, value, kind)
        return
    if stage == 3:
        safe_set_local_fp32_param(weight, _own_piece(weight, value))
    else:
        safe_set_full_fp32_param(weight, value)
    with deepspeed.zero.GatheredParameters([weight], modifier_rank=0, enabled=stage == 3):
        if stage < 3 or comm.get_rank() == 0:
            weight.copy_(value)


def _at_stage_0(engine: Any, weight: Tensor, kind: str) -> Tensor:
    """Return the tensor itself: PyTorch's optimizer works on the parameters, all float32."""
    return weight if kind == _WEIGHT else engine.basic_optimizer.state[weight][kind]


def _own_piece(weight: Any, value: Tensor) -> Tensor:
    """Return this rank's piece of a parameter at stage 3, the last one with zeros at its end.

    Any: DeepSpeed attaches the piece to the parameter. ``safe_set_full_fp32_param`` cuts pieces
    without that padding, and fails if the ranks do not divide the parameter.
    """
    size = weight.ds_tensor.numel()
    piece = torch.zeros(size)
    found = value.flatten()[comm.get_rank() * size :][:size]
    piece[: found.numel()] = found
    return piece


def _make_moments(engine: Any) -> None:
    """Let DeepSpeed create moments, by an update at learning rate 0 with a gradient of zeros.

    Before its first update an optimizer has none, and DeepSpeed does not know its pieces of them.
    The update changes the count of updates, which the caller sets.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = 0.0
    tokens = torch.zeros(1, 2, dtype=torch.int64, device=engine.device)
    places = torch.arange(2, device=engine.device)
    logprobs, _ = engine(tokens, places[None], (2,), places[:1])
    engine.set_gradient_accumulation_boundary(True)
    engine.backward(logprobs.sum() * 0.0)
    engine.step()
    if not _moments(engine):
        raise LearnerError("the policy's logprobs are not finite: resume from an older checkpoint")


def _moments(engine: Any) -> tuple[str, ...]:
    """Return the kinds of moments that the optimizer holds now; the same on every rank."""
    has_moments = any(_MOMENTS[0] in state for state in _optimizer_states(engine))
    return _MOMENTS if has_moments else ()


def _optimizer_states(engine: Any) -> list[dict[str, Any]]:
    """Return the state of each of the optimizer's tensors: parameters, or flat pieces."""
    return list(engine.basic_optimizer.state.values())


def _stored(parameters: dict[str, Tensor], directory: Path, kind: str) -> dict[str, StoredTensor]:
    """Return what is stored of a kind, after checking names and shapes."""
    stored = stored_tensors(directory, kind=kind)
    there = {name: tensor.shape for name, tensor in stored.items()}
    here = {name: _shape(weight) for name, weight in parameters.items()}
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise LearnerError(
                f"{directory} is of another model: {name} has shape {there.get(name)} there and "
                f"{here.get(name)} here; resume with the model that the run began with"
            )
    return stored


def _shape(weight: Any) -> tuple[int, ...]:
    """Return a parameter's full shape, also if stage 3 has split it."""
    return tuple(weight.ds_shape if hasattr(weight, "ds_id") else weight.shape)
