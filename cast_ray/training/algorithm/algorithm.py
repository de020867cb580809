"""``Algorithm``: a training run as an object, with RLlib's methods and result keys.

It is a ``ray.tune.Trainable``, so Ray Tune schedules, stops, copies and retries it. A checkpoint of
it is the run directory as it was then: it is resumed, replayed and viewed like any run.
"""

from __future__ import annotations

import copy
import itertools
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyarrow.fs import LocalFileSystem
from ray import tune
from ray.tune.tune import _Config as ParamSpace
from rich.console import Console

from cast_ray.config.train import TrainConfig
from cast_ray.errors import CallbackError, CastRayError, ConfigError
from cast_ray.runs.metrics import StepMetrics
from cast_ray.runs.remote_run import readable_copy
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.uris import path_or_uri
from cast_ray.training.algorithm.branch import branch_run, copy_run
from cast_ray.training.algorithm.callbacks import Callbacks
from cast_ray.training.algorithm.config import AlgorithmConfig
from cast_ray.training.algorithm.policy import Policy
from cast_ray.training.session import TrainingSession
from cast_ray.training.step_metrics import PlayedStep

ParamSpace.register(AlgorithmConfig)  # so that Tuner(param_space=...) takes one


class Algorithm(tune.Trainable):
    """One training run: ``train`` takes a step. A context manager that ends in ``stop``."""

    def __init__(
        self,
        config: AlgorithmConfig | TrainConfig | Mapping[str, Any] | None = None,
        storage: Any = None,
        *,
        resume: bool = False,
        progress: TrainProgress | None = None,
        lost_at: float | None = None,
    ) -> None:
        """Create the run, or reopen it, and start its parts; in a trial of Tune, at the first step.

        Args:
            config: of the run.
            storage: Tune's.
            resume: whether to resume the run in ``run_dir``.
            progress: shows the user what happens; None = nothing is shown.
            lost_at: when the driver that this one replaces was lost, as ``time.time``.

        Raises:
            RunInterrupted: a part was lost that may come back; resume the run.
            CastRayError: the configuration or the machine is not fit; nothing is overwritten.
        """
        self._opening = {"resume": resume, "lost_at": lost_at}
        self._progress = progress or TrainProgress(Console(quiet=True))
        self._session: TrainingSession | None = None
        if isinstance(config, TrainConfig):
            config = asdict(config)
        given = config.to_dict() if isinstance(config, AlgorithmConfig) else dict(config or {})
        super().__init__(given, storage)

    def setup(self, config: dict[str, Any]) -> None:
        """Check the configuration and start the run, or, in a trial, wait for the first step."""
        own = AlgorithmConfig.from_dict(config)
        self._callbacks = (own.callbacks_class or Callbacks)()
        self._config = own.validate()
        if self._storage is None:
            self._open()
            return
        if self._config.run_dir:
            raise ConfigError("run_dir is set by Ray Tune for each trial: leave it out")
        # Relative paths in the configuration are the user's.
        os.chdir(os.environ.get("TUNE_ORIG_WORKING_DIR", "."))
        self._config = replace(self._config, run_dir=str(self._unused_run_dir()))

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Reserve next to nothing: the run's parts reserve what they need, each by itself.

        Tune therefore starts as many trials as ``TuneConfig.max_concurrent_trials`` says.
        """
        return tune.PlacementGroupFactory([{"memory": 1.0}])

    @classmethod
    def from_checkpoint(
        cls, path: str | Path, *, config: AlgorithmConfig | None = None, **options: Any
    ) -> Self:
        """Begin a new run where another was saved.

        Args:
            path: what ``save_to_path`` returned, or any run directory or its URI.
            config: of the new run; None = that of the old one, in a run directory of its own.
            **options: as for ``Algorithm``.

        Raises:
            RunDirectoryError: no checkpoint is there, or the configuration is of another game,
                model or start.
        """
        source = _checkpoint(path)
        if config is None:
            config = AlgorithmConfig.from_file(source.config).checkpointing(run_dir="")
        own = AlgorithmConfig.from_dict(asdict(branch_run(source, config.validate())))
        own.callbacks_class = config.callbacks_class
        return cls(own, resume=True, **options)

    @property
    def directory(self) -> RunDirectory:
        """The run's files."""
        return self._open().run.directory

    @property
    def train_config(self) -> TrainConfig:
        """All values of the run."""
        return self._config

    @property
    def steps_done(self) -> int:
        """Steps that the policy has learned from."""
        return self._open().loop.steps_done

    def step(self) -> dict[str, Any]:
        """Take one step; ``train`` calls this and adds Tune's own keys.

        Returns:
            RLlib's keys, and under ``cast_ray`` the row of ``metrics.parquet``.

        Raises:
            RunInterrupted: a part was lost that may come back; resume the run.
            CallbackError: a callback raised; what was played is kept.
        """
        with self._closed_on_failure():
            session = self._open()
            result = _result(session.take_step(), session.loop.metrics.rows, self._config)
            self._call("on_train_result", result=copy.deepcopy(result))
        return result

    def evaluate(self, name: str = "") -> dict[str, Any]:
        """Play the held-out boards with the present weights.

        Args:
            name: of the file in ``evaluations/``; empty = ``step-NNNNN``.

        Returns:
            ``env_runners`` with ``episode_return_mean`` and ``num_episodes``, and the 95% interval.
        """
        with self._closed_on_failure():
            session = self._open()
            self._call("on_evaluate_start")
            success = session.evaluate(name or f"step-{session.loop.steps_done:05d}")
            metrics = {
                "env_runners": {
                    "episode_return_mean": success.success,
                    "num_episodes": success.n,
                },
                "success_low": success.low,
                "success_high": success.high,
            }
            self._call("on_evaluate_end", evaluation_metrics=copy.deepcopy(metrics))
        return metrics

    def save_to_path(self, path: str | Path | None = None) -> str:
        """Save the run as it is now, and return where.

        Args:
            path: of a new directory; None = a checkpoint in the run directory alone.

        Raises:
            RunDirectoryError: the directory is not empty.
        """
        session = self._open()
        session.save_checkpoint()
        directory = session.run.directory
        if path is None:
            return str(directory.address)
        copy_run(RunDirectory(readable_copy(directory.address, with_weights=True)), Path(path))
        return str(Path(path).absolute())

    def restore_from_path(self, path: str | Path) -> None:
        """Resume from where another run of this configuration was saved, in a new run directory."""
        self.load_checkpoint(str(path))

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save to a directory of Tune's."""
        self.save_to_path(checkpoint_dir)

    def load_checkpoint(self, checkpoint: dict[str, Any] | str | None) -> None:
        """Begin a new run directory from a checkpoint, with this object's configuration."""
        assert isinstance(checkpoint, str)
        self.cleanup()
        wanted = replace(self._config, run_dir=str(self._unused_run_dir()))
        self._config = branch_run(_checkpoint(checkpoint), wanted)
        self._opening = {"resume": True, "lost_at": None}
        self._open()

    def save_model(self) -> None:
        """Write the policy to the run's ``model/``, for ``cast-ray eval`` and ``serve``."""
        self._open().save_model()

    def get_policy(self) -> Policy:
        """Return the present policy, to act on boards."""
        return Policy(self._open())

    def cleanup(self) -> None:
        """End all parts; ``stop`` calls this. What is not in a checkpoint is learned again."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.parts.__exit__(kind, failure, trace)

    def _setup_logdir(self) -> None:
        """Make no folder outside the run directory, unless Tune asks for one."""
        self._logdir = os.devnull
        if self._storage is not None:
            super()._setup_logdir()

    def _open(self) -> TrainingSession:
        """Return the running parts; start them at the first call."""
        if self._session is None:
            session = TrainingSession(
                self._config, progress=self._progress, on_played=self._played, **self._opening
            )
            self._session = session
            run_dir = str(session.run.directory.address)
            self._config = replace(session.run.config, run_dir=run_dir)
            self._iteration = session.loop.steps_done
            with self._closed_on_failure():
                self._call("on_algorithm_init")
                if session.run.goes_on is not None:
                    self._call("on_checkpoint_loaded")
        return self._session

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """End all parts if the block raises; the next call resumes the run."""
        try:
            yield
        except CastRayError as failure:
            self._opening = {"resume": True, "lost_at": None}
            self.__exit__(type(failure), failure, failure.__traceback__)
            raise

    def _unused_run_dir(self) -> Path:
        """Return a path for this trial's next run directory: a restored trial has several."""
        base, storage = Path(self._config.run_dir), self._storage
        if storage is not None:
            # With Tune's results, or in its working directory if they are stored remotely.
            is_here = isinstance(storage.storage_filesystem, LocalFileSystem)
            base = Path(storage.trial_fs_path if is_here else self._logdir, "run")
        names = (base.name if n == 1 else f"{base.name}-{n}" for n in itertools.count(1))
        return next(base.with_name(name) for name in names if not base.with_name(name).exists())

    def _played(self, played: PlayedStep) -> None:
        for row in range(played.batch.num_rows):
            self._call("on_episode_end", episode=played.batch.slice(row, 1))
        self._call("on_sample_end", samples=played.batch)

    def _call(self, name: str, **arguments: Any) -> None:
        """Call a hook.

        Raises:
            CallbackError: it raised; the run's parts were ended.
        """
        try:
            getattr(self._callbacks, name)(algorithm=self, **arguments)
        except CastRayError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise CallbackError(
                f"{type(self._callbacks).__name__}.{name} raised {type(error).__name__}: {error} "
                f"({where.filename}, line {where.lineno}); all that was played is kept in "
                f"{self._config.run_dir}: fix it and resume the run"
            ) from error


