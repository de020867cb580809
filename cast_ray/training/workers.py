"""The remote parts of a run, engines and rollout pool: started and ended together."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group

from cast_ray.cluster.placement import bundle_of, wait_for_nodes_s
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EnvironmentSetupError, RemoteTimeout
from cast_ray.functions import sources_of
from cast_ray.learner.group import RANKS_PLACE_TIMEOUT_S, LearnerGroup
from cast_ray.learner.settings import LearnerSettings
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.chat_template import ChatPieces
from cast_ray.rollout.generate import Generate
from cast_ray.rollout.specs import conversation_limit
from cast_ray.runs.processes import ProcessIdentity
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.uris import PathOrUri, path_or_uri
from cast_ray.seeds import derive_seed
from cast_ray.training.collector import RolloutCollector
from cast_ray.weights.manifest import WeightManifest
from serve.client.applications import engine_names, remove_left_over
from serve.client.client import clients_of_an_engine, connect_policy
from serve.client.engines import PolicyEngines
from serve.client.start import PLACE_TIMEOUT_S
from serve.engine.deployment import deploy_engines
from serve.messages import BROADCAST_BACKEND, EngineOptions
from serve.weights.carrier import clear_hosts, start_source
from solver_actors.actors.pool import RolloutPool
from solver_actors.teacher import teacher_of
from solver_actors.value_net.scale import ValueNetOracle

logger = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 30.0
_CLEAR_TIMEOUT_S = 30.0


class Workers:
    """Engines and pool of one run. ``start`` creates them; ``close`` ends no other run's parts."""

    def __init__(
        self,
        *,
        engines: PolicyEngines,
        pool: RolloutPool,
        tokenizer: ChatTokenizer,
        weights_dir: Path,
        dtype: str,
        weight_source: str = "",
        is_broadcast: bool = False,
        rest_timeout_s: float = 0.0,
    ) -> None:
        """Take running parts.

        Args:
            engines: of the run.
            pool: of the run; ``collector`` takes its groups.
            tokenizer: the policy's.
            weights_dir: where weights are published, on every host.
            dtype: of the engines.
            weight_source: the name by which engines on other hosts find the weights; empty = there
                are no other hosts.
            is_broadcast: whether the learner sends its weights to the engines itself.
            rest_timeout_s: longest time for an engine to leave the GPU that it shares with the
                learner, and to take it back; 0 = no engine shares it.
        """
        self._rest_timeout_s = rest_timeout_s
        self._is_broadcast = is_broadcast
        self._source_name = weight_source
        self._source: tuple[str, Any] | None = None  # node and actor; Any: Ray's handle
        self.engines = engines
        self.pool = pool
        self.collector = RolloutCollector(pool)
        self.tokenizer = tokenizer
        self.weights_dir = weights_dir
        self.dtype = dtype

    @classmethod
    def start(
        cls,
        config: TrainConfig,
        *,
        run_id: str,
        model_dir: PathOrUri,
        pieces: ChatPieces,
        earlier_ids: Sequence[str] = (),
        value_net: ValueNetOracle | None = None,
    ) -> Workers:
        """Start engines with the weights of ``model_dir`` as version 0, and the pool.

        Args:
            config: of the run.
            run_id: prefix of all names.
            model_dir: the model that the engines load first, on their own hosts if it is a URI.
            pieces: of its chat template.
            earlier_ids: of this run's earlier drivers, whose remains are removed.
            value_net: for the oracles; None = they use the exact solvers.

        Raises:
            EngineError, RemoteTimeout: the engines did not start.
        """
        tokenizer_dir = localized(model_dir, with_weights=False)
        remove_left_over(earlier_ids)
        for earlier in earlier_ids:
            _clear(_shared_memory_path(earlier))
        weights_dir = shared_memory_dir(run_id)
        engine, resources = config.engine, config.resources
        pool = start_pool(
            config,
            run_id=run_id,
            model_dir=model_dir,
            pieces=pieces,
            engine_names=engine_names(run_id, resources.engines),
            value_net=value_net,
        )
        engines = None
        try:
            engines = _start_engines(
                config, run_id=run_id, model_dir=model_dir, weights_dir=weights_dir
            )
            # Otherwise the first env runner would get all groups of the first step.
            at_start = resources.env_runners_at_start
            pool.wait_until_there(at_start, timeout_s=engine.start_timeout_s)
            pool.expect_more()
        except BaseException:  # Ctrl-C, too: engines outlive their driver
            pool.close()
            if engines is not None:
                engines.remove()
            _clear(weights_dir)
            raise
        return cls(
            engines=engines,
            pool=pool,
            tokenizer=ChatTokenizer(tokenizer_dir, pieces),
            weights_dir=weights_dir,
            dtype=engine.dtype,
            weight_source=_source_name(run_id),
            is_broadcast=engine.weight_backend == BROADCAST_BACKEND,
            rest_timeout_s=engine.update_timeout_s if resources.share_gpu else 0.0,
        )

    def sync(self, manifest: WeightManifest, learner: LearnerGroup, *, timeout_s: float) -> float:
        """Send published weights to every engine and verify each layer.

        Args:
            manifest: of the new version.
            learner: that published it.
            timeout_s: per engine.

        Returns:
            The largest relative error of any layer in any engine.

        Raises:
            WeightSyncError: an engine does not hold the weights that were sent; names the layer.
            LearnerLost: a rank was lost while it was sending.
        """
        # For a broadcast, too: an engine that is restarted elsewhere reads the file.
        self._serve_weights_from(learner.node_id())
        sender = learner if self._is_broadcast else None
        receipts = self.engines.update_weights(
            manifest, timeout_s=timeout_s, sender=sender
        ).receipts
        return max(receipt.worst_relative_error for receipt in receipts)

    def _serve_weights_from(self, node_id: str) -> None:
        """Let the other hosts fetch weights from the node where the learner is now."""
        if not self._source_name or (self._source and self._source[0] == node_id):
            return
        if self._source:
            ray.kill(self._source[1])
        directory = str(self.weights_dir)
        source = start_source(self._source_name, directory=directory, node_id=node_id)
        self._source = (node_id, source)

    @contextmanager
    def engines_at_rest(self, release_memory: Callable[[], object]) -> Iterator[None]:
        """Let the engines leave the GPU that they share with the learner while it works.

        Args:
            release_memory: called before they come back, unless the learner's work failed.
        """
        if not self._rest_timeout_s:
            yield
            return
        self.engines.rest(timeout_s=self._rest_timeout_s)
        try:
            yield
            release_memory()
        finally:
            self.engines.wake(timeout_s=self._rest_timeout_s)

    def close(self) -> None:
        """End the pool, the engines and the shared-memory files of this run."""
        self.collector.close()
        self.pool.close()
        self.engines.remove()
        if self._source:
            ray.kill(self._source[1])
        _clear(self.weights_dir)


