"""What is known of a cluster's nodes, and what a run needs of them: values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node as Ray has it."""

    node_id: str
    ip: str
    is_head: bool
    num_cpus: float
    num_gpus: float
    memory_bytes: float
    """That Ray gives to tasks."""

    @property
    def can_compute(self) -> bool:
        """Whether engines and learner ranks may be placed there."""
        return self.num_cpus > 0 or self.num_gpus > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a process finds where it runs: the fields of ``node_probe.Found``."""

    versions: Mapping[str, str]
    shared_memory_free: int
    temporary_free: int
    temporary_used: float
    models: Mapping[str, str]
    stores: Mapping[str, str]
    run_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node, and what became of the question that it was asked."""

    node: ClusterNode
    facts: NodeFacts | None
    """None = no answer."""
    silence: str = ""
    """Why there is none."""
    clock_ahead_s: float = 0.0
    """Of the driver's clock, at least; below 0 = behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a run needs on every node."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Model directories, by setting."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """URIs, by setting."""
    run_dir: str = ""
    """Empty = not known yet."""
    weight_bytes: int = 0
    """Of a policy's weights as they are sent to the engines; 0 = of a small one."""


def labels(reports: Sequence[NodeReport]) -> list[str]:
    """Return a name for each node: its address, and its id where two nodes share one."""
    addresses = [report.node.ip for report in reports]
    return [
        report.node.ip
        if addresses.count(report.node.ip) == 1
        else f"{report.node.ip} (node {report.node.node_id[:8]})"
        for report in reports
    ]


def clock_ahead_s(*, asked: float, said: float, answered: float) -> float:
    """Return by how much a clock is ahead for certain, in seconds; below 0 = behind.

    Args:
        asked: the driver's time before it asked.
        said: the time that was answered.
        answered: the driver's time when it knew.
    """
    return min(said - asked, 0.0) or max(said - answered, 0.0)
