"""RLlib's checkpoints of the base network, each whole or absent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from cast_ray.checkpoint import check_whole, make_partial, publish, save_refusals_named
from cast_ray.errors import RunDirectoryError

_NAME = re.compile(r"steps-(\d{10})")
_KEPT = 2


class BaseCheckpoints:
    """A folder of what ``Algorithm.save_to_path`` writes, by environment steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self) -> tuple[int, Path | None, list[str]]:
        """Return steps and place of the newest whole one, and what is wrong with newer ones.

        Without any: 0 and None.
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
        """Keep one more; the oldest go.

        Args:
            steps: environment steps done.
            save_to_path: of RLlib's algorithm.

        Raises:
            EnvironmentSetupError: the file system refused something.
        """
        directory = self._folder / f"steps-{steps:010d}"
        with save_refusals_named(directory):
            partial = make_partial(directory)
            save_to_path(str(partial.absolute()))
            publish(partial, directory)
            for _, path in sorted(self._found())[:-_KEPT]:
                shutil.rmtree(path)

    def clear(self) -> None:
        """Drop all: the network that they led to is kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _found(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return [(int(match[1]), path) for match, path in named if match]
