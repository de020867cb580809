"""Tokens per second of complete updates: the learner, bare PyTorch loops, and TRL.

All have one rank and one thread, and the trajectories of one step of the quickstart: solver play
with mistakes on Sokoban's ID boards, with lengths like real episodes. They take updates in turn, so
that other load affects all of them. If TRL is installed (extra ``bench``), steps of its GRPO
trainer follow.

The PyTorch loops have no DeepSpeed, no ranks and no chunks, but take the same update as the
learner: clipped surrogate, token mean, AdamW on float32 copies of bfloat16 weights. One packs its
sequences as the learner does, one pads them to the longest.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from benchmarks.trl_loop import TrlSteps
from cast_ray.algorithms import losses
from cast_ray.cluster.session import ray_session
from cast_ray.config.learning import ObjectiveConfig
from cast_ray.config.train import TrainConfig
from cast_ray.games import get_game
from cast_ray.games.generators import build_puzzles
from cast_ray.learner.batching import flat_column, loss_mask, row_offsets, rows_in_loss
from cast_ray.learner.group import LearnerGroup
from cast_ray.learner.policy import load_policy
from cast_ray.learner.settings import LearnerSettings
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import read_chat_pieces
from cast_ray.training.warm_start import build_initial_model, demonstrations
from cast_ray.training.workers import learner_settings
from solver_actors.registry import StartSolver


class BareLoop:
    """A policy in one process, with a minimal update."""

    def __init__(
        self,
        settings: LearnerSettings,
        objective: ObjectiveConfig,
        *,
        layout: Literal["packed", "padded"],
    ) -> None:
        """Load the policy."""
        torch.set_num_threads(settings.config.num_threads)
        self._settings, self._objective, self._layout = settings, objective, layout
        if layout == "packed":
            self._model = load_policy(Path(settings.model_dir), dtype=torch.bfloat16)
        else:
            self._model = AutoModelForCausalLM.from_pretrained(
                settings.model_dir, dtype=torch.bfloat16, trust_remote_code=False
            )
        self._model.eval()
        self._weights = list(self._model.parameters())
        self._wide = [weight.detach().float().clone() for weight in self._weights]
        self._optimizer = torch.optim.AdamW(
            self._wide,
            lr=settings.config.lr,
            betas=settings.config.betas,
            weight_decay=settings.config.weight_decay,
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
            if cuts[-1] and used + size > self._settings.config.tokens_per_micro_batch:
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
        torch.nn.utils.clip_grad_norm_(self._wide, self._settings.config.max_grad_norm)
        self._optimizer.step()
        with torch.no_grad():
            for wide, weight in zip(self._wide, self._weights, strict=True):
                weight.copy_(wide)


GAME, TIER = "sokoban", "id"
NUM_ROWS = 48
"""Trajectories of one update."""
NUM_ROUNDS = 5
MISTAKE_PROBABILITY = 0.5
_MAX_TOKENS = 8192
_TIMEOUT_S = 600.0
_SEED = 0


def bench_learner() -> dict[str, float]:
    """Return tokens per second of an update, medians over rounds, and memory.

    ``…_tokens_per_s`` counts all tokens of the trajectories, including prompts. Compare the ratio
    to the padded loop with ``longest_over_mean``, the share that padding adds. Memory is the growth
    of the process's resident size from before its first update to its peak; ``state_mib`` is the
    sum of weights, their float32 copies, gradients and moments. TRL's step includes its own
    optimizer, rewards and padding; without TRL ``learner_over_trl`` is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings, table = _settings_and_table(Path(folder))
        with ray_session(num_cpus=3):
            seconds, memory = _measure(settings, table)
        state_mib = _state_mib(Path(settings.model_dir))
    lengths = np.diff(row_offsets(table))
    speed = {name: lengths.sum() / float(np.median(times)) for name, times in seconds.items()}
    return {
        **{f"{name}_tokens_per_s": value for name, value in speed.items()},
        "learner_over_packed": speed["learner"] / speed["packed"],
        "learner_over_padded": speed["learner"] / speed["padded"],
        **({"learner_over_trl": speed["learner"] / speed["trl"]} if "trl" in speed else {}),
        "longest_over_mean": float(lengths.max() / lengths.mean()),
        "goal_over_padded": float(0.85 * lengths.max() / lengths.mean()),
        "tokens": float(lengths.sum()),
        **{f"{name}_peak_mib": value for name, value in memory.items()},
        "state_mib": state_mib,
    }


