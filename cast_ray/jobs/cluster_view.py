"""What was found in a cluster, to be read: a table of its nodes, and every sentence."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cast_ray.jobs.cluster_check import ClusterState
from cast_ray.jobs.cluster_facts import NodeReport, labels

_GIB = 2**30
_UNKNOWN = "?"


def cluster_view(state: ClusterState) -> Group:
    """Return the table of the nodes, and below it problems, notes and the verdict."""
    parts: list[RenderableType] = [_table(state)]
    parts += [Text(f"problem  {problem}", style="red") for problem in state.problems]
    parts += [Text(f"   note  {note}", style="yellow") for note in state.notes]
    num = len(state.problems)
    parts.append(Text("Ready." if num == 0 else f"{num} to be mended.", style="bold"))
    return Group(*parts)


def _table(state: ClusterState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "role"):
        table.add_column(heading, no_wrap=True)
    for heading in ("CPUs", "GPUs", "memory", "/dev/shm free", "clock"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("versions", no_wrap=True)
    for report, label in zip(state.reports, labels(state.reports), strict=True):
        node, facts = report.node, report.facts
        table.add_row(
            label,
            "head" if node.is_head else "worker",
            f"{node.num_cpus:g}",
            f"{node.num_gpus:g}",
            _gib(node.memory_bytes),
            _UNKNOWN if facts is None else _gib(facts.shared_memory_free),
            _UNKNOWN if facts is None else f"{report.clock_ahead_s:+.1f} s",
            _versions(state, report),
        )
    return table


def _versions(state: ClusterState, report: NodeReport) -> Text:
    if report.facts is None:
        return Text(_UNKNOWN, style="red")
    differing = [
        name
        for name, version in state.driver.versions.items()
        if report.facts.versions[name] != version
    ]
    if not differing:
        return Text("as the driver's", style="green")
    return Text(f"differ: {', '.join(differing)}", style="red")


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / _GIB:.1f} GiB"
