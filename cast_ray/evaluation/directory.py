"""The directory of an evaluation: its description, what was played, and the results.

The same command resumes an interrupted evaluation. Any other is refused, because the description is
written before anything is played.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cast_ray.errors import RunDirectoryError
from cast_ray.files import checked, is_taken, locked, read_json, write_text


class EvaluationDirectory:
    """Paths of one evaluation. ``open`` creates it and locks out other processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = path / "evaluation.json"
        self.attempts = path / "attempts.parquet"
        self.results = path / "results.json"
        self.tables = path / "results.md"
        self.case_study = path / "case_study.html"

    @classmethod
    @contextmanager
    def open(cls, path: Path, description: dict[str, Any]) -> Iterator[EvaluationDirectory]:
        """Create a directory, or reopen that of the same evaluation, and hold it for the block.

        Args:
            path: where it is.
            description: everything that determines the results, as JSON values.

        Raises:
            RunDirectoryError: it holds something else, or another process uses it.
            EnvironmentSetupError: it cannot be written.
        """
        directory = cls(path)
        wanted = json.loads(json.dumps(description))
        if directory.description.is_file():
            directory._check_is_of(wanted)
        elif is_taken(path):
            raise RunDirectoryError(
                f"{path} exists and holds no evaluation: give another --out; nothing was changed"
            )
        refusal = f"another process uses {path}: wait until it ends, or give another --out"
        with locked(path / ".lock", refusal):
            if not directory.description.is_file():
                write_text(directory.description, json.dumps(wanted, indent=2) + "\n")
            yield directory

    def groups(self, model: int, run: int, tier: str) -> Path:
        """Return the folder of the trajectories of a model's run on a tier."""
        return self.path / "trajectories" / f"model-{model}-run-{run}" / tier

    def journal(self, model: int, tier: str) -> Path:
        """Return the folder of an endpoint's answers."""
        return self.path / "journal" / f"model-{model}" / tier

    def _check_is_of(self, wanted: dict[str, Any]) -> None:
        try:
            stored = checked(dict[str, Any], read_json(self.description))
        except ValueError:
            raise RunDirectoryError(
                f"{self.description} is damaged: give another --out; nothing was changed"
            ) from None
        differing = [key for key in wanted if stored.get(key) != wanted[key]]
        if differing:
            key = differing[0]
            raise RunDirectoryError(
                f"{self.path} holds another evaluation, with {key} {_brief(stored.get(key))} "
                f"instead of {_brief(wanted[key])}; give another --out; nothing was changed"
            )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
