"""A run in Weights & Biases: at its server, or offline in the run directory's ``wandb/``.

Its own variables say where and how: ``WANDB_MODE=offline``, ``WANDB_API_KEY``, ``WANDB_PROJECT``,
``WANDB_ENTITY`` and others.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import wandb

from cast_ray.errors import ConfigError
from cast_ray.runs.tracking.tracker import PROJECT, TrackedRun

_FINISH_S = 50.0
"""Longest wait for the server at the end; by itself the package waits for ever."""


def check_wandb() -> None:
    """Raise ConfigError without access: it would ask for a key in the middle of the run."""
    if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
        raise ConfigError(
            "tracking=wandb has no key: run wandb login, set WANDB_API_KEY, or set "
            "WANDB_MODE=offline and send the run later with wandb sync"
        )


class WeightsAndBiases:
    """Steps are values, not its own ones, which may not go back."""

    def __init__(self, run: TrackedRun) -> None:
        identity = run.identity()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.directory.name,
            id=identity,
            resume="allow",
            dir=run.directory,
            config=asdict(run.config),
            allow_val_change=True,
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, finish_timeout=_FINISH_S
            ),
        )
        self._run.define_metric("*", step_metric="step")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._run.log({"step": step, **values})

    def games(self, step: int, texts: Sequence[str]) -> None:
        """See ``Tracker``."""
        shown = "".join(f"<pre>{html.escape(played)}</pre>" for played in texts)
        self._run.log({"step": step, "games": wandb.Html(shown, inject=False)})

    def close(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """See ``Tracker``."""
        self._run.summary.update(dict(summary))
        self._run.finish(exit_code=int(failed))
