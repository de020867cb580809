"""Passes a run's metrics to its trackers, which can neither delay it nor stop it."""

from __future__ import annotations

import importlib.util
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from cast_ray.errors import ConfigError
from cast_ray.functions import told
from cast_ray.runs.tracking.tracker import TrackedRun, Tracker

CLOSE_S = 60.0
"""Longest wait for a tracker at the end of a run: some then send what is left."""

_Call: TypeAlias = Callable[[Tracker], None] | Literal["end"]


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that cannot work, before the run begins.

    Raises:
        ConfigError: a package or a key is missing.
    """
    for name in names:
        package = "tensorboardX" if name == "tensorboard" else name
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"tracking={name} needs its package: pip install 'cast-ray[{name}]', or leave it "
                "out of tracking"
            )
    if "wandb" in names:
        from cast_ray.runs.tracking.weights_and_biases import check_wandb

        check_wandb()


class Tracking:
    """The trackers of one run."""

    def __init__(
        self, names: Sequence[str], run: TrackedRun, *, warn: Callable[[str], None]
    ) -> None:
        """Start them.

        Args:
            names: of ``cast_ray.config.train.TRACKERS``.
            run: that they show.
            warn: takes a sentence about a tracker that is off from now on.
        """
        self._threads = [_TrackerThread(name, run, warn) for name in names]

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker``; returns at once."""
        self._tell(lambda tracker: tracker.metrics(step, values))

    def games(self, step: int, texts: Sequence[str]) -> None:
        """See ``Tracker``; returns at once."""
        self._tell(lambda tracker: tracker.games(step, texts))

    def close(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """End all; wait until they are done, each up to ``CLOSE_S``."""
        self._tell(lambda tracker: tracker.close(summary, failed=failed))
        for thread in self._threads:
            thread.end(CLOSE_S)

    def _tell(self, call: Callable[[Tracker], None]) -> None:
        for thread in self._threads:
            thread.calls.put(call)


class _TrackerThread:
    """One tracker: made and called in a thread of its own, which a slow server may stop."""

    def __init__(self, name: str, run: TrackedRun, warn: Callable[[str], None]) -> None:
        self.calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._name, self._run, self._warn = name, run, warn
        # A daemon: the process must end even if the tracker does not.
        self._thread = threading.Thread(target=self._work, name=f"tracking {name}", daemon=True)
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Wait for the calls so far, and end."""
        self.calls.put("end")
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(
                f"tracking={self._name} did not end within {timeout_s:g} s and was left: some of "
                "the run may be missing there"
            )

    def _work(self) -> None:
        try:
            tracker = _made(self._name, self._run)
            while (call := self.calls.get()) != "end":
                call(tracker)
        except Exception as error:  # raised by third-party code, which must not end the run
            self._warn(
                f"tracking={self._name} failed and is off for the rest of this run, which goes on: "
                f"{told(error)}"
            )


def _made(name: str, run: TrackedRun) -> Tracker:
    # Imported here: two are extras.
    if name == "wandb":
        from cast_ray.runs.tracking.weights_and_biases import WeightsAndBiases

        return WeightsAndBiases(run)
    if name == "mlflow":
        from cast_ray.runs.tracking.mlflow_client import Mlflow

        return Mlflow(run)
    from cast_ray.runs.tracking.tensorboard import TensorBoard

    return TensorBoard(run)
