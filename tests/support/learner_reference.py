"""What the learner's tests share and needs no Ray: a tiny policy, a table, a naive reference."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from cast_ray.config.learning import LearnerConfig, ObjectiveConfig
from cast_ray.config.load import load_config
from cast_ray.learner.batching import PackedBatch, Rows
from cast_ray.learner.learner import Learner
from cast_ray.learner.settings import LearnerSettings
from cast_ray.rollout.trajectory import BATCH_SCHEMA

VOCAB_SIZE = 128
ALGORITHM_NAMES = ("cast", "dapo", "gigpo", "grpo", "gspo")
OBJECTIVES = {
    name: replace(
        load_config(None, [f"algorithm={name}"]).objective,
        # A tenth, so that a missing divergence would show.
        kl_coefficient=0.1 if name in ("grpo", "gigpo") else 0.0,
    )
    for name in ALGORITHM_NAMES
}
# The logprobs of these tests differ by far more than an update moves a trajectory.
OBJECTIVES["gspo"] = replace(OBJECTIVES["gspo"], clip_low=0.1, clip_high=0.15)
DAPO = OBJECTIVES["dapo"]
LENGTHS = (9, 30, 25, 7, 20, 28, 18, 11)
ROWS = np.array([5, 0, 1, 3, 4, 6])
"""The mini-batch; rows 2 and 7 of the table are others'."""

# SGD with this learning rate: the change of a weight, divided by it, is the gradient. A power of
# two divides exactly, and a large one keeps the rounding of weight + change far below the gradient
# (at 1, the norms' weights of 1.0 would hide the last digits of gradients of 1e-3).
SGD_LR = 1024.0
MAX_GRAD_NORM = 1e9


