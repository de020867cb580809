"""The learner: the policy's weights, optimizer and checkpoints, with DeepSpeed.

A ``Learner`` is one rank and does not know Ray; all ranks call the same method with the same
arguments at the same time, and each computes its own share. Tables hold columns of
``cast_ray.rollout.trajectory``; letters as in ``cast_ray.learner.batching``.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import deepspeed
import numpy as np
import torch
from deepspeed import comm
from torch import Tensor

from cast_ray.algorithms import losses
from cast_ray.algorithms.objective import (
    LossShare,
    TokenInputs,
    correct_rollout,
    mean_weights,
    policy_loss,
    text_loss,
)
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.learner.batching import (
    PackedBatch,
    Rows,
    flat_column,
    loss_mask,
    rank_micro_batches,
    row_offsets,
    rows_in_loss,
)
from cast_ray.learner.checkpoint import load_checkpoint, save_checkpoint
from cast_ray.learner.deepspeed_setup import (
    join_ranks,
    start_engine,
    start_reference,
    trainable_policy,
)
from cast_ray.learner.lora import merged_weights, without_adapters
from cast_ray.learner.policy import save_policy
from cast_ray.learner.settings import LearnerSettings, UpdateStats
from cast_ray.runs.remote_directories import written_at
from cast_ray.runs.uris import PathOrUri

_LossShareOf: TypeAlias = Callable[[PackedBatch, Tensor, Tensor], LossShare]
"""From a micro-batch, its ``[n]`` learner_logprobs and its ``[n]`` entropies."""


class Learner:
    """One rank of the learner."""

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
            LearnerError: the other ranks did not arrive within ``timeout_s``.
        """
        self._settings, self._rank, self._world_size = settings, rank, world_size
        torch.set_num_threads(settings.config.num_threads)
        torch.manual_seed(settings.seed)
        self._policy = trainable_policy(settings)
        join_ranks(
            rank, world_size, f"tcp://{master_addr}:{master_port}", settings.config.timeout_s
        )
        self._engine = start_engine(self._policy, settings)
        self._reference: Any = None  # Any: a module, or DeepSpeed's engine around it

    def logprobs(self, table: Rows) -> np.ndarray:
        """Return the logprob of every token in the loss under the current weights.

        Args:
            table: columns of ``ROLLOUT_SCHEMA``.

        Returns:
            ``[N]`` float32 in row order, on every rank; 0 where the policy wrote no token.
        """
        return self._logprobs_by(self._engine, table)

    def reference_logprobs(self, table: Rows) -> np.ndarray:
        """Return what ``logprobs`` would under the reference model, which is loaded on first use.

        With adapters and no other model named, that is the policy without them.
        """
        if self._settings.config.lora_rank and not self._settings.reference_dir:
            with without_adapters(self._policy.model):
                return self._logprobs_by(self._engine, table)
        if self._reference is None:
            self._reference = start_reference(self._settings)
        return self._logprobs_by(self._reference, table)

    def update(
        self,
        table: Rows,
        rows: np.ndarray,
        objective: ObjectiveConfig,
        start_logprobs: np.ndarray,
        reference_logprobs: np.ndarray | None = None,
    ) -> UpdateStats:
        """Take one optimizer step on a mini-batch (paper, eq:grpo_objective).

        The result does not depend on the number of micro-batches and ranks. A loss or gradient
        that is not finite leaves the weights unchanged, which the stats report.

        Args:
            table: columns of ``BATCH_SCHEMA``.
            rows: row indices of the mini-batch.
            objective: what to minimise.
            start_logprobs: ``[N]``, what ``logprobs`` returned at the start of the step (pi_old).
            reference_logprobs: ``[N]``, what ``reference_logprobs`` returned; None if the
                objective has no divergence.

        Raises:
            TrajectoryError: the mini-batch has no token in the loss.
        """
        corrected = correct_rollout(
            flat_column(table, "rollout_logprobs"), start_logprobs, objective
        )
        in_loss = rows_in_loss(loss_mask(table) & corrected.is_kept, table, rows)
        start, advantages, rollout_weights, weights = (
            self._to_device(values)
            for values in (
                start_logprobs,
                flat_column(table, "token_advantages"),
                corrected.weights,
                mean_weights(in_loss, row_offsets(table), objective),
            )
        )
        reference = None if reference_logprobs is None else self._to_device(reference_logprobs)

        def share(batch: PackedBatch, logprobs: Tensor, entropy: Tensor) -> LossShare:
            index = batch.token_index
            tokens = TokenInputs(
                learner_logprobs=logprobs,
                entropy=entropy,
                start_logprobs=start[index],
                advantages=advantages[index],
                reference_logprobs=None if reference is None else reference[index],
                rollout_weights=rollout_weights[index],
                weights=weights[index],
                trajectory=batch.trajectory,
            )
            return policy_loss(objective, tokens)

        return self._step(
            table, rows, share, num_tokens=int(in_loss.sum()), lr=self._settings.config.lr
        )

    def supervised_update(self, table: Rows, rows: np.ndarray, *, lr: float) -> UpdateStats:
        """Take one optimizer step on the cross-entropy of the tokens in the loss.

        Args:
            table: the columns ``token_ids`` and ``loss_mask`` are enough.
            rows: row indices of the mini-batch.
            lr: learning rate of this step.

        Raises:
            TrajectoryError: as in ``update``.
        """
        in_loss = rows_in_loss(loss_mask(table), table, rows)
        weights = self._to_device(losses.token_mean_weights(in_loss))

        def share(batch: PackedBatch, logprobs: Tensor, entropy: Tensor) -> LossShare:
            return text_loss(logprobs, entropy, weights[batch.token_index])

        return self._step(table, rows, share, num_tokens=int(in_loss.sum()), lr=lr)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return torch.device(self._engine.device)

    def state_for_sync(self) -> dict[str, Tensor]:
        """Return all weights under their Hugging Face names on rank 0, nothing on the others.

        A tied output head appears once, under the embedding's name. All ranks must call this.
        The tensors may be the learner's own: read them before the next update, and do not write.
        """
        model = self._policy.model
        weights = (
            merged_weights(model)
            if self._settings.config.lora_rank
            else model.state_dict(keep_vars=True)
        )
        state: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, weight in weights.items():
            if id(weight) in seen:
                continue
            seen.add(id(weight))
            is_sharded = hasattr(weight, "ds_id")
            with deepspeed.zero.GatheredParameters([weight], enabled=is_sharded):
                if self._rank == 0:
                    # What is gathered is freed after this block.
                    own = weight.detach()
                    state[name] = own.to("cpu", copy=True) if is_sharded else own
        return state

    def save_model(self, directory: PathOrUri) -> None:
        """Write the policy as a Hugging Face directory, completely or not at all."""
        state = self.state_for_sync()
        if self._rank == 0:
            with written_at(directory) as here:
                save_policy(
                    self._policy.model,
                    state,
                    here,
                    tokenizer_dir=Path(self._settings.model_dir),
                    pieces=self._settings.pieces,
                )
        comm.barrier()

    def save_checkpoint(self, directory: PathOrUri, client_state: dict[str, Any]) -> None:
        """Write all that training needs to resume bit for bit, completely or not at all.

        Arguments and errors as in ``cast_ray.learner.checkpoint``.
        """
        save_checkpoint(
            self._engine,
            self._policy.model,
            directory,
            settings=self._settings,
            client_state=client_state,
        )

    def load_checkpoint(self, directory: PathOrUri) -> dict[str, Any]:
        """Restore what ``save_checkpoint`` wrote; return the caller's part of it.

        The number of ranks and the ZeRO stage may differ from those of the learner that wrote it.

        Raises:
            RunDirectoryError: the checkpoint is missing, incomplete or damaged.
            LearnerError: it is of another model, type, optimizer or kind of adapter.
        """
        return load_checkpoint(self._engine, self._policy.model, directory, settings=self._settings)

    def close(self) -> None:
        """Leave the other ranks; nothing can be called after this."""
        self._engine.destroy()
        comm.destroy_process_group()

    def _step(
        self,
        table: Rows,
        rows: np.ndarray,
        loss_share: _LossShareOf,
        *,
        num_tokens: int,
        lr: float,
    ) -> UpdateStats:
        started = time.perf_counter()
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        totals = torch.zeros(4, dtype=torch.float64, device=self._engine.device)
        batches = self._micro_batches(table, rows)
        for i, batch in enumerate(batches):
            logprobs, entropy = self._forward(self._engine, batch)
            share = loss_share(batch, logprobs, entropy)
            totals += torch.stack([share.loss.detach(), share.num_clipped, share.entropy, share.kl])
            loss = share.loss
            is_last = i == len(batches) - 1
            if is_last:
                # Before any gradient is applied: one share that is not finite must stop every rank.
                self._add_up(totals)
                loss = loss * torch.where(totals[0].isfinite(), 1.0, math.nan)
            self._engine.set_gradient_accumulation_boundary(is_last)
            # DeepSpeed averages over ranks what already adds up to the mean.
            self._engine.backward(loss * self._world_size)
        loss, num_clipped, entropy, kl = totals.tolist()
        norm = self._apply_gradient()
        return UpdateStats(
            is_applied=math.isfinite(norm),
            loss=loss,
            grad_norm=norm,
            num_tokens=num_tokens,
            clip_fraction=num_clipped / num_tokens,
            entropy=entropy / num_tokens,
            kl=kl / num_tokens,
            seconds=time.perf_counter() - started,
        )

    def _apply_gradient(self) -> float:
        """Return the gradient's norm after the optimizer step; NaN if no step was taken."""
        if self._settings.config.zero_stage == 0:
            gradients = [p.grad for p in self._policy.parameters() if p.grad is not None]
            norm = float(torch.nn.utils.get_total_norm(gradients))
            if not math.isfinite(norm):
                self._policy.zero_grad()
                return math.nan
            self._engine.step()
            return norm
        # From stage 1 on gradients are in pieces: DeepSpeed computes the norm itself, and skips the
        # step if it is not finite.
        self._engine.step()
        was_applied = self._engine.was_step_applied()
        return float(self._engine.get_global_grad_norm()) if was_applied else math.nan

    def _logprobs_by(self, policy: Any, table: Rows) -> np.ndarray:
        flat = torch.zeros(int(row_offsets(table)[-1]), device=self._engine.device)
        with torch.no_grad():
            for batch in self._micro_batches(table, np.arange(table.num_rows)):
                flat[batch.token_index] = self._forward(policy, batch)[0]
        self._add_up(flat)
        return flat.cpu().numpy()

    def _forward(self, policy: Any, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        return policy(batch.token_ids, batch.position_ids, batch.sequence_lengths, batch.predicts)

    def _micro_batches(self, table: Rows, rows: np.ndarray) -> list[PackedBatch]:
        batches = rank_micro_batches(
            table,
            rows,
            loss_mask(table),
            tokens_per_micro_batch=self._settings.config.tokens_per_micro_batch,
            rank=self._rank,
            world_size=self._world_size,
        )
        return [batch.to(self._engine.device) for batch in batches]

    def _to_device(self, values: np.ndarray) -> Tensor:
        with warnings.catch_warnings():
            # Torch warns that Arrow's memory is read-only; nothing here writes to it.
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(values).to(self._engine.device)

    def _add_up(self, values: Tensor) -> None:
        """Sum a tensor over all ranks, in place."""
        comm.all_reduce(values, op=comm.ReduceOp.SUM)
