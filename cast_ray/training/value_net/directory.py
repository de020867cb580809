"""The directory of a value network's training, and RLlib's checkpoints in it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Required, TypedDict, cast

from cast_ray.config.load import load_value_net_config, save_config
from cast_ray.config.reference import differing_values
from cast_ray.config.value_net import ValueNetConfig
from cast_ray.errors import RunDirectoryError
from cast_ray.files import append_line, is_taken, locked, read_records, refusals_named, write_text
from cast_ray.runs.directories import check_whole, make_partial, publish, save_refusals_named
from solver_actors.value_net.network import SHAPE_FILE

STAGES = ("base", "stage1", "stage2")
_CHANGEABLE = ("run_dir", "num_threads", "device", "checkpoint_every", "dqn.num_env_runners")


class _Row(TypedDict, total=False):
    stage: Required[str]
    steps: int
    epoch: int
    seconds: float


class ValueNetDirectory:
    """The layout of one run: a network per stage, and the final one in ``value_net``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.puzzles = path / "puzzles"
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.value_net = path / "value_net"

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, config: ValueNetConfig, *, resume: bool
    ) -> Iterator[ValueNetDirectory]:
        """Create a directory or reopen one, and hold it for the block.

        Raises:
            RunDirectoryError: it is not empty, is not a value network's, has another
                configuration, or another process trains there.
            EnvironmentSetupError: it cannot be written.
        """
        run = cls(path)
        if resume:
            run._check_same(config)
        elif is_taken(path):
            raise RunDirectoryError(
                f"{path} is not empty: choose another run_dir=PATH, or resume the run with --resume"
            )
        with refusals_named(path):
            path.mkdir(parents=True, exist_ok=True)
        refusal = f"another process trains in {path}: wait until it ends, or choose another "
        with locked(path / ".lock", f"{refusal}run_dir=PATH"):
            save_config(config, run.config)
            yield run

    def network(self, stage: str) -> Path:
        """Return where the network of one of ``STAGES`` is kept."""
        return self.path / stage

    def has(self, network: Path) -> bool:
        """Return whether a network is complete: it appears by rename."""
        return (network / SHAPE_FILE).is_file()

    def log(self, row: Mapping[str, Any]) -> None:
        """Add a line to ``metrics.jsonl``. Any: numbers, texts, None."""
        append_line(self.metrics, json.dumps(row))

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``. Any: as they were logged.

        Raises:
            DamagedFileError: a line is damaged.
        """
        return cast(list[dict[str, Any]], read_records(self.metrics, _Row))

    def forget(self, stage: str, *, beyond: int = 0) -> None:
        """Delete a stage's lines after an epoch or step, because it is about to be repeated."""
        kept = [
            row
            for row in self.rows()
            if row["stage"] != stage or row.get("steps", row.get("epoch", beyond + 1)) <= beyond
        ]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        write_text(self.summary, json.dumps(summary, indent=1) + "\n")

    def _check_same(self, config: ValueNetConfig) -> None:
        if not self.config.is_file():
            raise RunDirectoryError(
                f"{self.path} is not the run of a value network: it has no config.yaml. Omit "
                "--resume to start one there"
            )
        differing = differing_values(load_value_net_config(self.config, [], is_stored=True), config)
        refused = [text for key, text in differing.items() if key not in _CHANGEABLE]
        if refused:
            raise RunDirectoryError(
                f"{self.path} belongs to another configuration: {', '.join(refused)}. Resume "
                "with the same values, or choose another run_dir=PATH"
            )


_NAME = re.compile(r"steps-(\d{10})")
_KEPT = 2


class BaseCheckpoints:
    """What ``Algorithm.save_to_path`` wrote, by environment steps; each is complete or absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> tuple[int, Path | None, list[str]]:
        """Return steps and path of the newest complete one, and what is wrong with newer ones.

        If there is none: 0 and None.
        """
        damaged: list[str] = []
        for steps, path in sorted(self._found(), reverse=True):
            try:
                check_whole(path)
            except RunDirectoryError as error:
                damaged.append(str(error))
                continue
            return steps, path, damaged
        return 0, None, damaged

    def save(self, steps: int, save_to_path: Callable[[str], object]) -> None:
        """Save another checkpoint and delete the oldest ones.

        Args:
            steps: environment steps done.
            save_to_path: of RLlib's algorithm.

        Raises:
            EnvironmentSetupError: it cannot be written.
        """
        directory = self._folder / f"steps-{steps:010d}"
        with save_refusals_named(directory):
            partial = make_partial(directory)
            save_to_path(str(partial.absolute()))
            publish(partial, directory)
            for _, path in sorted(self._found())[:-_KEPT]:
                shutil.rmtree(path)

    def clear(self) -> None:
        """Delete all checkpoints; the network of the finished stage replaces them."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _found(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return [(int(match[1]), path) for match, path in named if match]
