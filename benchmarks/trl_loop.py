"""TRL's GRPO step on recorded trajectories, which the learner is compared with if TRL is installed.

``GRPOTrainer`` gets the trajectories from a ``rollout_func`` that plays nothing, with an
``env_mask`` over the tokens that the policy did not write, and takes its own steps: rewards to
advantages, the token-mean loss with the higher clip (``loss_type="dapo"``), AdamW.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.learner.batching import loss_mask, row_offsets
from cast_ray.learner.settings import LearnerSettings

GROUP_SIZE = 8
SEQUENCES_A_PASS = 4
"""Rows of one forward and backward pass, padded to the longest."""


class TrlSteps:
    """TRL's trainer in this process. Any: TRL is optional."""

    def __init__(
        self, settings: LearnerSettings, objective: ObjectiveConfig, table: pa.Table
    ) -> None:
        """Create a trainer that learns from one table repeatedly."""
        import torch
        from datasets import Dataset  # pyright: ignore[reportMissingImports]
        from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(settings.config.num_threads)
        self._rollouts, num_rows = rollouts_of(table), table.num_rows
        rewards = np.random.default_rng(0).integers(0, 2, num_rows).astype(float).tolist()
        self.trainer: Any = GRPOTrainer(
            model=settings.model_dir,
            reward_funcs=lambda completions, **_: rewards,
            train_dataset=Dataset.from_dict({"prompt": ["recorded"] * num_rows}),
            rollout_func=lambda prompts, trainer: self._rollouts,
            args=GRPOConfig(
                output_dir=tempfile.mkdtemp(prefix="cast-ray-trl-"),
                use_cpu=True,
                per_device_train_batch_size=SEQUENCES_A_PASS,
                gradient_accumulation_steps=num_rows // SEQUENCES_A_PASS,
                num_generations=GROUP_SIZE,
                learning_rate=settings.config.lr,
                lr_scheduler_type="constant",
                beta=0.0,
                epsilon=objective.clip_low,
                epsilon_high=objective.clip_high,
                loss_type="dapo",
                gradient_checkpointing=False,
                disable_tqdm=True,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                max_steps=1,
            ),
        )

    def step_seconds(self, num_steps: int) -> list[float]:
        """Take a number of steps and return the seconds of each."""
        from transformers import TrainerCallback

        begun: list[float] = []
        seconds: list[float] = []

        class Clock(TrainerCallback):
            def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
                begun.append(time.perf_counter())

            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                seconds.append(time.perf_counter() - begun[-1])

        self.trainer.args.max_steps = num_steps
        self.trainer.add_callback(Clock())
        self.trainer.train()
        return seconds


def rollouts_of(table: pa.Table) -> dict[str, list[Any]]:
    """Return the result of a ``rollout_func``: prompts, completions, and a mask of the policy's."""
    offsets, mask = row_offsets(table), loss_mask(table)
    tokens = table["token_ids"].combine_chunks().flatten().to_numpy()
    found: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": []}
    found |= {"env_mask": [], "logprobs": []}
    for first, last in itertools.pairwise(offsets):
        answer = first + int(mask[first:last].argmax())
        found["prompt_ids"].append(tokens[first:answer].tolist())
        found["completion_ids"].append(tokens[answer:last].tolist())
        found["env_mask"].append(mask[answer:last].astype(int).tolist())
        found["logprobs"].append([0.0] * (last - answer))
    return found