def _start_engines(
    config: TrainConfig, *, run_id: str, model_dir: PathOrUri, weights_dir: Path
) -> PolicyEngines:
    """Start a run's engines; see ``deploy_engines``."""
    return deploy_engines(
        run_id,
        EngineOptions(
            engine=config.engine,
            model_dir=str(model_dir.absolute()),
            max_model_len=conversation_limit(config),
            seed=derive_seed(config.seed, "engine") % 2**31,
            # Half: a stalled engine is replaced before its requests give up.
            stall_timeout_s=config.engine.request_timeout_s / 2,
            probe_timeout_s=_PROBE_TIMEOUT_S,
            can_rest=config.resources.share_gpu,
        ),
        config.resources,
        weights_directory=str(weights_dir),
        weight_source=_source_name(run_id),
        place_timeout_s=max(PLACE_TIMEOUT_S, wait_for_nodes_s(config.resources)),
    )


def start_pool(
    config: TrainConfig,
    *,
    run_id: str,
    model_dir: PathOrUri,
    pieces: ChatPieces,
    engine_names: Sequence[str],
    connect: Callable[..., Generate] = connect_policy,
    value_net: ValueNetOracle | None = None,
) -> RolloutPool:
    """Start a run's env runners and oracle actors.

    Args:
        config: of the run.
        run_id: prefix of all names.
        model_dir: holds the tokenizer.
        pieces: of its chat template.
        engine_names: of the engines to play with, which need not run yet.
        connect: connects to them inside an actor, like ``connect_policy``.
        value_net: for the oracles; None = they use the exact solvers.
    """
    rollout, engine, resources = config.rollout, config.engine, config.resources
    sharing = clients_of_an_engine(num_clients=resources.env_runners, num_engines=len(engine_names))
    return RolloutPool(
        run_id=run_id,
        resources=resources,
        game=config.game,
        oracle_max_bytes=rollout.oracle_cache_mib * 2**20,
        model_dir=str(model_dir.absolute()),
        pieces=pieces,
        make_generate=functools.partial(
            connect,
            engine_names,
            num_clients=resources.env_runners,
            expected=engine_names[resources.engines_at_start :],
            slots_per_engine=-(-engine.max_num_seqs // sharing),
            timeout_s=engine.request_timeout_s,
            recovery_timeout_s=engine.start_timeout_s,
        ),
        deadlock_ends_episode=rollout.deadlock_ends_episode,
        teacher=teacher_of(config),
        value_net=value_net,
        oracle=config.oracle,
        rescue=config.advantage.rescue,
        sources=sources_of(config.functions),
    )


def learner_settings(
    config: TrainConfig, *, model_dir: PathOrUri, pieces: ChatPieces | None = None
) -> LearnerSettings:
    """Return what every rank of a run's learner is given."""
    reference = config.objective.reference
    return LearnerSettings(
        config=config.learner,
        model_dir=str(model_dir.absolute()),
        reference_dir="" if reference == "start" else str(path_or_uri(reference).absolute()),
        seed=derive_seed(config.seed, "learner") % 2**31,
        pieces=pieces,
        sources=sources_of(config.functions),
    )


def reserve_learner(config: TrainConfig) -> PlacementGroup:
    """Request the placement group of a run's learner ranks, on as few nodes as possible."""
    resources = config.resources
    bundle = bundle_of(resources.cpus_per_learner_rank, resources.gpus_per_learner_rank)
    return placement_group([dict(bundle)] * resources.learner_ranks, strategy="PACK")


def start_learner(
    config: TrainConfig,
    *,
    model_dir: PathOrUri,
    pieces: ChatPieces | None = None,
    reserved: PlacementGroup | None = None,
) -> LearnerGroup:
    """Start the learner's ranks with the weights of a model directory.

    Args:
        config: of the run.
        model_dir: the model that they load.
        pieces: stored with the models that they save.
        reserved: from ``reserve_learner``; None = a new one.
    """
    return LearnerGroup(
        learner_settings(config, model_dir=model_dir, pieces=pieces),
        config.resources,
        reserved=reserved,
        place_timeout_s=max(RANKS_PLACE_TIMEOUT_S, wait_for_nodes_s(config.resources)),
    )


def shared_memory_dir(run_id: str) -> Path:
    """Create and return the run's folder for the weights, in shared memory.

    Raises:
        EnvironmentSetupError: shared memory cannot be written.
    """
    path = _shared_memory_path(run_id)
    try:
        path.mkdir(mode=0o700)
        # Tells doctor whose files these are.
        (path / "process").write_text(str(ProcessIdentity.of_this_process()))
    except OSError as error:
        raise EnvironmentSetupError(
            f"{path} cannot be created ({error.strerror}); run cast-ray doctor"
        ) from None
    return path


def _shared_memory_path(run_id: str) -> Path:
    return Path("/dev/shm") / f"cast-ray-{run_id}"


def _clear(directory: Path) -> None:
    """Delete a run's weights on every host; warn about hosts that do not answer."""
    try:
        clear_hosts(str(directory), timeout_s=_CLEAR_TIMEOUT_S)
    except RemoteTimeout as error:
        logger.warning("%s", error)


def _source_name(run_id: str) -> str:
    return f"{run_id}-weights"