def build_policy(
    directory: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    hidden_size: int = 48,
    intermediate_size: int = 96,
    seed: int = 7,
) -> Path:
    """Save a Qwen3 with 51,000 random float32 parameters and a tied head."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    return directory


def build_table() -> pa.Table:
    """A table with the columns of BATCH_SCHEMA that the learner reads."""
    rng = np.random.default_rng(3)
    masks = [(rng.random(n) < 0.5).astype(np.uint8) for n in LENGTHS]
    columns = {
        "token_ids": [rng.integers(0, VOCAB_SIZE, n) for n in LENGTHS],
        "loss_mask": masks,
        # Around the logprobs of random weights: some ratios to the learner's are beyond the cap.
        "rollout_logprobs": [rng.normal(-5, 1, size=len(mask)) * mask for mask in masks],
        "token_advantages": [rng.normal(size=len(mask)) * mask for mask in masks],
    }
    schema = pa.schema([BATCH_SCHEMA.field(name) for name in columns])
    return pa.table({name: pa.array(rows) for name, rows in columns.items()}).cast(schema)


def with_column(table: pa.Table, name: str, rows: list[np.ndarray]) -> pa.Table:
    """The table with one column exchanged."""
    field = table.schema.field(name)
    column = pa.array(rows, type=field.type)
    return table.set_column(table.schema.get_field_index(name), field, column)


def settings_for(
    model_dir: Path,
    *,
    optimizer: Literal["adamw", "sgd"] = "sgd",
    reference_dir: str = "",
    seed: int = 0,
    **changes: Any,  # the keys have many types
) -> LearnerSettings:
    """Settings of a test: plain gradient descent unless said otherwise.

    Args:
        model_dir: of the policy.
        optimizer: sgd or adamw.
        reference_dir: empty = ``model_dir``.
        seed: of every rank.
        changes: of the section ``learner``.
    """
    plain = LearnerConfig(
        lr=SGD_LR,
        weight_decay=0.1,
        max_grad_norm=MAX_GRAD_NORM,
        zero_stage=0,
        dtype="float32",
        tokens_per_micro_batch=180,
        timeout_s=120.0,
    )
    return LearnerSettings(
        config=replace(plain, **changes),
        model_dir=str(model_dir),
        reference_dir=reference_dir,
        seed=seed,
        optimizer=optimizer,
    )


class ProbeLearner(Learner):
    """A learner whose micro-batches are cut as a test wants."""

    tokens_per_micro_batch = 180

    def _micro_batches(self, table: Rows, rows: np.ndarray) -> list[PackedBatch]:
        config = replace(self._settings.config, tokens_per_micro_batch=self.tokens_per_micro_batch)
        self._settings = replace(self._settings, config=config)
        return super()._micro_batches(table, rows)


class NaivePolicy:
    """The same numbers without batches: one row after the other, one token after the other."""

    def __init__(self, directory: Path, dtype: torch.dtype = torch.float64) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, attn_implementation="eager"
        ).eval()

    def row_logprobs(self, tokens: list[int]) -> list[torch.Tensor]:
        """Logprob of each token of a row that has a token before it; the first gets 0."""
        logits = self.model(input_ids=torch.tensor([tokens])).logits[0]
        found = [logits.new_zeros(())]
        for i in range(1, len(tokens)):
            found.append(logits[i - 1, tokens[i]] - torch.logsumexp(logits[i - 1], dim=0))
        return found

    def logprobs(self, table: pa.Table) -> np.ndarray:
        """[N], 0 outside the loss."""
        found = []
        with torch.no_grad():
            for row in table.to_pylist():
                values = self.row_logprobs(row["token_ids"])
                found += [float(v) * m for v, m in zip(values, row["loss_mask"], strict=True)]
        return np.array(found)

    def loss(
        self,
        table: pa.Table,
        start_logprobs: np.ndarray,
        objective: ObjectiveConfig = DAPO,
        reference_logprobs: np.ndarray | None = None,
        *,
        count_masked: bool = False,
    ) -> torch.Tensor:
        """The mini-batch's loss; ``count_masked`` is the mutant with the wrong denominator."""
        rows, offset = [], 0
        for number, row in enumerate(table.to_pylist()):
            tokens = row["token_ids"]
            if number in ROWS:
                known = [start_logprobs, reference_logprobs]
                here = [None if k is None else k[offset : offset + len(tokens)] for k in known]
                rows.append(self._row_losses(row, *here, objective, count_masked))
            offset += len(tokens)
        per_row = [row for row in rows if row]
        if objective.aggregation == "token_mean":
            return sum(sum(row) for row in per_row) / sum(len(row) for row in per_row)
        return sum(sum(row) / len(row) for row in per_row) / len(per_row)

    def _row_losses(
        self,
        row: dict,
        start: np.ndarray,
        reference: np.ndarray | None,
        objective: ObjectiveConfig,
        count_masked: bool,
    ) -> list[torch.Tensor]:
        """The losses of a row's tokens in the loss, one after the other."""
        logprobs = self.row_logprobs(row["token_ids"])
        written = [i for i in range(1, len(logprobs)) if row["loss_mask"][i]]
        in_loss = written
        if objective.rollout_correction == "mask":
            cap = objective.rollout_correction_cap
            away = {i: math.exp(start[i] - row["rollout_logprobs"][i]) for i in in_loss}
            in_loss = [i for i in in_loss if 1 / cap <= away[i] <= cap]
        found = []
        for i in in_loss:
            if objective.ratio == "token":
                ratio = torch.exp(logprobs[i] - float(start[i]))
            else:
                gaps = [float(logprobs[j].detach()) - float(start[j]) for j in written]
                mean = sum(gaps) / len(gaps)
                ratio = torch.exp(torch.clamp(mean + logprobs[i] - logprobs[i].detach(), max=10.0))
            loss = one_token_loss(ratio, row["token_advantages"][i], objective)
            if objective.rollout_correction == "truncate":
                away = math.exp(start[i] - row["rollout_logprobs"][i])
                loss = loss * min(away, objective.rollout_correction_cap)
            if reference is not None:
                gap = float(reference[i]) - logprobs[i]
                loss = loss + objective.kl_coefficient * (torch.exp(gap) - gap - 1)
            found.append(loss)
        if count_masked:
            found += [torch.zeros(())] * (len(logprobs) - len(in_loss))
        return found

    def gradient(
        self, table: pa.Table, start_logprobs: np.ndarray, *others: object, **named: object
    ) -> tuple[dict[str, np.ndarray], float]:
        """Every weight's gradient, and the loss; arguments as those of ``loss``."""
        self.model.zero_grad()
        loss = self.loss(table, start_logprobs, *others, **named)
        loss.backward()
        gradient = {name: p.grad.numpy().copy() for name, p in self.model.named_parameters()}
        return gradient, loss.item()


def one_token_loss(
    ratio: torch.Tensor, advantage: float, objective: ObjectiveConfig
) -> torch.Tensor:
    """The clipped surrogate case by case."""
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    if advantage >= 0:
        return -advantage * (ratio if ratio < high else torch.full_like(ratio, high))
    if ratio < low:
        return -advantage * torch.full_like(ratio, low)
    most = objective.dual_clip or math.inf
    return -advantage * (ratio if ratio < most else torch.full_like(ratio, most))


def relative_error(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """Largest error of any weight's gradient, relative to that gradient's norm."""
    assert found.keys() == expected.keys()
    return max(
        float(np.linalg.norm(found[name] - expected[name]) / np.linalg.norm(expected[name]))
        for name in expected
    )


def global_norm(gradient: dict[str, np.ndarray]) -> float:
    """The norm over all weights together."""
    return math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradient.values()))
