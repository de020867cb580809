"""What keeps a run from being trained on a cluster: what is wrong, on which nodes, what to do.

Pure functions of what the nodes answered. Nodes with the same problem share a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cast_ray.cluster.machine import DISK_MOST_USED, gib
from cast_ray.cluster.node_probe import CODE, Found
from cast_ray.cluster.placement import Node

WEIGHT_FILES = 3
"""In each host's shared memory: two versions, and a file for the next one."""
MAX_CLOCK_DIFFERENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node and its answer to the driver's question."""

    node: Node
    facts: Found | None
    """None = no answer."""
    silence: str = ""
    """Why there is no answer."""
    clock_ahead_s: float = 0.0
    """How far its clock is ahead of the driver's, at least; below 0 = behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a run needs on every node."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Model directories by configuration key."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """URIs by configuration key."""
    run_dir: str = ""
    """Empty = not known yet."""
    weight_bytes: int = 0
    """Of the policy's weights as they are sent to the engines; 0 for the small policy."""


def labels(reports: Sequence[NodeReport]) -> list[str]:
    """Return a name for each node: its address, plus its id if two nodes share the address."""
    addresses = [report.node.address for report in reports]
    return [
        report.node.address
        if addresses.count(report.node.address) == 1
        else f"{report.node.address} (node {report.node.node_id[:8]})"
        for report in reports
    ]


def clock_ahead_s(*, asked: float, said: float, answered: float) -> float:
    """Return by how many seconds a clock is ahead at least; below 0 = behind.

    Args:
        asked: the driver's time before it asked.
        said: the time in the answer.
        answered: the driver's time when it had the answer.
    """
    return min(said - asked, 0.0) or max(said - answered, 0.0)


def problems_of(driver: Found, reports: Sequence[NodeReport], needs: Needs) -> list[str]:
    """Return what prevents training a run there; empty if no problem was found.

    Args:
        driver: what the driver's own process found.
        reports: of all nodes.
        needs: of the run.
    """
    return _grouped(reports, lambda report: _problems(driver, report, needs))


def notes_of(reports: Sequence[NodeReport], needs: Needs, *, num_dead: int = 0) -> list[str]:
    """Return what the user should know, and what was not checked.

    Args:
        reports: of all nodes.
        needs: of the run.
        num_dead: nodes that left the cluster.
    """
    notes = _grouped(reports, _notes)
    if len(reports) > 1 and not needs.run_dir:
        notes.append(
            "it was not checked whether all nodes see the run's directory: give run_dir=PATH"
        )
    if num_dead:
        notes.append(f"{num_dead} node(s) died or were removed since the cluster started")
    return notes


def _problems(driver: Found, report: NodeReport, needs: Needs) -> Iterator[str]:
    facts = report.facts
    if facts is None:
        yield f"nothing was checked, because {report.silence}: see `ray status` and remove it"
        return
    yield from _version_problems(driver, facts)
    for key, fault in facts["models"].items():
        if fault:
            yield (
                f"{key}={needs.models[key]} {fault}: put the model there, or on storage that "
                "all nodes see"
            )
    if facts["run_dir"]:
        yield (
            f"run_dir={needs.run_dir} {facts['run_dir']}: give a directory on storage that all "
            "nodes can see and write"
        )
    for key, fault in facts["stores"].items():
        if fault:
            yield f"{key}={needs.stores[key]}: {fault}"
    if any(report.node.bundle.values()):  # engines and learner ranks may run there
        yield from room_problems(facts["shared_memory_free"], needs.weight_bytes)


def room_problems(free: int, weight_bytes: int) -> Iterator[str]:
    """Yield a sentence if ``free`` bytes of shared memory cannot take the weights."""
    if free < (wanted := WEIGHT_FILES * weight_bytes):
        yield (
            f"/dev/shm has {gib(free)} free, and weights in transfer to the engines take "
            f"{gib(wanted)}: give it more (docker run --shm-size)"
        )


def _version_problems(driver: Found, facts: Found) -> Iterator[str]:
    here, there = driver["versions"][CODE], facts["versions"][CODE]
    if not there:
        yield f"cast_ray is missing, the driver has {here}: install it on all nodes"
    elif there != here:
        yield (
            f"cast_ray is {there}, the driver's {here}: install the same on all nodes, or send "
            "this checkout's by cast-ray submit --with-code"
        )
    others = [
        f"{name} is {facts['versions'][name] or 'missing'} (the driver's {version or 'missing'})"
        for name, version in driver["versions"].items()
        if name != CODE and facts["versions"][name] != version
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
            f"the clock is {abs(ahead):.0f} s {direction} the driver's: synchronise it by NTP, or "
            "times in logs and metrics mislead"
        )
    if facts["temporary_used"] > DISK_MOST_USED:
        yield (
            f"the disk for Ray's session is {facts['temporary_used']:.0%} full "
            f"({gib(facts['temporary_free'])} free): free some space, Ray spills no objects "
            "there"
        )


def _grouped(
    reports: Sequence[NodeReport], sentences: Callable[[NodeReport], Iterable[str]]
) -> list[str]:
    """Return each sentence once, with all nodes that it applies to."""
    nodes_of: dict[str, list[str]] = {}
    for report, label in zip(reports, labels(reports), strict=True):
        for sentence in sentences(report):
            nodes_of.setdefault(sentence, []).append(label)
    return [f"on {', '.join(nodes)} {sentence}" for sentence, nodes in nodes_of.items()]
