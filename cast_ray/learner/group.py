"""All ranks of the learner: placed, called together, and monitored while they work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cast_ray.config.learning import ObjectiveConfig
from cast_ray.config.resources import ResourcesConfig
from cast_ray.errors import CastRayError, LearnerError, LearnerLost, RemoteTimeout, WeightSyncError
from cast_ray.learner.actor import LearnerActor, as_actor_class
from cast_ray.learner.settings import LearnerSettings, UpdateStats
from cast_ray.runs.uris import PathOrUri
from cast_ray.weights.group import Meeting
from cast_ray.weights.manifest import WeightManifest

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_MARGIN_S = 60.0
"""Calls may take this much longer than a collective, so that a rank can report what it missed."""
_PING_EVERY_S = 10.0
"""With ``health_timeout_s`` the longest that a stopped rank goes unnoticed."""
RANKS_PLACE_TIMEOUT_S = 90.0
"""Longest wait for the ranks' resources: a cluster without room is reported within two minutes."""
_DEATH_KNOWN_S = 5.0
"""Ray knows of a dead process within a second or two."""


class LearnerGroup:
    """All ranks, called together; methods as in ``Learner``, tables as references.

    Any failure in a call ends all ranks, because the others wait for the one that failed: make a
    new group and load the last checkpoint. Tables and logprobs are given as object references, so
    that they are stored once for all ranks.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        resources: ResourcesConfig,
        *,
        reserved: PlacementGroup | None = None,
        place_timeout_s: float = RANKS_PLACE_TIMEOUT_S,
    ) -> None:
        """Start the ranks and wait until all have loaded the policy.

        Args:
            settings: of every rank.
            resources: how many ranks there are, and what each reserves.
            reserved: a placement group with a bundle per rank, which outlives this learner group;
                None = one is created.
            place_timeout_s: longest wait for resources that others hold.

        Raises:
            RemoteTimeout: the ranks did not start in time; so do all methods.
            LearnerLost: a rank died or hangs; so do all methods.
            LearnerError: a rank failed; so do all methods.
        """
        self._timeout_s = settings.config.timeout_s + _MARGIN_S
        self._health_timeout_s = settings.config.health_timeout_s
        self._is_started = False
        self._ranks: list[Any] = []  # Any: Ray's handles have the actor's methods, and .remote
        num_ranks = resources.learner_ranks
        num_cpus, num_gpus = resources.cpus_per_learner_rank, resources.gpus_per_learner_rank
        bundle = {"CPU": num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
        self._owns_reservation = reserved is None
        self._reservation = reserved or placement_group([bundle] * num_ranks, strategy="PACK")
        wait_s = min(self._timeout_s, place_timeout_s)
        if not self._reservation.wait(wait_s):
            self.close()
            raise RemoteTimeout(
                f"{num_ranks} learner rank(s) of {bundle} found no place within {wait_s:.0f} s: "
                f"the cluster has {_cpus_and_gpus(ray.cluster_resources())}, of which "
                f"{_cpus_and_gpus(ray.available_resources())} are free; lower "
                "resources.learner_ranks or add nodes"
            )
        # Passive: threads that spin at OpenMP's barriers fall to a tenth of their speed as soon as
        # anything else wants a core. Waiting asleep costs 8% of a quiet machine's 15,000 tokens/s
        # and no more than its share of a busy one's.
        num_threads = str(settings.config.num_threads)
        env_vars = {"OMP_NUM_THREADS": num_threads, "OMP_WAIT_POLICY": "PASSIVE"}
        if num_gpus == 0:
            env_vars["DS_ACCELERATOR"] = "cpu"
        rank_class = as_actor_class(LearnerActor)
        for rank in range(num_ranks):
            placed = rank_class.options(
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                runtime_env={"env_vars": env_vars},
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._reservation, rank),
            )
            self._ranks.append(placed.remote(settings, rank=rank, world_size=num_ranks))
        self._wait_for_processes()
        [address] = self._wait([self._ranks[0].open_rendezvous.remote()], "start")
        self._on_all(LearnerActor.start, *address)
        self._is_started = True
        logger.info("%d learner rank(s) ready at %s:%d", num_ranks, *address)

    def logprobs(self, table: ray.ObjectRef) -> np.ndarray:
        """Return ``[N]`` logprobs of the table behind a reference."""
        return self._on_all(LearnerActor.logprobs, table)[0]

    def reference_logprobs(self, table: ray.ObjectRef) -> np.ndarray:
        """Return ``[N]`` logprobs of the table under the reference model."""
        return self._on_all(LearnerActor.reference_logprobs, table)[0]

    def update(
        self,
        table: ray.ObjectRef,
        rows: np.ndarray,
        objective: ObjectiveConfig,
        start_logprobs: ray.ObjectRef,
        reference_logprobs: ray.ObjectRef | None = None,
    ) -> UpdateStats:
        """Take one optimizer step on a mini-batch."""
        arguments = (table, rows, objective, start_logprobs, reference_logprobs)
        return self._on_all(LearnerActor.update, *arguments)[0]

    def supervised_update(
        self, table: ray.ObjectRef, rows: np.ndarray, *, lr: float
    ) -> UpdateStats:
        """Take one optimizer step on the cross-entropy of the text."""
        return self._on_all(LearnerActor.supervised_update, table, rows, lr)[0]

    def release_memory(self) -> None:
        """Give back to the GPUs what torch keeps of them for later."""
        self._on_all(LearnerActor.release_memory)

    def publish_weights(self, directory: Path, *, version: int, dtype: str) -> WeightManifest:
        """Write the weights for the engines, in the engines' dtype; return their manifest."""
        arguments = (str(directory), version, dtype)
        manifest = self._on_all(LearnerActor.publish_weights, *arguments)[0]
        assert manifest is not None, "rank 0 writes it"
        return manifest

    def open_broadcast(self, manifest: WeightManifest, *, world_size: int) -> Meeting:
        """Check a published version and return the address for its receivers."""
        return self._on_all(LearnerActor.open_broadcast, manifest, world_size, num_ranks=1)[0]

    def send_broadcast(self, *, timeout_s: float) -> Callable[[], WeightSyncError | None]:
        """Start to send; return a function that waits for the end and returns the error, if any."""
        sending = self._ranks[0].send_broadcast.remote(timeout_s)
        return lambda: self._wait([sending], "send_broadcast")[0]

    def save_model(self, directory: PathOrUri) -> None:
        """Write the policy as a Hugging Face directory."""
        self._on_all(LearnerActor.save_model, directory)

    def save_checkpoint(self, directory: PathOrUri, client_state: dict[str, Any]) -> None:
        """Write all that training needs to resume."""
        self._on_all(LearnerActor.save_checkpoint, directory, client_state)

    def load_checkpoint(self, directory: PathOrUri) -> dict[str, Any]:
        """Restore a checkpoint; return the caller's part of it."""
        return self._on_all(LearnerActor.load_checkpoint, directory)[0]

    def node_id(self) -> str:
        """Return Ray's name of the host where weights are published."""
        return self._on_all(LearnerActor.node_id)[0]

    def pids(self) -> list[int]:
        """Return the ranks' process ids."""
        return self._on_all(LearnerActor.pid)

    def close(self) -> None:
        """End all ranks and release their resources; calling it again has no effect."""
        while self._ranks:
            ray.kill(self._ranks.pop())
        if self._owns_reservation:
            remove_placement_group(self._reservation)

    def _on_all(
        self, method: Callable[..., _Result], *arguments: object, num_ranks: int | None = None
    ) -> list[_Result]:
        """Call a method of ``LearnerActor`` on all ranks, or on the first ``num_ranks``."""
        name = method.__name__
        if not self._ranks:
            raise LearnerError(f"learner {name}: the group is closed; make a new one")
        calls = [getattr(rank, name).remote(*arguments) for rank in self._ranks[:num_ranks]]
        return self._wait(calls, name)

    def _wait(self, results: list[ray.ObjectRef], name: str) -> list[Any]:
        """Return the ranks' results; if one fails, is late or hangs, end all ranks and raise."""
        try:
            self._wait_alive(results, name)
            return ray.get(results)
        except (RemoteTimeout, LearnerLost):
            self.close()
            raise
        except RayError as error:
            dead = self._dead_ranks()  # the others fail in their next collective, maybe first
            self.close()
            if dead or not isinstance(error, RayTaskError):
                raise _died(dead, name) from error
            if isinstance(error.cause, CastRayError):
                raise error.cause from None
            raise LearnerError(
                f"learner {name} failed and was ended; resume from the last checkpoint: "
                f"{error.cause!r}"
            ) from error

    def _dead_ranks(self) -> list[int]:
        """Return the ranks whose process is gone; one that hangs counts as alive."""
        asked = [rank.is_alive.remote() for rank in self._ranks]
        dead = []
        for number, answer in enumerate(asked):
            try:
                ray.get(answer, timeout=_DEATH_KNOWN_S)
            except GetTimeoutError:
                continue
            except RayError:
                dead.append(number)
        return dead

    def _wait_for_processes(self) -> None:
        """Return when every rank's process has answered or died (the next call reports that).

        Its imports alone can take longer than ``health_timeout_s`` on a busy machine.
        """
        asked = [rank.is_alive.remote() for rank in self._ranks]
        _, missing = ray.wait(asked, num_returns=len(asked), timeout=self._timeout_s)
        if missing:
            self.close()
            raise RemoteTimeout(
                f"{len(missing)} of {len(asked)} learner processes did not start within "
                f"{self._timeout_s} s: run ray status, or raise learner.timeout_s"
            )

    def _wait_alive(self, results: list[ray.ObjectRef], name: str) -> None:
        """Return when all results are available or one call has failed.

        A stopped process keeps the others waiting at their next collective; only a ping shows that
        within a minute.

        Raises:
            RemoteTimeout: they took too long.
            LearnerLost: a rank does not answer.
        """
        deadline = time.monotonic() + self._timeout_s
        waiting = results
        while waiting:
            done, waiting = ray.wait(waiting, timeout=min(_PING_EVERY_S, self._health_timeout_s))
            if done:
                ray.get(done)  # raises a failure at once
            elif time.monotonic() > deadline:
                raise RemoteTimeout(
                    f"learner {name} did not finish within {self._timeout_s} s and was ended: see "
                    "the learner's log for what it waits for, or raise learner.timeout_s"
                )
            elif self._is_started:  # a process that is still importing cannot answer
                self._ask_all(name)

    def _ask_all(self, name: str) -> None:
        asked = [rank.is_alive.remote() for rank in self._ranks]
        _, silent = ray.wait(asked, num_returns=len(asked), timeout=self._health_timeout_s)
        if silent:
            ranks = ", ".join(str(asked.index(one)) for one in silent)
            raise LearnerLost(
                f"learner rank {ranks} did not answer for {self._health_timeout_s} s during {name} "
                "and all ranks were ended: its process hangs or is stopped; resume from the last "
                "checkpoint"
            )


def _died(ranks: list[int], name: str) -> LearnerLost:
    which = ", ".join(map(str, ranks)) or "?"
    return LearnerLost(f"learner rank {which} died during {name}: resume from the last checkpoint")


def _cpus_and_gpus(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
