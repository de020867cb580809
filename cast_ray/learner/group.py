"""All ranks of the learner, placed and called together, and watched while they work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cast_ray.algorithms.objective import Objective
from cast_ray.errors import CastRayError, LearnerError, LearnerLost, RemoteTimeout, WeightSyncError
from cast_ray.learner.actor import LearnerActor, as_actor_class
from cast_ray.learner.settings import LearnerSettings, UpdateStats
from cast_ray.runs.uris import PathOrUri
from cast_ray.weights.group import Meeting
from cast_ray.weights.manifest import WeightManifest

logger = logging.getLogger(__name__)

_PING_EVERY_S = 10.0
"""With ``health_timeout_s`` the longest that a stopped rank goes unnoticed."""
RANKS_PLACE_TIMEOUT_S = 90.0
"""Longest wait for the ranks' place: that a cluster cannot hold them is said in two minutes."""
_DEATH_KNOWN_S = 5.0
"""Ray knows of a dead process within a second or two."""


class LearnerGroup:
    """All ranks, called together; methods as in ``Learner``, tables as references.

    Whatever goes wrong in a call ends all ranks, because the others wait for the one that failed:
    make a new group and load the last checkpoint. Tables and logprobs are given as object
    references, so that they are stored once for all ranks.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        *,
        num_ranks: int,
        num_cpus: float,
        num_gpus: float,
        timeout_s: float,
        health_timeout_s: float,
        place: PlacementGroup | None = None,
        place_timeout_s: float = RANKS_PLACE_TIMEOUT_S,
    ) -> None:
        """Start the ranks and wait until all have loaded the policy.

        Args:
            settings: of every rank.
            num_ranks: processes; each is a DeepSpeed rank.
            num_cpus: Ray's reservation for each rank.
            num_gpus: GPUs of each rank; 0 trains on the CPU.
            timeout_s: longest wait for any call, the start included; longer than the settings'
                own, so that a rank can still say what it missed.
            health_timeout_s: a rank that does not answer for so long ends a call before that.
            place: with a bundle for each rank, which outlives this group; None = one is made.
            place_timeout_s: how long the ranks may wait for a place that others hold.

        Raises:
            RemoteTimeout: the ranks did not start in time.
            LearnerLost: a rank died or hangs; so do all methods.
            LearnerError: a rank failed; so do all methods.
        """
        self._timeout_s, self._health_timeout_s = timeout_s, health_timeout_s
        self._is_started = False
        self._ranks: list[Any] = []  # Any: Ray's handles have the actor's methods, and .remote
        bundle = {"CPU": num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
        self._has_own_place = place is None
        self._place = place or placement_group([bundle] * num_ranks, strategy="PACK")
        wait_s = min(timeout_s, place_timeout_s)
        if not self._place.wait(wait_s):
            self.close()
            raise RemoteTimeout(
                f"{num_ranks} learner rank(s) of {bundle} found no place within {wait_s:.0f} s; "
                f"the cluster has {_in_words(ray.cluster_resources())}, free are "
                f"{_in_words(ray.available_resources())}: lower "
                "resources.learner_ranks, or add nodes"
            )
        # Passive: threads that spin at OpenMP's barriers fall to a tenth of their speed as soon as
        # anything else wants a core. Waiting asleep costs 8% of a quiet machine's 15,000 tokens/s
        # and no more than its share of a busy one's.
        env_vars = {"OMP_NUM_THREADS": str(settings.num_threads), "OMP_WAIT_POLICY": "PASSIVE"}
        if num_gpus == 0:
            env_vars["DS_ACCELERATOR"] = "cpu"
        rank_class = as_actor_class(LearnerActor)
        for rank in range(num_ranks):
            placed = rank_class.options(
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                runtime_env={"env_vars": env_vars},
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._place, rank),
            )
            self._ranks.append(placed.remote(settings, rank=rank, world_size=num_ranks))
        self._wait_for_processes()
        [address] = self._wait([self._ranks[0].free_address.remote()], "start")
        self._on_all(lambda rank: rank.start.remote(*address), "start")
        self._is_started = True
        logger.info("%d learner rank(s) ready at %s:%d", num_ranks, *address)

    def logprobs(self, table: ray.ObjectRef) -> np.ndarray:
        """Return ``[N]`` logprobs of the table behind a reference."""
        return self._on_all(lambda rank: rank.logprobs.remote(table), "logprobs")[0]

    def reference_logprobs(self, table: ray.ObjectRef) -> np.ndarray:
        """Return ``[N]`` logprobs of the table under the reference model."""
        return self._on_all(
            lambda rank: rank.reference_logprobs.remote(table), "reference_logprobs"
        )[0]

    def update(
        self,
        table: ray.ObjectRef,
        rows: np.ndarray,
        objective: Objective,
        start_logprobs: ray.ObjectRef,
        reference_logprobs: ray.ObjectRef | None = None,
    ) -> UpdateStats:
        """Take one optimizer step on a mini-batch."""
        return self._on_all(
            lambda rank: rank.update.remote(
                table, rows, objective, start_logprobs, reference_logprobs
            ),
            "update",
        )[0]

    def supervised_update(
        self, table: ray.ObjectRef, rows: np.ndarray, *, lr: float
    ) -> UpdateStats:
        """Take one optimizer step on the cross-entropy of the text."""
        return self._on_all(
            lambda rank: rank.supervised_update.remote(table, rows, lr), "supervised_update"
        )[0]

    def publish_weights(self, directory: Path, *, version: int, dtype: str) -> WeightManifest:
        """Write the weights for the engines, in the engines' dtype; return their manifest."""
        return self._on_all(
            lambda rank: rank.publish_weights.remote(str(directory), version, dtype),
            "publish_weights",
        )[0]

    def open_broadcast(self, manifest: WeightManifest, *, world_size: int) -> Meeting:
        """Prove a published version and return where its receivers are to come."""
        return self._on_all(
            lambda rank: rank.open_broadcast.remote(manifest, world_size),
            "open_broadcast",
            num_ranks=1,
        )[0]

    def send_broadcast(self, *, timeout_s: float) -> Callable[[], WeightSyncError | None]:
        """Begin to send; return a wait for the end, which says what went wrong."""
        sending = self._ranks[0].send_broadcast.remote(timeout_s)
        return lambda: self._wait([sending], "send_broadcast")[0]

    def save_model(self, directory: PathOrUri) -> None:
        """Write the policy as a Hugging Face directory."""
        self._on_all(lambda rank: rank.save_model.remote(directory), "save_model")

    def save_checkpoint(self, directory: PathOrUri, client_state: dict[str, Any]) -> None:
        """Write all that training needs to go on."""
        self._on_all(
            lambda rank: rank.save_checkpoint.remote(directory, client_state), "save_checkpoint"
        )

    def load_checkpoint(self, directory: PathOrUri) -> dict[str, Any]:
        """Go back to a checkpoint; return the caller's part of its state."""
        return self._on_all(lambda rank: rank.load_checkpoint.remote(directory), "load_checkpoint")[
            0
        ]

    def node_id(self) -> str:
        """Return Ray's name of the host where weights are published."""
        return self._on_all(lambda rank: rank.node_id.remote(), "node_id")[0]

    def pids(self) -> list[int]:
        """Return the ranks' process ids."""
        return self._on_all(lambda rank: rank.pid.remote(), "pid")

    def close(self) -> None:
        """End all ranks and give their place back; more than once does no harm."""
        while self._ranks:
            ray.kill(self._ranks.pop())
        if self._has_own_place:
            remove_placement_group(self._place)

    def _on_all(
        self, call: Callable[[Any], ray.ObjectRef], name: str, *, num_ranks: int | None = None
    ) -> list[Any]:
        if not self._ranks:
            raise LearnerError(f"learner {name}: the group is closed; make a new one")
        return self._wait([call(rank) for rank in self._ranks[:num_ranks]], name)

    def _wait(self, results: list[ray.ObjectRef], name: str) -> list[Any]:
        """Return the ranks' results; end all ranks and raise if one fails, is late or silent."""
        try:
            self._wait_alive(results, name)
            return ray.get(results)
        except RemoteTimeout:
            self.close()
            raise
        except LearnerLost:
            self.close()
            raise
        except RayTaskError as error:
            dead = self._dead_ranks()  # the others fail in their next collective, maybe first
            self.close()
            if dead:
                raise _died(dead, name) from error
            if isinstance(error.cause, CastRayError):
                raise error.cause from None
            raise LearnerError(
                f"learner {name} failed and was ended; resume from the last checkpoint: "
                f"{error.cause!r}"
            ) from error
        except RayError as error:
            dead = self._dead_ranks()
            self.close()
            raise _died(dead, name) from error

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
        """Return when every rank's process is there: no silence counts before its first answer.

        Its imports alone can take longer than ``health_timeout_s`` on a busy machine. One that
        died is there too: the next call says so.
        """
        asked = [rank.is_alive.remote() for rank in self._ranks]
        _, missing = ray.wait(asked, num_returns=len(asked), timeout=self._timeout_s)
        if missing:
            self.close()
            raise RemoteTimeout(
                f"{len(missing)} of {len(asked)} learner processes did not start within "
                f"{self._timeout_s} s: see ray status, or raise learner.timeout_s"
            )

    def _wait_alive(self, results: list[ray.ObjectRef], name: str) -> None:
        """Return when all results are there or one has failed.

        A stopped process keeps the others waiting at their next collective: nothing but asking
        it shows that within a minute.

        Raises:
            RemoteTimeout: they are late.
            LearnerLost: a rank does not answer.
        """
        deadline = time.monotonic() + self._timeout_s
        waiting = results
        while waiting:
            done, waiting = ray.wait(waiting, timeout=min(_PING_EVERY_S, self._health_timeout_s))
            if done:
                ray.get(done)  # a failure is worth no further wait
            elif time.monotonic() > deadline:
                raise RemoteTimeout(
                    f"learner {name} was not done within {self._timeout_s} s and was ended: raise "
                    "learner.timeout_s, or look at the learner's log for what it waits for"
                )
            elif self._is_started:  # a process that still imports cannot answer
                self._ask_all(name)

    def _ask_all(self, name: str) -> None:
        asked = [rank.is_alive.remote() for rank in self._ranks]
        _, silent = ray.wait(asked, num_returns=len(asked), timeout=self._health_timeout_s)
        if silent:
            ranks = ", ".join(str(asked.index(one)) for one in silent)
            raise LearnerLost(
                f"learner rank {ranks} did not answer for {self._health_timeout_s} s during {name} "
                "and all were ended: its process hangs or is stopped; resume from the last "
                "checkpoint"
            )


def _died(ranks: list[int], name: str) -> LearnerLost:
    which = ", ".join(map(str, ranks)) or "?"
    return LearnerLost(f"learner rank {which} died during {name}: resume from the last checkpoint")


def _in_words(resources: Mapping[str, float]) -> str:
    """Return CPUs and GPUs as text."""
    return ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
