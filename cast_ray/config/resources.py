"""What a run takes of a cluster: one section, from which everything is placed.

The learner has one placement group; each engine and each actor of the pools has its own. An engine
or actor without room keeps its request: an autoscaler sees it, and it joins the run when a node
comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cast_ray.config.checks import above, at_least, between, require

PresetName = Literal["one_machine", "one_gpu", "one_node_8_gpus", "two_nodes_8_gpus"]

WAIT_ON_RAY_UP_S = 1800.0
"""A cloud takes minutes to start a machine, and more to set it up: Ray's image for GPUs and the
packages are 20 GB (the packages alone: nine minutes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesConfig:
    """Numbers of processes, and what Ray reserves for each.

    A resumed run may have others: they change no result by more than float rounding.
    """

    preset: PresetName = "one_machine"
    """Which values the others start from: naming one on the command line replaces those of a
    file."""
    engines: int = 1
    """Engines of the run; those without room join it later."""
    min_engines: int = 0
    """The run begins with this many; 0 = with all."""
    cpus_per_engine: float = 1.0
    """What Ray reserves for one engine."""
    gpus_per_engine: float = 0.0
    """As many as engine.tensor_parallel_size; with ``share_gpu`` a part of one; 0 = on CPU."""
    learner_ranks: int = 2
    """Processes that share each update. On CPU two of one thread beat one of two: small layers
    leave a second thread idle (an update of the warm start: 0.56 s against 0.73 s)."""
    cpus_per_learner_rank: float = 1.0
    """CPUs that Ray reserves for each learner rank."""
    gpus_per_learner_rank: float = 0.0
    """1, or with ``share_gpu`` a part of one; 0 trains on the CPU."""
    env_runners: int = 1
    """Processes that play episodes; those without room join later."""
    min_env_runners: int = 0
    """The run begins with this many; 0 = with all."""
    cpus_per_env_runner: float = 0.5
    """CPUs that Ray reserves for each env runner."""
    groups_per_env_runner: int = 64
    """Most groups that one plays at a time; the others wait for the next that is free or joins.
    64 groups of 8 keep two engines of 256 requests busy."""
    oracle_actors: int = 1
    """Processes that solve puzzles and remember the solutions; 0 where no oracle is asked."""
    cpus_per_oracle_actor: float = 0.5
    """CPUs that Ray reserves for each oracle actor."""
    gpus_per_oracle_actor: float = 0.0
    """1 or a part of one, on which a value network computes (``oracle: value_net``); 0 = on CPU."""
    share_gpu: bool = False
    """Each learner rank takes turns on its GPU with one engine, which sleeps while the rank works.
    With several of each, a rank takes more than half of a GPU, so that no two ranks meet on one."""
    wait_for_nodes_s: float = -1.0
    """How long a run asks the autoscaler for nodes and waits for them; 0 = not at all; -1 = 1800 on
    a cluster that ``ray up`` made, else 0."""

    def __post_init__(self) -> None:
        at_least(1, self, "resources.", "engines", "learner_ranks", "env_runners")
        at_least(1, self, "resources.", "groups_per_env_runner")
        at_least(0, self, "resources.", "oracle_actors")
        above(0, self, "resources.", "cpus_per_engine", "cpus_per_learner_rank")
        above(0, self, "resources.", "cpus_per_env_runner", "cpus_per_oracle_actor")
        between(0, 1, self, "resources.", "gpus_per_oracle_actor")
        for name in ("engines", "env_runners"):
            value, most = getattr(self, f"min_{name}"), getattr(self, name)
            rule = f"between 0 and resources.{name} ({most})"
            require(0 <= value <= most, f"resources.min_{name}", rule, value)
        gpus, rule = self.gpus_per_learner_rank, "0 or 1 (a part of one with resources.share_gpu)"
        is_part = self.share_gpu and 0 < gpus < 1
        require(gpus in (0, 1) or is_part, "resources.gpus_per_learner_rank", rule, gpus)
        wait = self.wait_for_nodes_s
        require(wait >= 0 or wait == -1, "resources.wait_for_nodes_s", ">= 0, or -1", wait)

    @property
    def engines_at_start(self) -> int:
        """How many engines the run begins with."""
        return self.min_engines or self.engines

    @property
    def env_runners_at_start(self) -> int:
        """How many env runners the run begins with."""
        return self.min_env_runners or self.env_runners

    def contradictions(self, *, tensor_parallel_size: int, max_staleness: int) -> list[str]:
        """Return why these values contradict each other, one sentence per contradiction."""
        found = []
        gpus = self.gpus_per_engine
        is_part = self.share_gpu and 0 < gpus < 1 and tensor_parallel_size == 1
        if gpus not in (0, tensor_parallel_size) and not is_part:
            found.append(
                f"resources.gpus_per_engine must be 0 or engine.tensor_parallel_size "
                f"({tensor_parallel_size}), one GPU for each worker, got {gpus:g}"
            )
        if self.share_gpu:
            together = gpus + self.gpus_per_learner_rank
            if not (gpus and self.gpus_per_learner_rank and together <= 1):
                found.append(
                    "resources.share_gpu needs resources.gpus_per_engine and "
                    "resources.gpus_per_learner_rank that add up to at most 1, got "
                    f"{gpus:g} and {self.gpus_per_learner_rank:g}"
                )
            if self.engines != self.learner_ranks:
                found.append(
                    "resources.share_gpu needs as many resources.engines as "
                    f"resources.learner_ranks, got {self.engines} and {self.learner_ranks}"
                )
            if self.learner_ranks > 1 and self.gpus_per_learner_rank <= 0.5:
                found.append(
                    f"resources.share_gpu with {self.learner_ranks} learner ranks needs "
                    "resources.gpus_per_learner_rank above 0.5, or Ray puts two on one GPU, got "
                    f"{self.gpus_per_learner_rank:g}"
                )
            if max_staleness:
                found.append(
                    f"resources.share_gpu needs max_staleness=0, got {max_staleness}: the engine "
                    "sleeps while the learner works"
                )
        return found


_DEFAULTS = {name: item.default for name, item in ResourcesConfig.__dataclass_fields__.items()}


def _preset(**values: float) -> Mapping[str, Any]:
    """Return a preset's values; what it does not name is the default."""
    own = ("preset", "wait_for_nodes_s")
    kept = {name: value for name, value in _DEFAULTS.items() if name not in own}
    return {"resources": {**kept, **values}}


_GPU_NODES = {
    "cpus_per_engine": 2,
    "gpus_per_engine": 1,
    "gpus_per_learner_rank": 1,
    "cpus_per_env_runner": 1,
    "cpus_per_oracle_actor": 1,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "one_machine": _preset(),
    "one_gpu": _preset(
        gpus_per_engine=0.5,
        gpus_per_learner_rank=0.5,
        learner_ranks=1,
        env_runners=2,
        share_gpu=True,
    ),
    # As many engines as ranks is near the best split for a model of 4 B (docs/cluster.md).
    "one_node_8_gpus": _preset(
        **_GPU_NODES, engines=4, learner_ranks=4, env_runners=4, oracle_actors=2
    ),
    # One node learns, the other plays: the ranks are placed first, on as few nodes as possible.
    "two_nodes_8_gpus": _preset(
        **_GPU_NODES, engines=8, learner_ranks=8, env_runners=8, oracle_actors=4
    ),
}
"""Values by preset; for more than two nodes raise ``engines`` and ``env_runners``."""
