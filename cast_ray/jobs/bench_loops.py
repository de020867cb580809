"""Bare PyTorch loops that the learner is measured against: no DeepSpeed, no ranks, no chunks.

Both take the same update as the learner: clipped surrogate, token-mean, AdamW on float32 weights
beside bfloat16 ones. One packs its sequences as the learner does, one pads them to the longest.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from cast_ray import losses
from cast_ray.batching import flat_column, loss_mask, row_offsets, rows_in_loss
from cast_ray.learner_settings import LearnerSettings
from cast_ray.objectives import Objective
from cast_ray.policy import load_policy


class BareLoop:
    """A policy in one process and the plainest update of it."""

    def __init__(
        self,
        settings: LearnerSettings,
        objective: Objective,
        *,
        layout: Literal["packed", "padded"],
    ) -> None:
        """Load the policy."""
        torch.set_num_threads(settings.num_threads)
        self._settings, self._objective, self._layout = settings, objective, layout
        if layout == "packed":
            self._model = load_policy(Path(settings.model_dir), dtype=torch.bfloat16)
        else:
            self._model = AutoModelForCausalLM.from_pretrained(
                settings.model_dir, dtype=torch.bfloat16
            )
        self._model.eval()
        self._weights = list(self._model.parameters())
        self._wide = [weight.detach().float().clone() for weight in self._weights]
        self._optimizer = torch.optim.AdamW(
            self._wide,
            lr=settings.lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )

    def update(self, table: pa.Table, rows: np.ndarray, start_logprobs: np.ndarray) -> float:
        """Take one update on rows of a table and return its seconds."""
        started = time.perf_counter()
        offsets, mask = row_offsets(table), loss_mask(table)
        num_tokens = int(rows_in_loss(mask, table, rows).sum())
        for chosen in self._cut(rows, np.diff(offsets)):
            index = [np.arange(offsets[row], offsets[row + 1]) for row in chosen]
            flat = np.concatenate(index)
            logits = self._logits(flat_column(table, "token_ids"), index, mask)
            wanted = flat[mask[flat]]
            tokens = torch.from_numpy(flat_column(table, "token_ids")[wanted].astype(np.int64))
            logprobs = -functional.cross_entropy(logits.float(), tokens, reduction="none")
            start = torch.from_numpy(start_logprobs[wanted])
            advantages = torch.from_numpy(flat_column(table, "token_advantages")[wanted])
            loss = losses.clipped_surrogate(
                losses.token_ratio(logprobs, start),
                advantages,
                clip_low=self._objective.clip_low,
                clip_high=self._objective.clip_high,
                dual_clip=self._objective.dual_clip,
            )
            (loss.sum() / num_tokens).backward()
        self._apply()
        return time.perf_counter() - started

    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    def _cut(self, rows: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Return rows by micro-batch: as many as fit, in the given order."""
        cuts: list[list[int]] = [[]]
        longest = int(lengths[rows].max())
        for row in rows:
            size = longest if self._layout == "padded" else int(lengths[row])
            used = sum(longest if self._layout == "padded" else lengths[r] for r in cuts[-1])
            if cuts[-1] and used + size > self._settings.tokens_per_micro_batch:
                cuts.append([])
            cuts[-1].append(int(row))
        self._longest = longest
        return [np.array(cut) for cut in cuts]

    def _logits(self, token_ids: np.ndarray, index: list[np.ndarray], mask: np.ndarray) -> Tensor:
        """Return ``[n, V]`` logits that predict the tokens in the loss."""
        if self._layout == "packed":
            ids = torch.from_numpy(token_ids[np.concatenate(index)].astype(np.int64))[None]
            positions = torch.from_numpy(np.concatenate([np.arange(len(i)) for i in index]))[None]
            lengths = tuple(len(i) for i in index)
            hidden = self._model.base_model(
                input_ids=ids, position_ids=positions, use_cache=False, sequence_lengths=lengths
            ).last_hidden_state[0]
            wanted = np.flatnonzero(mask[np.concatenate(index)])
            return self._model.lm_head(hidden[torch.from_numpy(wanted - 1)])
        ids = np.zeros((len(index), self._longest), dtype=np.int64)
        wanted = np.zeros(ids.shape, dtype=bool)
        for row, of_row in enumerate(index):
            ids[row, : len(of_row)] = token_ids[of_row]
            wanted[row, : len(of_row) - 1] = mask[of_row][1:]
        attention = torch.from_numpy(
            np.arange(self._longest) < np.array([[len(of_row)] for of_row in index])
        )
        hidden = self._model.base_model(
            input_ids=torch.from_numpy(ids), attention_mask=attention, use_cache=False
        ).last_hidden_state
        return self._model.lm_head(hidden[torch.from_numpy(wanted)])

    def _apply(self) -> None:
        for wide, weight in zip(self._wide, self._weights, strict=True):
            assert weight.grad is not None
            wide.grad = weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(self._wide, self._settings.max_grad_norm)
        self._optimizer.step()
        with torch.no_grad():
            for wide, weight in zip(self._wide, self._weights, strict=True):
                weight.copy_(wide)
