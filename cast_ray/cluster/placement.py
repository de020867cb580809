"""Check that a cluster is large enough for a run, and wait for an autoscaler if there is one.

Only the size of the nodes counts, not what they run now: a part that finds its node busy says so
after its own time-out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.autoscaler.sdk import request_resources

from cast_ray.config.resources import WAIT_ON_RAY_UP_S, ResourcesConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EnvironmentSetupError

_LOOK_EVERY_S = 1.0
_RAY_UP_CONFIG = "ray_bootstrap_config.yaml"
"""In the home folder of a head that ``ray up`` made; jobs start there."""
_HEAD = "node:__internal_head__"
"""The resource that only the head has."""

Bundle = Mapping[str, float]
"""Amounts by resource name, as Ray spells them: CPU, GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Processes of one kind."""

    name: str
    count: int
    """How many the run begins with."""
    bundle: Bundle
    """Of each."""
    keys: str
    """The configuration keys that reduce the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster."""

    address: str
    bundle: Bundle
    """All of its resources."""
    is_head: bool = False
    node_id: str = ""
    memory_bytes: float = 0.0
    """What Ray gives to tasks."""


def parts_of(resources: ResourcesConfig, *, with_learner: bool = True) -> list[Part]:
    """Return what a run needs from its beginning."""
    learner = Part(
        name="learner ranks",
        count=resources.learner_ranks,
        bundle=bundle_of(resources.cpus_per_learner_rank, resources.gpus_per_learner_rank),
        keys="resources.learner_ranks",
    )
    return [learner] * with_learner + [
        Part(
            name="engines",
            count=resources.engines_at_start,
            bundle=bundle_of(resources.cpus_per_engine, resources.gpus_per_engine),
            keys="resources.engines (or begin with fewer: resources.min_engines)",
        ),
        Part(
            name="env runners",
            count=resources.env_runners_at_start,
            bundle=bundle_of(resources.cpus_per_env_runner),
            keys="resources.env_runners (or resources.min_env_runners)",
        ),
        Part(
            name="oracle actors",
            count=resources.oracle_actors,
            bundle=bundle_of(resources.cpus_per_oracle_actor, resources.gpus_per_oracle_actor),
            keys="resources.oracle_actors",
        ),
    ]


def bundle_of(cpus: float, gpus: float = 0.0) -> Bundle:
    """Return a reservation without zeros, as Ray requires."""
    return {name: value for name, value in (("CPU", cpus), ("GPU", gpus)) if value}


def reserved_cpus(config: TrainConfig) -> float:
    """Return how many CPUs a run's processes reserve in Ray."""
    resources = config.resources
    return (
        resources.learner_ranks * resources.cpus_per_learner_rank
        + resources.engines * resources.cpus_per_engine
        + resources.env_runners * resources.cpus_per_env_runner
        + resources.oracle_actors * resources.cpus_per_oracle_actor
        + 1  # Serve's controller
    )


def cluster_nodes() -> list[Node]:
    """Return the nodes that are alive."""
    return [
        Node(
            address=node["NodeManagerAddress"],
            bundle={name: node["Resources"].get(name, 0.0) for name in ("CPU", "GPU")},
            is_head=_HEAD in node["Resources"],
            node_id=node["NodeID"],
            memory_bytes=node["Resources"].get("memory", 0.0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def found_places(parts: Sequence[Part], nodes: Sequence[Node]) -> list[int]:
    """Return how many of each part fit, in the order of placing the parts that fits most.

    Each takes the fullest node that still has room for it.
    """
    orders = itertools.permutations(range(len(parts)))
    return max((_placed_in_order(parts, nodes, order) for order in orders), key=sum)


def placement_table(parts: Sequence[Part], nodes: Sequence[Node]) -> str:
    """Return a table: what is requested, what fits, and the nodes."""
    rows = [("part", "requested", "each", "fit")]
    for part, found in zip(parts, found_places(parts, nodes), strict=True):
        is_short = "  <- too few" if found < part.count else ""
        rows.append((part.name, str(part.count), bundle_text(part.bundle), f"{found}{is_short}"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    lines += [
        f"node {node.address}{' (head)' * node.is_head}: {bundle_text(node.bundle)}"
        for node in nodes
    ]
    return "\n".join(f"  {line}" for line in lines)


def wait_for_places(
    config: TrainConfig,
    *,
    say: Callable[[str], None],
    with_learner: bool = True,
    nodes_now: Callable[[], Sequence[Node]] = cluster_nodes,
) -> None:
    """Return when the cluster is large enough for what the run begins with.

    Args:
        config: of the run.
        say: called with what is missing, whenever that changes.
        with_learner: whether the run learns.
        nodes_now: returns the cluster's nodes.

    Raises:
        EnvironmentSetupError: it is too small, and no autoscaler changed that in time; with a
            table.
    """
    parts = parts_of(config.resources, with_learner=with_learner)
    nodes = nodes_now()
    wait_s = wait_for_nodes_s(config.resources)
    if not _pending(parts, found_places(parts, nodes)):
        if wait_s:  # withdraws what a driver that was killed while waiting had requested
            request_resources(bundles=[])
        return
    if wait_s == 0:
        raise EnvironmentSetupError(
            f"the cluster cannot hold this run:\n{placement_table(parts, nodes)}\n"
            f"lower {_settings(parts, nodes)}, add nodes, or, with an autoscaler, set "
            "resources.wait_for_nodes_s"
        )
    _ask_and_wait(parts, wait_s=wait_s, say=say, nodes_now=nodes_now)


def placement_report(resources: ResourcesConfig, nodes: Sequence[Node]) -> tuple[bool, str]:
    """Return whether a run could begin on these nodes or wait for others, and a report."""
    parts = parts_of(resources)
    missing = _pending(parts, found_places(parts, nodes))
    wait_s = wait_for_nodes_s(resources)
    if not missing:
        verdict = "the run fits"
    elif wait_s:
        verdict = f"the run would request nodes and wait {wait_s:g} s for them; missing: {missing}"
    else:
        verdict = f"the run would be refused; missing: {missing}"
    return not missing or wait_s > 0, f"{placement_table(parts, nodes)}\n{verdict}"


def bundle_text(bundle: Bundle) -> str:
    """Return a reservation as text."""
    return ", ".join(f"{value:g} {name}" for name, value in bundle.items() if value) or "nothing"


def _ask_and_wait(
    parts: Sequence[Part],
    *,
    wait_s: float,
    say: Callable[[str], None],
    nodes_now: Callable[[], Sequence[Node]],
) -> None:
    wanted = [dict(part.bundle) for part in parts for _ in range(part.count)]
    started, said = time.monotonic(), ""
    try:
        while True:
            # Repeated: a cluster keeps only one such request, and another run may replace it.
            request_resources(bundles=wanted)
            nodes = nodes_now()
            pending = _pending(parts, found_places(parts, nodes))
            if not pending:
                return
            if time.monotonic() - started > wait_s:
                raise EnvironmentSetupError(
                    f"the cluster has not grown enough within {wait_s:g} s; still missing: "
                    f"{pending}\n{placement_table(parts, nodes)}\nsee `ray status` for the "
                    "autoscaler's state, or raise resources.wait_for_nodes_s"
                )
            if said != (said := f"waiting for nodes ({len(nodes)} there): {pending}"):
                say(said)
            time.sleep(_LOOK_EVERY_S)
    finally:
        # From here on the parts' own reservations keep the nodes until the run ends.
        request_resources(bundles=[])


def wait_for_nodes_s(resources: ResourcesConfig) -> float:
    """Return how long a run waits for an autoscaler's nodes; 0 = not at all."""
    if resources.wait_for_nodes_s >= 0:
        return resources.wait_for_nodes_s
    return WAIT_ON_RAY_UP_S if (Path.home() / _RAY_UP_CONFIG).is_file() else 0.0


def _placed_in_order(
    parts: Sequence[Part], nodes: Sequence[Node], order: Sequence[int]
) -> list[int]:
    free = [dict(node.bundle) for node in nodes]
    found = [0] * len(parts)
    for index in order:
        bundle = parts[index].bundle
        for _ in range(parts[index].count):
            holds = [node for node in free if _holds(node, bundle)]
            if not holds:
                break
            # GPUs are scarce: nodes with GPUs are left to parts that need them.
            fullest = min(holds, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)))
            for name, value in bundle.items():
                fullest[name] -= value
            found[index] += 1
    return found


def _holds(free: Bundle, bundle: Bundle) -> bool:
    # Ray counts in ten-thousandths; sums of decimals miss by less.
    return all(free.get(name, 0) >= value - 1e-6 for name, value in bundle.items())


def _pending(parts: Sequence[Part], found: Sequence[int]) -> str:
    pairs = zip(parts, found, strict=True)
    return "; ".join(
        f"{part.count - number} {part.name} of {bundle_text(part.bundle)}"
        for part, number in pairs
        if number < part.count
    )


def _settings(parts: Sequence[Part], nodes: Sequence[Node]) -> str:
    pairs = zip(parts, found_places(parts, nodes), strict=True)
    return "; ".join(part.keys for part, found in pairs if found < part.count)
