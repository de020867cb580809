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

from cast_ray.errors import EnvironmentSetupError, LearnerError
from cast_ray.learner_settings import LearnerSettings


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
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
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


def start_engine(model: torch.nn.Module, settings: LearnerSettings) -> Any:
    """Return DeepSpeed's engine around a model.

    Any, because DeepSpeed annotates its engine with what it is before it is set up.
    """
    if settings.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    else:
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
    config = {
        # One "accumulation step" and boundaries set by hand: DeepSpeed then scales nothing, and
        # the number of micro-batches can differ from step to step.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.max_grad_norm,
        "steps_per_print": None,
        "zero_optimization": {"stage": settings.zero_stage},
        "zero_allow_untested_optimizer": settings.optimizer == "sgd",
        "bf16": {"enabled": settings.dtype == "bfloat16", "check_grad_overflow": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine
