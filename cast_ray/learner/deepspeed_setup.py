"""How DeepSpeed is set up: its operator, its ranks, its engine. With ``learner``, all that uses it.

DeepSpeed picks its accelerator when it is imported: a process without a GPU has
``DS_ACCELERATOR=cpu`` in its environment before that.
"""

from __future__ import annotations

import fcntl
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch.utils.cpp_extension import get_default_build_root
from transformers.modeling_layers import GradientCheckpointingLayer

from cast_ray.errors import EnvironmentSetupError, LearnerError
from cast_ray.learner.lora import add_adapters
from cast_ray.learner.policy import PackedPolicy, load_policy
from cast_ray.learner.settings import LearnerSettings


def join_ranks(rank: int, world_size: int, address: str, timeout_s: float) -> None:
    """Meet the other ranks at ``address``; ``timeout_s`` holds for every later collective too.

    Raises:
        LearnerError: they did not come.
        EnvironmentSetupError: DeepSpeed cannot compile what it needs on a CPU.
    """
    # DeepSpeed reads its place from the environment. Every rank is a process that sees only its
    # own device, so all are local rank 0.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    os.environ.pop("LOCAL_SIZE", None)
    load_cpu_operator()
    try:
        deepspeed.init_distributed(
            auto_mpi_discovery=False,
            verbose=False,
            timeout=timedelta(seconds=timeout_s),
            init_method=address,
            rank=rank,
            world_size=world_size,
        )
    except RuntimeError as error:
        raise LearnerError(
            f"learner rank {rank} met not all of its {world_size} ranks at {address} within "
            f"{timeout_s} s: see whether they started, and whether the port is free ({error})"
        ) from error


def operators_root() -> Path:
    """Return where PyTorch keeps the operators that it compiles."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())


def load_cpu_operator() -> None:
    """Load the operator that DeepSpeed needs on a CPU, compiled before or now (half a minute).

    PyTorch guards the compilation with a file that a killed process leaves behind, and every
    later one then waits for ever. Here the kernel holds the lock, which dies with its owner, and
    a file that is there all the same is removed.

    Raises:
        EnvironmentSetupError: it cannot be compiled.
    """
    accelerator: Any = get_accelerator()  # Any: annotated as None
    if accelerator.device_name() != "cpu":
        return
    builder = accelerator.create_op_builder("ShareMemCommBuilder")
    root = operators_root()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "cast_ray.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left_over in root.rglob(f"{builder.name}/lock"):
            left_over.unlink(missing_ok=True)
        try:
            builder.load(verbose=False)
        except (RuntimeError, ImportError) as error:
            raise EnvironmentSetupError(
                f"DeepSpeed cannot compile its CPU operator in {root}: see that g++ and ninja "
                f"are installed and the directory can be written ({error})"
            ) from error


def trainable_policy(settings: LearnerSettings) -> PackedPolicy:
    """Return the policy as it is to be trained, with adapters if they are asked for.

    Raises:
        ModelError: its directory holds no complete causal language model.
    """
    model = load_policy(Path(settings.model_dir), dtype=getattr(torch, settings.dtype))
    if settings.lora_rank:
        add_adapters(model, rank=settings.lora_rank, alpha=settings.lora_alpha)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return PackedPolicy(model, tokens_per_logit_chunk=settings.tokens_per_logit_chunk)


def start_engine(policy: PackedPolicy, settings: LearnerSettings) -> Any:
    """Return DeepSpeed's engine around a policy.

    Any, because DeepSpeed annotates its engine with what it is before it is set up.
    """
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    if settings.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(trained, lr=settings.lr)
    else:
        optimizer = torch.optim.AdamW(
            trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay
        )
    zero: dict[str, Any] = {"stage": settings.zero_stage}  # Any: DeepSpeed's own keys
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {
        **_precision(settings),
        # One "accumulation step" and boundaries set by hand: DeepSpeed then scales nothing, and
        # the number of micro-batches can differ from step to step.
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.max_grad_norm,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": settings.optimizer == "sgd",
        # PyTorch's steps on the CPU as well; DeepSpeed's own is one more compilation.
        "zero_force_ds_cpu_optimizer": False,
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }
    engine, *_ = deepspeed.initialize(model=policy, optimizer=optimizer, config=config)
    # Never in training mode: dropout would move the ratio off 1 without any update. The layers
    # alone, not what is in them, ask for that mode when they drop their activations.
    engine.eval()
    for module in policy.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = settings.gradient_checkpointing
    return engine


def start_reference(settings: LearnerSettings) -> Any:
    """Return the frozen reference model as a function like the policy; in pieces at stage 3.

    Any: a module, or DeepSpeed's engine around it.

    Raises:
        ModelError: its directory holds no complete causal language model.
    """
    directory = Path(settings.reference_dir or settings.model_dir)
    model = load_policy(directory, dtype=getattr(torch, settings.dtype)).requires_grad_(False)
    policy = PackedPolicy(model, tokens_per_logit_chunk=settings.tokens_per_logit_chunk).eval()
    if settings.zero_stage < 3:
        accelerator: Any = get_accelerator()  # Any: annotated as None
        return policy.to(accelerator.current_device_name())
    config = {**_precision(settings), "zero_optimization": {"stage": 3}}
    engine, *_ = deepspeed.initialize(model=policy, config=config)
    engine.eval()
    return engine


def _precision(settings: LearnerSettings) -> dict[str, Any]:
    """Return what every engine is told; Any: DeepSpeed's own keys."""
    # At stage 0 DeepSpeed would add up bfloat16 gradients; there adapters stay float32.
    is_narrow = settings.dtype == "bfloat16" and settings.zero_stage > 0
    return {
        "train_micro_batch_size_per_gpu": 1,
        "steps_per_print": None,
        "bf16": {"enabled": is_narrow, "check_grad_overflow": True},
    }