def _measure(
    settings: LearnerSettings, table: pa.Table
) -> tuple[dict[str, list[float]], dict[str, float]]:
    objective = replace(TrainConfig().objective, rollout_correction="none")
    env_vars = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "DS_ACCELERATOR": "cpu"}
    loops: dict[str, Any] = {  # Any: Ray's handles have the actor's methods, and .remote
        layout: ray.remote(BareLoop)
        .options(num_cpus=1, runtime_env={"env_vars": env_vars})
        .remote(settings, objective, layout=layout)
        for layout in ("packed", "padded")
    }
    group = LearnerGroup(settings, replace(TrainConfig().resources, learner_ranks=1))
    try:
        rows, reference = np.arange(table.num_rows), ray.put(table)
        start = ray.put(group.logprobs(reference))
        pids = {"learner": group.pids()[0]}
        for name, loop in loops.items():
            pids[name] = ray.get(loop.pid.remote(), timeout=_TIMEOUT_S)
        before = {name: _reset_peak_mib(pid) for name, pid in pids.items()}
        seconds: dict[str, list[float]] = {name: [] for name in pids}
        for _ in range(NUM_ROUNDS):
            for name, loop in loops.items():
                updated = loop.update.remote(reference, rows, start)
                seconds[name].append(ray.get(updated, timeout=_TIMEOUT_S))
            seconds["learner"].append(group.update(reference, rows, objective, start).seconds)
        memory = {name: _peak_mib(pid) - before[name] for name, pid in pids.items()}
    finally:
        group.close()
    if find_spec("trl"):
        seconds["trl"] = _trl_seconds(settings, objective, table, env_vars)
    # The first update of each compiles, allocates and warms up.
    return {name: times[1:] for name, times in seconds.items()}, memory


def _trl_seconds(
    settings: LearnerSettings, objective: ObjectiveConfig, table: pa.Table, env_vars: dict[str, str]
) -> list[float]:
    options = {"num_cpus": 1, "runtime_env": {"env_vars": env_vars}}
    steps: Any = ray.remote(TrlSteps).options(**options).remote(settings, objective, table)
    try:
        return ray.get(steps.step_seconds.remote(NUM_ROUNDS), timeout=_TIMEOUT_S)
    finally:
        ray.kill(steps)


def _settings_and_table(folder: Path) -> tuple[LearnerSettings, pa.Table]:
    config = TrainConfig()
    game = get_game(GAME)
    turn_budget = game.tiers[TIER].turn_budget
    puzzles = build_puzzles(
        game=GAME, tier=TIER, count=NUM_ROWS, seed=_SEED, solve=StartSolver(GAME).cost
    )
    model_dir = folder / "model"
    build_initial_model(
        model_dir,
        game=GAME,
        turn_budget=turn_budget,
        puzzles=puzzles,
        policy=config.policy,
        max_tokens=_MAX_TOKENS,
        seed=_SEED,
    )
    played = demonstrations(
        puzzles,
        replace(
            config.warm_start,
            steps=1,
            careless_steps=0,
            trajectories_per_step=NUM_ROWS,
            mistake_probability=MISTAKE_PROBABILITY,
        ),
        tokenizer=ChatTokenizer(model_dir, read_chat_pieces(model_dir)),
        turn_budget=turn_budget,
        ends_dead=True,
        seed=_SEED,
    )
    return learner_settings(config, model_dir=model_dir), _with_made_up_credit(played)


def _with_made_up_credit(played: pa.Table) -> pa.Table:
    """Return the table with an advantage per token; the values do not affect the time."""
    offsets = pa.array(row_offsets(played).astype(np.int32))
    values = np.random.default_rng(_SEED).normal(size=offsets[-1].as_py()).astype(np.float32)
    made_up = pa.ListArray.from_arrays(offsets, pa.array(values))
    with_advantages = played.append_column("token_advantages", made_up)
    return with_advantages.append_column("rollout_logprobs", made_up)


def _state_mib(model_dir: Path) -> float:
    """Return the size of an update's permanent tensors: 2 + 4 + 4 + 4 + 4 bytes per weight."""
    weights = load_policy(model_dir, dtype=torch.bfloat16).parameters()
    return sum(weight.numel() for weight in weights) * 18 / 2**20


def _reset_peak_mib(pid: int) -> float:
    """Reset a process's peak resident size in Linux; return the current size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak_mib(pid)


def _peak_mib(pid: int) -> float:
    """Return the peak resident size of a process since the last reset."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
