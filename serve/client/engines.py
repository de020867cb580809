"""The engines of one run, for its driver: every call goes to all of them.

An engine may be down at any time: Serve restarts it, and it loads the newest published weights
before its first request. No call here waits for an engine that is down while another answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from cast_ray.errors import (
    CastRayError,
    EngineError,
    RemoteTimeout,
    TransferBroken,
    WeightSyncError,
)
from cast_ray.weights.broadcast import GIVE_UP_SHARE
from cast_ray.weights.group import Meeting
from cast_ray.weights.manifest import WeightManifest
from serve.client.applications import engines_up, failed_starts, remove_engines
from serve.client.link import local_error
from serve.messages import EngineStats, WeightReceipt
from serve.weights.receipts import WeightRoute

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
"""After this long without an answer, ask Serve whether the engine still runs."""
_FAILED = "it did not start"
BROADCAST_TRIES = 3
"""Each without the engines that the previous one lost."""


class WeightSending(Protocol):
    """The learner's end of broadcasts; an error it raises means the learner is lost."""

    def open_broadcast(self, manifest: WeightManifest, *, world_size: int) -> Meeting:
        """Verify a version and return where its receivers meet the sender."""
        ...

    def send_broadcast(self, *, timeout_s: float) -> Callable[[], WeightSyncError | None]:
        """Begin to send; return a function that waits for the end and returns the error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesUpdate:
    """The outcome of a weight update."""

    receipts: list[WeightReceipt]
    """Of the engines that answered, in order; at least one."""
    down: list[str]
    """Engines that did not. Each loads the newest published version before it answers again."""


class PolicyEngines:
    """Handles of a run's engines."""

    def __init__(
        self,
        handles: Sequence[DeploymentHandle],
        *,
        start_timeout_s: float,
        workers_per_engine: int,
        expected: Sequence[str] = (),
    ) -> None:
        """Take the engines' handles.

        Args:
            handles: one for each engine.
            start_timeout_s: how long an engine that Serve restarts may take.
            workers_per_engine: how many receive a broadcast.
            expected: names of engines that may have no place yet.
        """
        self.handles = tuple(handles)
        self.names = [handle.app_name for handle in handles]
        self._start_timeout_s = start_timeout_s
        self._workers_per_engine = workers_per_engine
        self._known_down: dict[str, str] = {}  # name to reason
        for name in expected:
            self._note(name, "it is not ready yet, and joins when it is")

    def update_weights(
        self, manifest: WeightManifest, *, timeout_s: float, sender: WeightSending | None = None
    ) -> EnginesUpdate:
        """Change all engines that are up to a published version.

        If none is up, wait for one as long as a start may take.

        Args:
            manifest: of the version.
            timeout_s: for one engine; of a broadcast, for each try.
            sender: broadcasts the tensors; None = every engine reads the file.

        Raises:
            WeightSyncError: an engine does not hold what was sent; the message names the layer.
            TransferBroken: no broadcast was completed; the engines are as they were.
            RemoteTimeout: no engine answered.
        """
        deadline = time.monotonic() + timeout_s + self._start_timeout_s
        while True:
            if sender is None:
                answers = self._ask(
                    lambda handle: handle.update_weights.remote(manifest), timeout_s
                )
            else:
                answers = self._broadcast(manifest, sender, timeout_s)
            receipts = [answer for answer in answers if answer is not None]
            if receipts:
                break
            if time.monotonic() > deadline:
                raise RemoteTimeout(
                    f"no engine of {self.names} loaded weights of version {manifest.version} "
                    f"within {timeout_s:g} s, and none was restarted within "
                    f"{self._start_timeout_s:g} s; see their logs"
                )
            time.sleep(_LOOK_S)
        pairs = zip(self.handles, answers, strict=True)
        down = [handle.app_name for handle, answer in pairs if answer is None]
        return EnginesUpdate(receipts=receipts, down=down)

    def score(self, token_ids: Sequence[int], *, timeout_s: float) -> list[tuple[float, ...]]:
        """Return ``[L - 1]`` logprobs of tokens 1 .. L-1, of each engine that is up."""
        answers = self._ask(lambda handle: handle.score.remote(tuple(token_ids)), timeout_s)
        return [answer for answer in answers if answer is not None]

    def stats(self, *, timeout_s: float) -> list[EngineStats | None]:
        """Return each engine's statistics, None for one that is down."""
        answers = self._ask(lambda handle: handle.stats.remote(), timeout_s)
        if None in answers:
            for name, reason in failed_starts(self.names).items():
                self._note(name, f"{_FAILED}: {reason}")
        return answers

    def rest(self, *, timeout_s: float) -> None:
        """Have all engines that are up give their GPU's memory to the learner."""
        self._ask_every_engine(lambda handle: handle.rest.remote(), timeout_s, "leave the GPU")

    def wake(self, *, timeout_s: float) -> None:
        """Have all engines that are up take their memory back."""
        self._ask_every_engine(lambda handle: handle.wake.remote(), timeout_s, "take the GPU back")

    def _ask_every_engine(
        self, call: Callable[[DeploymentHandle], Any], timeout_s: float, what: str
    ) -> None:
        for name, answer in zip(self.names, self._ask(call, timeout_s), strict=True):
            if answer is None:
                raise RemoteTimeout(
                    f"engine {name} did not {what}, which it shares with the learner, within "
                    f"{timeout_s:g} s; see its log"
                )

    def remove(self) -> None:
        """Delete these applications; one that does not end in time is left to Serve."""
        remove_engines(self.names)

    def _broadcast(
        self, manifest: WeightManifest, sender: WeightSending, timeout_s: float
    ) -> list[Any]:
        """Return every engine's receipt, None for one that is down or was lost.

        An engine that is lost breaks the group: the others keep their weights, and the broadcast is
        repeated without it. It reads the version from the file when it is back.
        """
        lost: set[str] = set()
        errors: list[CastRayError] = []
        for _ in range(BROADCAST_TRIES):
            up = engines_up(self.names) - lost
            if not up:
                break
            answers, errors = self._broadcast_once(manifest, sender, up, timeout_s)
            for error in errors:
                if not isinstance(error, TransferBroken):
                    raise error
            # The sender's own error does not matter if every engine has verified its weights.
            broken = [answer for answer in answers if isinstance(answer, TransferBroken)]
            if not broken:
                return answers
            logger.warning("%s; the broadcast is repeated with the remaining engines", broken[0])
            pairs = zip(self.handles, answers, strict=True)
            lost |= {handle.app_name for handle, answer in pairs if answer is None}
        else:
            raise TransferBroken(
                f"version {manifest.version} was broadcast {BROADCAST_TRIES} times and never "
                f"reached all engines that are up; last error: {errors[0]}"
            )
        for handle in self.handles:
            self._note(handle.app_name, "is being restarted")
        return [None] * len(self.handles)

    def _broadcast_once(
        self,
        manifest: WeightManifest,
        sender: WeightSending,
        up: Collection[str],
        timeout_s: float,
    ) -> tuple[list[Any], list[CastRayError]]:
        """Return each engine's receipt or error, and all errors, the engines' first."""
        names = [handle.app_name for handle in self.handles if handle.app_name in up]
        world_size = 1 + self._workers_per_engine * len(names)
        meeting = sender.open_broadcast(manifest, world_size=world_size)
        wait_for_sender = sender.send_broadcast(timeout_s=timeout_s * GIVE_UP_SHARE)

        def receive(handle: DeploymentHandle) -> Any:  # Any: a handle has no typed methods
            first_rank = 1 + self._workers_per_engine * names.index(handle.app_name)
            route = WeightRoute(meeting=meeting, first_rank=first_rank)
            return handle.update_weights.remote(manifest, route)

        answers = self._outcomes(receive, timeout_s, up)
        of_sender = wait_for_sender()
        errors = [answer for answer in answers if isinstance(answer, CastRayError)]
        return answers, errors if of_sender is None else [*errors, of_sender]

    def _ask(
        self, call: Callable[[DeploymentHandle], Any], timeout_s: float
    ) -> list[Any]:  # Any: Serve does not type a response
        """Return every engine's answer, None for one that is down or late; raise their errors."""
        outcomes = self._outcomes(call, timeout_s, engines_up(self.names))
        for outcome in outcomes:
            if isinstance(outcome, CastRayError):
                raise outcome
        return outcomes

    def _outcomes(
        self,
        call: Callable[[DeploymentHandle], Any],
        timeout_s: float,
        up: Collection[str],
    ) -> list[Any]:
        """Return answers as ``_ask`` does, with errors among them."""
        deadline = time.monotonic() + timeout_s
        responses = [call(handle) if handle.app_name in up else None for handle in self.handles]
        answers: list[Any] = []
        for handle, response in zip(self.handles, responses, strict=True):
            reason = "is being restarted"
            answer = None
            if response is not None:
                answer, reason = _answer(handle.app_name, response, deadline)
            self._note(handle.app_name, reason if answer is None else "")
            answers.append(answer)
        return answers

    def _note(self, name: str, reason: str) -> None:
        """Log once that an engine is down, once that its start failed, and once that it is back."""
        known = self._known_down.get(name)
        if reason and (known is None or (reason.startswith(_FAILED) and reason != known)):
            logger.warning("Engine %s is down: %s. The others continue.", name, reason)
            self._known_down[name] = reason
        # The monitor's thread and the job's may both see that it is back.
        elif not reason and self._known_down.pop(name, None) is not None:
            logger.warning("Engine %s is up.", name)


def _answer(name: str, response: DeploymentResponse, deadline: float) -> tuple[Any, str]:
    """Return an engine's answer and an empty reason, or None and the reason.

    If an engine that is up raised an error of ours, that error is its answer.
    """
    while True:
        left_s = deadline - time.monotonic()
        try:
            return response.result(timeout_s=max(0.0, min(_LOOK_S, left_s))), ""
        except TimeoutError:
            if left_s <= _LOOK_S or name not in engines_up([name]):
                # Otherwise the next replica would carry it out, when it is long out of date.
                response.cancel()
                return None, "it did not answer in time"
        except RayError as error:
            failure = local_error(error, name)
            if not isinstance(failure, EngineError):
                failure.__cause__ = error
                return failure, ""
            return None, str(failure).partition("\n")[0]
        except RayServeException as error:
            return None, str(error).partition("\n")[0]
