"""Part three: the whole job on one GPU, as many steps as fit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cast_ray.runs.load import load_run
from tests.gpu.common import ON_GPU, check, report, size

PART = "train"
MODEL = os.environ.get("MODEL", "")
"""A model directory; empty = the small policy that a run builds and teaches."""
STEPS = size(int(os.environ.get("STEPS", "10")), 2)
LIMIT_S = 540


@check(PART)
def whole_job() -> None:
    """Train, and report what each step did; what was played before the limit counts, too."""
    words = ["game=sokoban", "tier=mini", f"steps={STEPS}", "seed=1", "evaluation.every=0"]
    words += (
        ["resources.preset=one_gpu", "learner.dtype=bfloat16"]
        if ON_GPU
        else [
            "rollout.puzzles_per_step=4",
            "rollout.group_size=4",
            "warm_start.steps=20",
            "warm_start.careless_steps=4",
            "puzzles.num_held_out=8",
            "evaluation.held_out_attempts=1",
        ]
    )
    if MODEL:
        words += [f"policy.path={MODEL}", "learner.lr=1e-6", "advantage.alpha=0.1"]
        words += ["rollout.max_answer_tokens=64"]
    with tempfile.TemporaryDirectory() as place:
        run_dir = Path(place) / "run"
        command = [sys.executable, "-m", "cast_ray.cli", "train", *words, f"run_dir={run_dir}"]
        with open(Path(place) / "log", "w+") as log:
            try:
                done = subprocess.run(command, stdout=log, stderr=log, timeout=LIMIT_S).returncode
            except subprocess.TimeoutExpired:
                done = 0
            log.seek(0)
            said = log.read()[-3000:]
        if done:
            print(said, flush=True)
        report("exit code of the job", done, "", at_most=0)
        metrics = load_run(run_dir).metrics
        for row in metrics.iter_rows(named=True):
            name = f"step {row['step']}"
            report(f"{name}, solved", row["success"], "share")
            report(f"{name}, engine against learner", row["logprob_abs_diff"], "nats", at_most=0.1)
            report(f"{name}, layer error", row["layer_error"], "relative", at_most=1e-3)
            report(f"{name}, all of it", row["seconds_total"], "s")
        report("steps taken", metrics.height, "steps", at_least=1)