def _checkpoint(path: str | Path) -> RunDirectory:
    return RunDirectory.existing(readable_copy(path_or_uri(str(path)), with_weights=True))


def _result(row: StepMetrics, rows: list[StepMetrics], config: TrainConfig) -> dict[str, Any]:
    num_steps = sum(earlier.num_turns for earlier in rows)
    result: dict[str, Any] = {
        "done": row.step >= config.steps,
        "num_env_steps_sampled_lifetime": num_steps,
        "env_runners": {
            "episode_return_mean": row.reward_mean,
            "episode_len_mean": row.turns_mean,
            "num_episodes": row.num_trajectories,
            "num_episodes_lifetime": sum(earlier.num_trajectories for earlier in rows),
            "num_env_steps_sampled": row.num_turns,
            "num_env_steps_sampled_lifetime": num_steps,
        },
        "learners": {
            "default_policy": {
                "total_loss": row.loss,
                "entropy": row.entropy,
                "mean_kl_loss": row.kl,
                "gradients_default_optimizer_global_norm": row.grad_norm,
                "default_optimizer_learning_rate": config.learner.lr,
                "weights_seq_no": row.weight_version,
            }
        },
        "cast_ray": asdict(row),
    }
    if row.validation_success is not None:
        success = {"episode_return_mean": row.validation_success}
        result["evaluation"] = {"env_runners": success}
    return result
