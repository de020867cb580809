"""What is wrong with a cluster for a run, in sentences: what, on which nodes, what to do.

Pure. Nodes with the same trouble share a sentence: a cluster of a hundred wrong nodes is one fault.

What is known of a cluster's nodes, and what a run needs of them: values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cast_ray.cluster.node_probe import CODE


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


WEIGHT_FILES = 3
"""In shared memory of each host: two versions, and a file to write the next one into."""
MAX_CLOCK_DIFFERENCE_S = 5.0
MOST_USED = 0.95
"""Ray stops spilling objects above this share of the disk."""
_GIB = 2**30


def problems_of(driver: NodeFacts, reports: Sequence[NodeReport], needs: Needs) -> list[str]:
    """Return what keeps a run from being trained there; empty = nothing was found.

    Args:
        driver: what the driver's own process found.
        reports: of all nodes.
        needs: of the run.
    """
    return _said(reports, lambda report: _problems(driver, report, needs))


def notes_of(reports: Sequence[NodeReport], needs: Needs, *, num_dead: int = 0) -> list[str]:
    """Return what somebody should know, and what was not looked at.

    Args:
        reports: of all nodes.
        needs: of the run.
        num_dead: nodes that were in the cluster and are not any more.
    """
    notes = _said(reports, _notes)
    if len(reports) > 1 and not needs.run_dir:
        notes.append(
            "whether all nodes see the run's directory was not looked at: give run_dir=PATH"
        )
    if num_dead:
        notes.append(f"{num_dead} node(s) died or were removed since the cluster started")
    return notes


def _problems(driver: NodeFacts, report: NodeReport, needs: Needs) -> Iterator[str]:
    facts = report.facts
    if facts is None:
        yield f"nothing is known, because {report.silence}: look at `ray status` and remove it"
        return
    yield from _version_problems(driver, facts)
    for key, fault in facts.models.items():
        if fault:
            yield (
                f"{key}={needs.models[key]} {fault}: put the model there, or on storage that all "
                "nodes see"
            )
    if facts.run_dir:
        yield (
            f"run_dir={needs.run_dir} {facts.run_dir}: give a directory on storage that all nodes "
            "see and write"
        )
    for key, fault in facts.stores.items():
        if fault:
            yield f"{key}={needs.stores[key]}: {fault}"
    wanted = WEIGHT_FILES * needs.weight_bytes
    if report.node.can_compute and facts.shared_memory_free < wanted:
        yield (
            f"/dev/shm has {_gib(facts.shared_memory_free)} free, and the weights on their way to "
            f"the engines take {_gib(wanted)}: give it more (docker run --shm-size)"
        )


def _version_problems(driver: NodeFacts, facts: NodeFacts) -> Iterator[str]:
    here, there = driver.versions[CODE], facts.versions[CODE]
    if not there:
        yield f"cast_ray is missing, the driver has {here}: install it on all nodes"
    elif there != here:
        yield (
            f"cast_ray is {there}, the driver's {here}: install the same on all nodes, or send "
            "this checkout's by cast-ray submit --with-code"
        )
    others = [
        f"{name} is {facts.versions[name] or 'missing'} (the driver's {version or 'missing'})"
        for name, version in driver.versions.items()
        if name != CODE and facts.versions[name] != version
    ]
    if others:
        yield f"{', '.join(others)}: install the same on all nodes"


def _notes(report: NodeReport) -> Iterator[str]:
    facts = report.facts
    if facts is None:
        return
    ahead = report.clock_ahead_s
    if abs(ahead) > MAX_CLOCK_DIFFERENCE_S:
        direction = "ahead of" if ahead > 0 else "behind"
        yield (
            f"the clock is {abs(ahead):.0f} s {direction} the driver's: set it by NTP, or times in "
            "logs and figures mislead"
        )
    if facts.temporary_used > MOST_USED:
        yield (
            f"the disk for Ray's session is {facts.temporary_used:.0%} full "
            f"({_gib(facts.temporary_free)} free): free some, Ray spills nothing there"
        )


def _said(
    reports: Sequence[NodeReport], sentences: Callable[[NodeReport], Iterable[str]]
) -> list[str]:
    """Return each sentence once, with all nodes that it is of."""
    nodes_of: dict[str, list[str]] = {}
    for report, label in zip(reports, labels(reports), strict=True):
        for sentence in sentences(report):
            nodes_of.setdefault(sentence, []).append(label)
    return [f"on {', '.join(nodes)} {sentence}" for sentence, nodes in nodes_of.items()]


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
