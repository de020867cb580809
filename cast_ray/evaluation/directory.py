"""The directory of an evaluation: what it is of, what has been played, and what came out.

It can be gone on with after any interruption, by the same command, and by no other: what it is of
is written down before anything is played.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cast_ray.errors import RunDirectoryError
from cast_ray.files import hold_lock, refusals_named, written_aside

_FORMAT = 1


class EvaluationDirectory:
    """Paths of one evaluation. Made by ``open``, which keeps other processes out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = path / "evaluation.json"
        self.attempts = path / "attempts.parquet"
        self.results = path / "results.json"
        self.tables = path / "results.md"
        self.case_study = path / "case_study.html"
        self._lock: Any = None  # an open file, held while this object lives

    @classmethod
    def open(cls, path: Path, description: dict[str, Any]) -> EvaluationDirectory:
        """Make a new directory, or go on with the one that is of the same evaluation.

        Args:
            path: of it.
            description: all that decides what comes out, as JSON values.

        Raises:
            RunDirectoryError: it holds something else, or another process evaluates there.
            EnvironmentSetupError: it cannot be written.
        """
        directory = cls(path)
        wanted = json.loads(json.dumps({"format": _FORMAT, **description}))
        if directory.description.is_file():
            directory._check_is_of(wanted)
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunDirectoryError(
                f"{path} exists and holds no evaluation: give another --out, nothing was changed"
            )
        with refusals_named(path):
            path.mkdir(parents=True, exist_ok=True)
        directory._keep_others_out()
        if not directory.description.is_file():
            with written_aside(directory.description, durable=True) as aside:
                aside.write_text(json.dumps(wanted, indent=2) + "\n")
        return directory

    def groups(self, model: int, run: int, tier: str) -> Path:
        """Return the folder of the trajectories that a model's run played of a tier."""
        folder = self.path / "trajectories" / f"model-{model}-run-{run}" / tier
        with refusals_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def journal(self, model: int, tier: str) -> Path:
        """Return the folder of the answers that an endpoint gave."""
        folder = self.path / "journal" / f"model-{model}" / tier
        with refusals_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _check_is_of(self, wanted: dict[str, Any]) -> None:
        try:
            stored = json.loads(self.description.read_text())
        except ValueError:
            raise RunDirectoryError(
                f"{self.description} is damaged: give another --out, nothing was changed"
            ) from None
        differing = [key for key in wanted if stored.get(key) != wanted[key]]
        if differing:
            key = differing[0]
            raise RunDirectoryError(
                f"{self.path} holds another evaluation: its {key} was {_brief(stored.get(key))} "
                f"and is {_brief(wanted[key])} now; give another --out, nothing was changed"
            )

    def _keep_others_out(self) -> None:
        self._lock = hold_lock(
            self.path / ".lock",
            f"another process evaluates in {self.path}: wait for its end, or give another --out",
        )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
