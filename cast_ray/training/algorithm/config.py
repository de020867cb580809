"""``AlgorithmConfig``: a run's configuration as a chain of calls, with RLlib's names.

It has no defaults and no checks of its own: every value becomes a key of ``TrainConfig`` and goes
the way of a ``key=value`` of the command line. Neither torch nor Ray is imported here.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cast_ray.config.load import Layer, mapping_layer, merged_layers, resolve, yaml_layer
from cast_ray.config.reference import config_values
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError

if TYPE_CHECKING:
    from cast_ray.training.algorithm.algorithm import Algorithm
    from cast_ray.training.algorithm.callbacks import Callbacks

_CALLBACKS = "callbacks"


class AlgorithmConfig:
    """Builds an ``Algorithm``. Each method sets some keys and returns the configuration itself.

    Besides the arguments named in its text, a method takes every key of its sections by the key's
    own name (docs/configuration.md, or ``cast-ray config``). Values may be search spaces of Ray
    Tune. What is not set has the default of the quickstart; ``validate`` and ``build_algo`` check
    all of it.
    """

    def __init__(self, algorithm: str | None = None) -> None:
        """Begin with the defaults, or with those of a named algorithm (``training``)."""
        self._file: Layer | None = None
        self._own: dict[str, Layer] = {}
        self.callbacks_class: type[Callbacks] | None = None
        if algorithm is not None:
            self.training(algorithm=algorithm)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration with nested values, as from ``to_dict`` or a YAML file.

        Raises:
            ConfigError: it is no mapping.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(f"a configuration is a dictionary of sections, got {values!r}")
        config = cls()
        own = dict(values)
        if (found := own.pop(_CALLBACKS, None)) is not None:
            config.callbacks(found)
        config._file = mapping_layer(own, "the dictionary")
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the configuration in a YAML file, such as a run's ``config.yaml``.

        Raises:
            ConfigError: the file is missing or is not YAML of sections.
        """
        config = cls()
        config._file = yaml_layer(Path(path))
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return what was set, nested by section, for ``from_dict``; search spaces stay as set."""
        found = merged_layers(self._layers(), has_file=self._file is not None)
        return found | ({_CALLBACKS: self.callbacks_class} if self.callbacks_class else {})

    def copy(self) -> Self:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def validate(self) -> TrainConfig:
        """Return all values of the run, checked.

        Raises:
            ConfigError: as on the command line: an unknown key, a bad value, a contradiction.
        """
        return resolve(self._layers(), has_file=self._file is not None)

    def build_algo(self) -> Algorithm:
        """Start the run: engines, env runners, oracles and learners.

        Raises:
            CastRayError: the configuration or the machine is not fit; nothing is overwritten.
        """
        from cast_ray.training.algorithm.algorithm import Algorithm

        self.validate()
        return Algorithm(self)

    def environment(self, env: str | None = None, **values: Any) -> Self:
        """Set the game and its boards.

        Args:
            env: name of the game: ``sokoban``, ``minesweeper``, ``rush_hour`` or a plug-in's.
            **values: ``tier`` (size and difficulty), and the keys of ``puzzles`` (``file``,
                ``num_train``, ...).
        """
        if env is not None:
            values = {"game": env, **values}
        return self._set("environment", values, ("game", "tier"), ("puzzles",))

    def env_runners(self, **values: Any) -> Self:
        """Set how episodes are played.

        Args:
            **values: ``num_env_runners``, ``num_cpus_per_env_runner``, ``min_env_runners``,
                ``groups_per_env_runner``, ``max_staleness``, and the keys of ``rollout``
                (``max_answer_tokens``, ``response_tokens``, ...).
        """
        names = {
            "num_env_runners": "resources.env_runners",
            "num_cpus_per_env_runner": "resources.cpus_per_env_runner",
            "min_env_runners": "resources.min_env_runners",
            "groups_per_env_runner": "resources.groups_per_env_runner",
        }
        return self._set("env_runners", values, ("max_staleness",), ("rollout",), names)

    def engines(self, **values: Any) -> Self:
        """Set the vLLM engines.

        Args:
            **values: ``num_engines``, ``num_cpus_per_engine``, ``num_gpus_per_engine``,
                ``min_engines``, and the keys of ``engine`` (``dtype``, ``vllm``, ...).
        """
        names = {
            "num_engines": "resources.engines",
            "num_cpus_per_engine": "resources.cpus_per_engine",
            "num_gpus_per_engine": "resources.gpus_per_engine",
            "min_engines": "resources.min_engines",
        }
        return self._set("engines", values, (), ("engine", "sync"), names)

    def learners(self, **values: Any) -> Self:
        """Set the learner's ranks.

        Args:
            **values: ``num_learners``, ``num_cpus_per_learner``, ``num_gpus_per_learner``, and the
                keys of ``learner`` (``zero_stage``, ``dtype``, ``lora_rank``, ...).
        """
        names = {
            "num_learners": "resources.learner_ranks",
            "num_cpus_per_learner": "resources.cpus_per_learner_rank",
            "num_gpus_per_learner": "resources.gpus_per_learner_rank",
        }
        return self._set("learners", values, (), ("learner",), names)

    def rl_module(self, **values: Any) -> Self:
        """Set the policy network.

        Args:
            **values: the keys of ``policy``: ``path`` (a model directory), or the shape of a small
                model that the run makes.
        """
        return self._set("rl_module", values, (), ("policy",))

    def warm_start(self, **values: Any) -> Self:
        """Set the supervised training before reinforcement learning: the keys of ``warm_start``."""
        return self._set("warm_start", values, (), ("warm_start",))

    def training(self, **values: Any) -> Self:
        """Set what is learned and how.

        Args:
            **values: ``algorithm`` (cast, grpo, dapo, gspo, gigpo, ...), ``alpha``, ``lr``,
                ``group_size``, ``puzzles_per_step``, ``steps`` (after which results say ``done``),
                functions of yours (``function`` of the advantage, ``loss``),
                and the keys of ``advantage``, ``objective``, ``distillation`` and ``learner``.
        """
        names = {
            "group_size": "rollout.group_size",
            "puzzles_per_step": "rollout.puzzles_per_step",
            "dynamic_sampling": "rollout.dynamic_sampling",
        }
        sections = ("advantage", "objective", "distillation", "learner")
        return self._set("training", values, ("algorithm", "steps"), sections, names)

    def reward(self, **values: Any) -> Self:
        """Set what an episode is worth: ``function`` of yours, as on the command line."""
        return self._set("reward", values, (), ("reward",))

    def oracle(self, oracle: str | None = None, **values: Any) -> Self:
        """Set what computes the cost-to-go.

        Args:
            oracle: ``exact`` or ``value_net``.
            **values: ``num_oracle_actors``, ``num_cpus_per_oracle_actor``,
                ``num_gpus_per_oracle_actor``, ``cache_mib``, and the keys of ``value_net``.
        """
        if oracle is not None:
            values = {"oracle": oracle, **values}
        names = {
            "num_oracle_actors": "resources.oracle_actors",
            "num_cpus_per_oracle_actor": "resources.cpus_per_oracle_actor",
            "num_gpus_per_oracle_actor": "resources.gpus_per_oracle_actor",
            "cache_mib": "rollout.oracle_cache_mib",
        }
        return self._set("oracle", values, ("oracle",), ("value_net",), names)

    def evaluation(self, **values: Any) -> Self:
        """Set validation during training and the held-out boards.

        Args:
            **values: ``evaluation_interval`` (steps between validations), and the keys of
                ``evaluation`` (``held_out_attempts``, ``temperature``, ...).
        """
        names = {"evaluation_interval": "evaluation.every"}
        return self._set("evaluation", values, (), ("evaluation",), names)

    def checkpointing(self, **values: Any) -> Self:
        """Set ``run_dir`` (a path or URI), ``checkpoint_every`` and ``checkpoints_kept``."""
        own = ("run_dir", "checkpoint_every", "checkpoints_kept")
        return self._set("checkpointing", values, own)

    def fault_tolerance(self, **values: Any) -> Self:
        """Set restarts and time limits.

        Args:
            **values: ``driver_restarts`` (of ``cast-ray train``), ``max_restarts`` and
                ``health_timeout_s`` (of learner ranks), ``rollout_timeout_s``,
                ``engine_start_timeout_s``, ``engine_request_timeout_s``,
                ``engine_update_timeout_s``, ``learner_timeout_s``.
        """
        names = {
            "max_restarts": "learner.max_restarts",
            "health_timeout_s": "learner.health_timeout_s",
            "learner_timeout_s": "learner.timeout_s",
            "rollout_timeout_s": "rollout.timeout_s",
            "engine_start_timeout_s": "engine.start_timeout_s",
            "engine_request_timeout_s": "engine.request_timeout_s",
            "engine_update_timeout_s": "engine.update_timeout_s",
        }
        return self._set("fault_tolerance", values, ("driver_restarts",), (), names)

    def resources(self, **values: Any) -> Self:
        """Set the keys of ``resources``: ``preset`` (``one_gpu``, ...), ``share_gpu``, ..."""
        return self._set("resources", values, (), ("resources",))

    def debugging(self, **values: Any) -> Self:
        """Set ``seed``, from which every random choice of the run follows, and ``tracking``."""
        return self._set("debugging", values, ("seed", "tracking"))

    def callbacks(
        self, callbacks_class: type[Callbacks] | None = None, **hooks: Callable[..., None]
    ) -> Self:
        """Set what is called during the run.

        Args:
            callbacks_class: a subclass of ``Callbacks``; the run makes one object of it.
            **hooks: single functions, by the names of its methods.

        Raises:
            ConfigError: it is no such class, or has no such method.
        """
        from cast_ray.training.algorithm.callbacks import Callbacks

        given = callbacks_class or Callbacks
        if not (isinstance(given, type) and issubclass(given, Callbacks)):
            raise ConfigError(f"callbacks() takes a subclass of cast_ray.Callbacks, got {given!r}")
        known = [name for name in vars(Callbacks) if name.startswith("on_")]
        _refuse_unknown("callbacks", hooks, known)
        bound = {name: staticmethod(hook) for name, hook in hooks.items()}
        self.callbacks_class = type(given.__name__, (given,), bound) if bound else given
        return self

    def _layers(self) -> list[Layer]:
        return [*([self._file] if self._file else []), *self._own.values()]

    def _set(
        self,
        method: str,
        values: Mapping[str, Any],
        keys: tuple[str, ...] = (),
        sections: tuple[str, ...] = (),
        names: Mapping[str, str] | None = None,
    ) -> Self:
        """Add a layer for each value.

        Args:
            method: of the caller, for messages.
            values: by argument.
            keys: those without a section that are arguments.
            sections: whose keys are arguments, the first one first.
            names: further arguments and their keys.
        """
        known = {key: key for key in keys}
        for key, _ in config_values(TrainConfig()):
            section, _, name = key.partition(".")
            if section in sections:
                known.setdefault(name, key)
        known |= names or {}
        _refuse_unknown(method, values, known)
        for name, value in values.items():
            key = known[name]
            nested: Any = value
            for part in reversed(key.split(".")):
                nested = {part: nested}
            self._own.pop(key, None)  # the order counts
            self._own[key] = mapping_layer(nested, f"{key}={value}")
        return self


def _refuse_unknown(method: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError for the first argument that a method does not have."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise ConfigError(f"{method}() has no argument {name}; {hint}")
