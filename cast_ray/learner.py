"""The learner: the policy's weights, optimizer and checkpoints in DeepSpeed's hands.

A ``Learner`` is one rank and knows no Ray; all ranks call the same method with the same arguments
at the same time, and each works out its own share. Tables hold columns of
``cast_ray.trajectory``; letters as in ``cast_ray.batching``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import deepspeed
import numpy as np
import pyarrow as pa
import torch
from deepspeed import comm
from deepspeed.accelerator import get_accelerator
from torch import Tensor

from cast_ray import losses
from cast_ray.batching import (
    TokenBatch,
    flat_column,
    num_loss_tokens,
    rank_micro_batches,
    row_offsets,
)
from cast_ray.checkpoint import (
    check_whole,
    make_partial,
    partial_path,
    publish,
    save_refusals_named,
)
from cast_ray.errors import LearnerError
from cast_ray.learner_engine import join_ranks, start_engine
from cast_ray.learner_settings import LearnerSettings, UpdateStats
from cast_ray.policy import HeadInput, load_policy, save_policy

_TAG, _STATE = "deepspeed", "learner.json"

Rows: TypeAlias = pa.Table | pa.RecordBatch
_LossFunction: TypeAlias = Callable[[TokenBatch, Tensor], losses.TokenLoss]
"""From a micro-batch and its ``[B, L]`` learner_logprobs, 0 outside the loss."""


class Learner:
    """One rank of the learner; the module says how ranks are called."""

    def __init__(
        self,
        settings: LearnerSettings,
        *,
        rank: int = 0,
        world_size: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int,
    ) -> None:
        """Load the policy and join the other ranks.

        Raises:
            ModelError: ``model_dir`` holds no complete model with safetensors weights.
            LearnerError: the other ranks did not come within ``timeout_s``.
        """
        self._settings, self._rank, self._world_size = settings, rank, world_size
        torch.set_num_threads(settings.num_threads)
        torch.manual_seed(settings.seed)
        model = load_policy(Path(settings.model_dir), dtype=getattr(torch, settings.dtype))
        self._head_input = HeadInput(model)
        join_ranks(rank, world_size, f"tcp://{master_addr}:{master_port}", settings.timeout_s)
        self._engine = start_engine(model, settings)
        # Never in training mode: dropout would move the ratio off 1 without any update.
        self._engine.eval()
        self._is_spent = False

    def logprobs(self, table: Rows) -> np.ndarray:
        """Return the logprob of every token in the loss under the present weights.

        Args:
            table: columns of ``ROLLOUT_SCHEMA``.

        Returns:
            ``[N]`` float32 in row order, on every rank; 0 where the policy wrote no token.
        """
        flat = torch.zeros(int(row_offsets(table)[-1]), device=self._engine.device)
        with torch.no_grad():
            for batch in self._micro_batches(table, np.arange(table.num_rows)):
                targets = batch.token_ids[batch.loss_mask]
                values = losses.token_logprobs(self._logits(batch), targets)
                flat[batch.token_index[batch.loss_mask]] = values
        self._add_up(flat)
        return flat.cpu().numpy()

    def update(
        self,
        table: Rows,
        rows: np.ndarray,
        start_logprobs: np.ndarray,
        *,
        clip_low: float,
        clip_high: float,
        dual_clip: float,
    ) -> UpdateStats:
        """Take one optimizer step on a mini-batch (paper, eq:grpo_objective).

        The result does not depend on how many micro-batches and ranks share the work.

        Args:
            table: columns of ``BATCH_SCHEMA``.
            rows: row indices of the mini-batch.
            start_logprobs: ``[N]``, what ``logprobs`` returned at the start of the step (pi_old).
            clip_low: this and the next two as in ``losses.clipped_policy_loss``.
            clip_high: see there.
            dual_clip: see there.

        Raises:
            TrajectoryError: the mini-batch has no token in the loss.
            LearnerError: loss or gradient is not finite. The weights are as before the call, and
                this learner refuses further updates.
        """
        device = self._engine.device
        start = torch.tensor(start_logprobs, dtype=torch.float32, device=device)
        advantages = torch.tensor(flat_column(table, "token_advantages"), device=device)

        def policy_loss(batch: TokenBatch, learner_logprobs: Tensor) -> losses.TokenLoss:
            return losses.policy_token_loss(
                learner_logprobs,
                batch.gather(start),
                batch.gather(advantages),
                clip_low=clip_low,
                clip_high=clip_high,
                dual_clip=dual_clip,
            )

        return self._step(table, rows, policy_loss, lr=self._settings.lr)

    def supervised_update(self, table: Rows, rows: np.ndarray, *, lr: float) -> UpdateStats:
        """Take one optimizer step on the cross-entropy of the tokens in the loss.

        Args:
            table: the columns ``token_ids`` and ``loss_mask`` are enough.
            rows: row indices of the mini-batch.
            lr: learning rate of this step.

        Raises:
            TrajectoryError, LearnerError: as in ``update``.
        """

        def text_loss(_batch: TokenBatch, learner_logprobs: Tensor) -> losses.TokenLoss:
            return losses.text_token_loss(learner_logprobs)

        return self._step(table, rows, text_loss, lr=lr)

    def state_for_sync(self) -> dict[str, Tensor]:
        """Return all weights, on the CPU, under their Hugging Face names; nothing beyond rank 0.

        A tied output head is there once, under the embedding's name. All ranks must call this.
        """
        state: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, weight in self._engine.module.state_dict(keep_vars=True).items():
            if id(weight) in seen:
                continue
            seen.add(id(weight))
            with deepspeed.zero.GatheredParameters([weight], enabled=hasattr(weight, "ds_id")):
                if self._rank == 0:
                    state[name] = weight.detach().cpu().clone()
        return state

    def save_model(self, directory: Path) -> None:
        """Write the policy as a Hugging Face directory, whole or not at all."""
        state = self.state_for_sync()
        if self._rank == 0:
            tokenizer_dir = Path(self._settings.model_dir)
            save_policy(self._engine.module, state, directory, tokenizer_dir=tokenizer_dir)
        comm.barrier()

    def save_checkpoint(self, directory: Path, client_state: dict[str, Any]) -> None:
        """Write all that training needs to go on bit for bit, whole or not at all.

        Args:
            directory: on a file system that all ranks share; an older checkpoint is replaced.
            client_state: what ``load_checkpoint`` is to return; JSON values only.

        Raises:
            EnvironmentSetupError: it cannot be written.
        """
        partial = partial_path(directory)
        with save_refusals_named(directory):
            if self._rank == 0:
                make_partial(directory)
                state = {"written_by": self._fingerprint(), "client_state": client_state}
                (partial / _STATE).write_text(json.dumps(state, indent=1))
            comm.barrier()
            self._engine.save_checkpoint(str(partial), tag=_TAG, save_latest=False)
            torch.save(_random_states(), partial / f"random_states_{self._rank}.pt")
            comm.barrier()
            if self._rank == 0:
                publish(partial, directory)
            comm.barrier()

    def load_checkpoint(self, directory: Path) -> dict[str, Any]:
        """Go back to where ``save_checkpoint`` was called; return the caller's part of the state.

        DeepSpeed unpickles its files: load only what your own runs wrote.

        Raises:
            RunDirectoryError: the checkpoint is missing, half-written or cut short.
            LearnerError: it was written with another number of ranks, stage, type or optimizer.
        """
        check_whole(directory)
        state = json.loads((directory / _STATE).read_text())
        if state["written_by"] != self._fingerprint():
            raise LearnerError(
                f"{directory} was written by a learner with {state['written_by']} and this one "
                f"has {self._fingerprint()}: resume with the same settings"
            )
        loaded, _ = self._engine.load_checkpoint(str(directory), tag=_TAG)
        if loaded is None:
            raise LearnerError(f"DeepSpeed found nothing to load in {directory}")
        path = directory / f"random_states_{self._rank}.pt"
        _set_random_states(torch.load(path, weights_only=True, map_location="cpu"))
        return state["client_state"]

    def close(self) -> None:
        """Leave the other ranks; nothing can be called after this."""
        self._engine.destroy()
        comm.destroy_process_group()

    def _step(
        self, table: Rows, rows: np.ndarray, token_loss: _LossFunction, *, lr: float
    ) -> UpdateStats:
        if self._is_spent:
            raise LearnerError("an update of this learner was not finite: start it afresh")
        started = time.perf_counter()
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        num_tokens = num_loss_tokens(table, rows)
        totals = torch.zeros(3, dtype=torch.float64, device=self._engine.device)
        ratio_max = torch.zeros(1, device=self._engine.device)
        batches = self._micro_batches(table, rows)
        for i, batch in enumerate(batches):
            self._engine.set_gradient_accumulation_boundary(i == len(batches) - 1)
            logits = self._logits(batch)
            mask = batch.loss_mask
            selected = losses.token_logprobs(logits, batch.token_ids[mask])
            learner_logprobs = torch.zeros_like(mask, dtype=torch.float32)
            per_token = token_loss(batch, learner_logprobs.masked_scatter(mask, selected))
            share = losses.token_mean(per_token.loss, mask, num_tokens=num_tokens)
            # DeepSpeed averages over ranks what already adds up to the mean.
            self._engine.backward(share * self._world_size)
            entropy = losses.token_entropy(logits.detach()).sum()
            totals += torch.stack([share.detach(), per_token.is_clipped[mask].sum(), entropy])
            ratio_max = torch.maximum(ratio_max, (per_token.ratio * mask).amax())
        self._add_up(totals)
        comm.all_reduce(ratio_max, op=comm.ReduceOp.MAX)
        loss, num_clipped, entropy = totals.tolist()
        return UpdateStats(
            loss=loss,
            grad_norm=self._apply_gradient(loss),
            num_tokens=num_tokens,
            clip_fraction=num_clipped / num_tokens,
            entropy=entropy / num_tokens,
            ratio_max=float(ratio_max),
            seconds=time.perf_counter() - started,
        )

    def _apply_gradient(self, loss: float) -> float:
        """Return the gradient's norm after the optimizer step; raise before it if not finite."""
        norm = math.nan
        if math.isfinite(loss) and self._settings.zero_stage == 0:
            gradients = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
            norm = float(torch.nn.utils.get_total_norm(gradients))
            if math.isfinite(norm):
                self._engine.step()
        elif math.isfinite(loss):
            # From stage 1 on gradients are in pieces: DeepSpeed takes the norm itself, and skips
            # the step when it is not finite.
            self._engine.step()
            if self._engine.was_step_applied():
                norm = float(self._engine.get_global_grad_norm())
        if not math.isfinite(norm):
            self._is_spent = True
            raise LearnerError(
                f"the loss ({loss}) or its gradient is not finite and was not applied: look at "
                "this step's advantages and logprobs, then resume from the last checkpoint"
            )
        return norm

    def _micro_batches(self, table: Rows, rows: np.ndarray) -> list[TokenBatch]:
        batches = rank_micro_batches(
            table,
            rows,
            tokens_per_micro_batch=self._settings.tokens_per_micro_batch,
            rank=self._rank,
            world_size=self._world_size,
        )
        return [batch.to(self._engine.device) for batch in batches]

    def _logits(self, batch: TokenBatch) -> Tensor:
        """Return ``[n, V]`` logits for the n tokens in the loss, in row-major order."""
        self._head_input.wanted = batch.predicts
        return self._engine(input_ids=batch.token_ids, use_cache=False).logits

    def _add_up(self, values: Tensor) -> None:
        """Add up a tensor over all ranks, in place."""
        comm.all_reduce(values, op=comm.ReduceOp.SUM)

    def _fingerprint(self) -> dict[str, Any]:
        kept = ("zero_stage", "dtype", "optimizer")
        settings = asdict(self._settings)
        return {"num_ranks": self._world_size, **{name: settings[name] for name in kept}}


def _random_states() -> dict[str, Tensor]:
    accelerator: Any = get_accelerator()  # Any: annotated as None
    return {"cpu": torch.get_rng_state(), "device": accelerator.get_rng_state()}


def _set_random_states(states: dict[str, Tensor]) -> None:
    accelerator: Any = get_accelerator()  # Any: as above
    torch.set_rng_state(states["cpu"])
    accelerator.set_rng_state(states["device"])
