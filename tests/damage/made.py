"""A folder with a small file of every kind, each by what really writes it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from safetensors.torch import save_file

from benchmarks.solvers import request_line
from cast_ray.config.load import load_config, save_config
from cast_ray.evaluation.attempts import write_attempts
from cast_ray.evaluation.directory import EvaluationDirectory
from cast_ray.evaluation.endpoint.journal import AnswerJournal
from cast_ray.files import write_text
from cast_ray.games import GAMES
from cast_ray.games.generators import GENERATORS
from cast_ray.games.puzzles import make_puzzle, write_puzzles
from cast_ray.learner.state_shards import write_shards
from cast_ray.rollout.chat_template import read_chat_pieces, store_chat_pieces
from cast_ray.runs.directories import make_partial, publish
from cast_ray.runs.metrics import keep_validation
from cast_ray.runs.recoveries import RecoveryLog
from cast_ray.runs.remote_lock import Claim
from cast_ray.runs.remote_run import Origin
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.tracking.tracker import TrackedRun
from cast_ray.statistics import success_rate
from cast_ray.training.value_net.directory import ValueNetDirectory
from cast_ray.weights.manifest import publish_weights
from solver_actors.oracle import Oracle
from solver_actors.value_net.network import QNetwork, QNetworkShape, save_q_network
from tests.evaluation.test_journal import answer
from tests.support.browsed_run import trajectories, write_run
from tests.support.made_attempts import made_attempt
from tests.support.made_up_run import scored, write_evaluation
from tests.support.scripted import build_test_policy

ROOT = Path(__file__).parents[2]


def make_files(folder: Path) -> None:
    """Write a file of every kind of ``KINDS`` into a new folder."""
    oracle = Oracle(max_bytes=2**24)
    run = write_run(folder, oracle)
    played = scored(trajectories(oracle), oracle)
    for name in ("before", "after"):
        write_evaluation(run, name, played)
    keep_validation(run.validation, 1, played)
    success = success_rate(["a", "b"], [0.0, 1.0], seed=0)
    run.write_summary(
        {"steps": 2, "seconds": 3.5, "before": asdict(success), "after": asdict(success)}
    )
    run.note_start("first")
    RecoveryLog(run.recoveries, on_recovery=lambda *_: None).record("engine", "engine 0", 2.5)
    TrackedRun(directory=folder, config=load_config(None, [])).identity()
    _boards(folder, run)
    _models(folder, run)
    _evaluations(folder)
    write_text(folder / "copy.json", json.dumps(asdict(Origin(uri="file:///a/run", copy_id="ab"))))
    claim = Claim(copy_id="ab", host="here", pid=os.getpid(), at=1.0)
    write_text(folder / "owner.json", json.dumps(asdict(claim)))
    ValueNetDirectory(folder).log({"stage": "base", "epoch": 1, "loss": 0.5})
    _settings(folder)


def _boards(folder: Path, run: RunDirectory) -> None:
    rng = np.random.default_rng(0)
    puzzles, lines = [], []
    for name, game in GAMES.items():
        tier, level = next(iter(game.tiers.items()))
        states = [GENERATORS[name](level, rng) for _ in range(4)]
        puzzles += [
            make_puzzle(game, state, tier=tier, cost=float(cost), seed=1, measures={"pushes": 2.0})
            for cost, state in enumerate(states, start=1)
        ]
        lines += [request_line(name, state) for state in states]
        write_text(folder / f"boards/{name}.txt", "\n\n".join(map(game.encode, states)) + "\n")
    for part in ("train", "validation", "held_out"):
        write_puzzles(run.puzzles / f"{part}.parquet", puzzles, metadata={"made": "here"})
    write_puzzles(folder / "boards/sokoban.parquet", [p for p in puzzles if p.game == "sokoban"])
    write_text(folder / "states.jsonl", "\n".join(lines))


def _models(folder: Path, run: RunDirectory) -> None:
    torch.manual_seed(0)
    tensors = {f"layer.{i}.weight": torch.randn(8, 16) for i in range(3)}
    partial = make_partial(run.checkpoint(2))
    for kind in ("weight", "exp_avg", "exp_avg_sq"):
        write_shards(tensors.items(), partial, kind=kind)
    save_file({"cpu": torch.get_rng_state()}, partial / "random_states-00000.safetensors")
    write_text(partial / "learner.json", json.dumps({"num_updates": 2, "client_state": {}}))
    publish(partial, run.checkpoint(2))
    other = folder / "other"
    build_test_policy(other)
    (other / "complete.json").unlink(missing_ok=True)
    pieces = read_chat_pieces(other)
    store_chat_pieces(pieces, folder)
    for model in (run.model, run.start_model):
        partial = make_partial(model)
        shutil.copytree(other, partial, dirs_exist_ok=True)
        store_chat_pieces(pieces, partial)
        publish(partial, model)
    shape = QNetworkShape(
        game="sokoban",
        rows=5,
        cols=5,
        num_symbols=7,
        actions=("Up", "Down", "Left", "Right"),
        d_model=8,
        num_heads=2,
        num_layers=1,
        output_size=8,
    )
    save_q_network(QNetwork(shape), run.value_net)
    publish_weights(tensors, directory=folder / "weights", version=3)


def _evaluations(folder: Path) -> None:
    write_attempts(folder / "attempts.parquet", [made_attempt(), made_attempt(is_success=True)])
    (folder / "journal").mkdir()
    journal = AnswerJournal(folder / "journal/0.jsonl")
    for number in range(3):
        journal.append(f"{number:032x}", answer(f"go {number} ä"))
    with EvaluationDirectory.open(folder / "evaluation", {"games": ["sokoban"], "attempts": 4}):
        pass
    sweep = folder / "sweep"
    write_text(sweep / "sweep.json", json.dumps({"fixed": [], "grid": {"seed": ["0"]}}))


def _settings(folder: Path) -> None:
    save_config(load_config(None, ["steps=3", "advantage.alpha=0.5"]), folder / "own.yaml")
    tier = {"rows": 7, "cols": 8, "num_pieces": 2, "min_cost": 1, "max_cost": 9, "turn_budget": 30}
    write_text(folder / "tier.yaml", OmegaConf.to_yaml(tier))
    write_text(folder / "arms.yaml", "CAST: []\nDAPO: [algorithm=dapo, learner.lr=1e-4]\n")
    shutil.copy(ROOT / "cluster.yaml", folder)
