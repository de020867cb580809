"""How DeepSpeed is set up: its operator, its ranks, its engine.

DeepSpeed picks its accelerator when it is imported: a process without a GPU needs
``DS_ACCELERATOR=cpu`` in its environment before that.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from filelock import FileLock
from torch.utils.cpp_extension import get_default_build_root
from transformers.modeling_layers import GradientCheckpointingLayer

from cast_ray.config.learning import LearnerConfig
from cast_ray.errors import EnvironmentSetupError, LearnerError
from cast_ray.learner.lora import add_adapters
from cast_ray.learner.policy import PackedPolicy, load_policy
from cast_ray.learner.settings import LearnerSettings


def join_ranks(rank: int, world_size: int, address: str, timeout_s: float) -> None:
    """Meet the other ranks at an open store; ``timeout_s`` bounds every later collective too.

    Raises:
        LearnerError: they did not arrive in time.
        EnvironmentSetupError: DeepSpeed cannot compile what it needs on a CPU.
    """
    # DeepSpeed reads its rank from the environment. Every rank is a process that sees only its
    # own device, so all are local rank 0.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK="0")
    # The store is open: PyTorch's own of rank 0 would listen at all addresses of its host.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
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
            f"learner rank {rank} did not meet all {world_size} ranks at {address} within "
            f"{timeout_s} s: check that they started and reach that address ({error})"
        ) from error


def operators_root() -> Path:
    """Return where PyTorch keeps the operators that it compiles."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())


def load_cpu_operator() -> None:
    """Load the operator that DeepSpeed needs on a CPU; the first time it compiles (half a minute).

    PyTorch guards the compilation with a file that a killed process leaves behind, so that every
    later one waits forever. Here the kernel holds the lock, which ends with its owner, and a file
    left behind is removed.

    Raises:
        EnvironmentSetupError: it cannot be compiled.
    """
    accelerator: Any = get_accelerator()  # Any: annotated as None
    if accelerator.device_name() != "cpu":
        return
    builder = accelerator.create_op_builder("ShareMemCommBuilder")
    root = operators_root()
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / "cast_ray.lock"):
        for left_over in root.rglob(f"{builder.name}/lock"):
            left_over.unlink(missing_ok=True)
        try:
            builder.load(verbose=False)
        except (RuntimeError, ImportError) as error:
            raise EnvironmentSetupError(
                f"DeepSpeed cannot compile its CPU operator in {root}: check that g++ and ninja "
                f"are installed and that the directory is writable ({error})"
            ) from error


def trainable_policy(settings: LearnerSettings) -> PackedPolicy:
    """Return the policy as it is trained, with adapters if the configuration asks for them.

    Raises:
        ModelError: its directory holds no complete causal language model.
    """
    config = settings.config
    model = load_policy(Path(settings.model_dir), dtype=getattr(torch, config.dtype))
    if config.lora_rank:
        add_adapters(model, rank=config.lora_rank, alpha=config.lora_alpha)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return PackedPolicy(model, tokens_per_logit_chunk=config.tokens_per_logit_chunk)


def start_engine(policy: PackedPolicy, settings: LearnerSettings) -> Any:
    """Return DeepSpeed's engine around a policy.

    Any, because DeepSpeed annotates its engine with what it is before it is set up.
    """
    config = settings.config
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    if settings.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(trained, lr=config.lr)
    else:
        optimizer = torch.optim.AdamW(
            trained,
            lr=config.lr,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
    zero: dict[str, Any] = {"stage": config.zero_stage}  # Any: DeepSpeed's own keys
    if config.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu"}
    options = {
        **_precision(config),
        # One "accumulation step" and boundaries set by hand: DeepSpeed then scales nothing, and
        # the number of micro-batches can differ from step to step.
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.max_grad_norm,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": settings.optimizer == "sgd",
        # PyTorch's steps on the CPU as well; DeepSpeed's own is one more compilation.
        "zero_force_ds_cpu_optimizer": False,
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }
    engine, *_ = deepspeed.initialize(model=policy, optimizer=optimizer, config=options)
    # Never in training mode: dropout would move the ratio off 1 without any update. Only the
    # layers themselves, not their parts, need that mode to drop their activations.
    engine.eval()
    for module in policy.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = config.gradient_checkpointing
    return engine


def start_reference(settings: LearnerSettings) -> Any:
    """Return the frozen reference model as a function like the policy; in pieces at stage 3.

    Any: a module, or DeepSpeed's engine around it.

    Raises:
        ModelError: its directory holds no complete causal language model.
    """
    directory, config = Path(settings.reference_dir or settings.model_dir), settings.config
    model = load_policy(directory, dtype=getattr(torch, config.dtype)).requires_grad_(False)
    policy = PackedPolicy(model, tokens_per_logit_chunk=config.tokens_per_logit_chunk).eval()
    if config.zero_stage < 3:
        accelerator: Any = get_accelerator()  # Any: annotated as None
        return policy.to(accelerator.current_device_name())
    options = {**_precision(config), "zero_optimization": {"stage": 3}}
    engine, *_ = deepspeed.initialize(model=policy, config=options)
    engine.eval()
    return engine


def _precision(config: LearnerConfig) -> dict[str, Any]:
    """Return the options that every engine has; Any: DeepSpeed's own keys."""
    # At stage 0 DeepSpeed would add up bfloat16 gradients; there adapters stay float32.
    is_narrow = config.dtype == "bfloat16" and config.zero_stage > 0
    return {
        "train_micro_batch_size_per_gpu": 1,
        "steps_per_print": None,
        "bf16": {"enabled": is_narrow, "check_grad_overflow": True},
    }
