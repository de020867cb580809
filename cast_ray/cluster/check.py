"""Check on every node of this process's cluster whether a run can be trained there.

The check comes before engines and learner start: they would find what a node lacks one by one,
minutes later and with less helpful messages.
"""

from __future__ import annotations

import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cast_ray.cluster import code_version, node_probe
from cast_ray.cluster.machine import (
    cuda_of_torch,
    engine_build,
    gib,
    gpus_here,
    installed_versions,
    require_build,
)
from cast_ray.cluster.placement import Node, cluster_nodes
from cast_ray.cluster.problems import (
    Needs,
    NodeReport,
    clock_ahead_s,
    labels,
    notes_of,
    problems_of,
    room_problems,
)
from cast_ray.config.train import TrainConfig
from cast_ray.errors import EnvironmentSetupError, RunDirectoryError
from cast_ray.runs import model_files
from cast_ray.runs.remote_directories import localized
from cast_ray.runs.uris import PathOrUri, Uri, path_or_uri

_ANSWER_TIMEOUT_S = 90.0
"""A node may first have to start the process and set up its environment."""
_CLOCK_TIMEOUT_S = 10.0
_STORE_TIMEOUT_S = 60.0
_BYTES = {"bfloat16": 2, "float32": 4}
_UNKNOWN = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What was found."""

    driver: node_probe.Found
    reports: list[NodeReport]
    """Of the nodes that are alive, the head first."""
    problems: list[str]
    notes: list[str]


def require_fit_cluster(
    config: TrainConfig,
    *,
    run_dir: str,
    on_note: Callable[[str], None],
) -> None:
    """Raise if a known problem prevents training a run on this cluster.

    Args:
        config: of the run.
        run_dir: its directory, which exists.
        on_note: called with what the user should know.

    Raises:
        EnvironmentSetupError: there are problems; the message lists all of them.
        RunDirectoryError: the driver cannot write to the run's directory.
    """
    state = look_at_cluster(needs_of(config, run_dir=run_dir))
    for note in state.notes:
        on_note(note)
    if state.problems:
        raise EnvironmentSetupError(
            f"the cluster is not ready for this run, nothing was started: "
            f"{'; '.join(state.problems)} (check again with cast-ray doctor --cluster, then "
            f"continue with --resume {shlex.quote(f'run_dir={run_dir}')})"
        )


def require_fit_machine(config: TrainConfig) -> None:
    """Raise if a known problem prevents training a run on this machine alone.

    Raises:
        EnvironmentSetupError: the packages or the shared memory are not fit for it.
    """
    build = engine_build(installed_versions())
    gpus = gpus_here() if config.resources.gpus_per_engine else []
    require_build(config.resources, build, cuda=cuda_of_torch(), gpus=gpus)
    free = shutil.disk_usage("/dev/shm").free
    for problem in room_problems(free, needs_of(config, run_dir="").weight_bytes):
        raise EnvironmentSetupError(problem)


def needs_of(config: TrainConfig, *, run_dir: str) -> Needs:
    """Return what a run needs on every node.

    Args:
        config: of the run; a hub's models by their commits.
        run_dir: its directory; empty = not known yet.
    """
    named = {**config.models, "run_dir": run_dir}
    given = {key: path_or_uri(value).absolute() for key, value in named.items() if value}
    stores = {key: str(value) for key, value in given.items() if isinstance(value, Uri)}
    models = {k: str(v) for k, v in given.items() if k != "run_dir" and k not in stores}
    policy = given.get("policy.path")
    return Needs(
        models=models,
        stores=stores,
        run_dir=str(given.get("run_dir", "")),
        weight_bytes=_num_values(policy) * _BYTES[config.engine.dtype] if policy else 0,
    )


def _num_values(model: PathOrUri) -> int:
    """Return how many values a model's weights have; 0 if they are not here, or not readable.

    What is wrong with them the nodes say.
    """
    if isinstance(model, Uri) and not model.hub_model:
        return 0
    try:
        return model_files.num_values(localized(model, with_weights=False))
    except (OSError, ValueError):
        return 0


def look_at_cluster(needs: Needs) -> ClusterState:
    """Ask every node of this process's cluster whether it has what a run needs, and judge that.

    Raises:
        RunDirectoryError: the driver cannot write to the run's directory.
    """
    nodes = sorted(cluster_nodes(), key=lambda node: (not node.is_head, node.address))
    is_visible = len(nodes) == 1 or "run_dir" in needs.stores
    with _beacon("" if is_visible else needs.run_dir) as beacon:
        question = {
            "models": dict(needs.models),
            "stores": dict(needs.stores),
            "beacon": beacon,
            "store_timeout_s": _STORE_TIMEOUT_S,
        }
        reports = _ask(nodes, question)
    driver = node_probe.look(models={}, stores={}, beacon="", store_timeout_s=0)
    return ClusterState(
        driver=driver,
        reports=reports,
        problems=problems_of(driver, reports, needs),
        notes=notes_of(reports, needs, num_dead=sum(not row["Alive"] for row in ray.nodes())),
    )


def _ask(nodes: Sequence[Node], question: dict[str, Any]) -> list[NodeReport]:
    """Return every node's answer, or why there is none."""
    for module in (node_probe, code_version, model_files):
        cloudpickle.register_pickle_by_value(module)
    try:
        answers = [_on(node, node_probe.look).remote(**question) for node in nodes]
        ray.wait(answers, num_returns=len(answers), timeout=_ANSWER_TIMEOUT_S)
        return [_report(node, ref) for node, ref in zip(nodes, answers, strict=True)]
    finally:
        for module in (node_probe, code_version, model_files):
            cloudpickle.unregister_pickle_by_value(module)


def _report(node: Node, answer: Any) -> NodeReport:  # Any: Ray's reference
    now: Any = _on(node, node_probe.clock)  # Any: Ray's remote function
    try:
        found: node_probe.Found = ray.get(answer, timeout=0)
        # The first answer may have waited for a process to start, which would hide minutes.
        asked = time.time()
        said: float = ray.get(now.remote(), timeout=_CLOCK_TIMEOUT_S)
        ahead_s = clock_ahead_s(asked=asked, said=said, answered=time.time())
    except GetTimeoutError:
        ray.cancel(answer, force=True)
        return _silent(node, f"it did not answer within {_ANSWER_TIMEOUT_S:.0f} s")
    except TaskUnschedulableError:
        return _silent(node, "it left the cluster during the check")
    except RayError as error:
        last = str(error).strip().splitlines()[-1]
        return _silent(node, f"it could not answer ({type(error).__name__}: {last})")
    return NodeReport(node=node, facts=found, clock_ahead_s=ahead_s)


def _silent(node: Node, why: str) -> NodeReport:
    return NodeReport(node=node, facts=None, silence=why)


def _on(node: Node, function: Callable[..., Any]) -> Any:  # Any: Ray's remote function
    return ray.remote(function).options(
        num_cpus=0,
        max_retries=0,
        name=f"cluster_check.{function.__name__}",
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
    )


@contextmanager
def _beacon(run_dir: str) -> Iterator[str]:
    """Write a file where a run's directory is or will be, and yield its path; "" for none."""
    if not run_dir:
        yield ""
        return
    directory = Path(run_dir)
    parent = next(path for path in (directory, *directory.parents) if path.is_dir())
    # Named like a half-written file: a run directory with nothing else in it counts as empty.
    file = parent / f".cast-ray-{uuid.uuid4().hex}.partial"
    try:
        file.touch()
    except OSError as error:
        raise RunDirectoryError(
            f"run_dir={run_dir} cannot be written here ({parent}: {error.strerror}); give another"
        ) from None
    try:
        yield str(file)
    finally:
        file.unlink(missing_ok=True)


def cluster_view(state: ClusterState) -> Group:
    """Return the table of the nodes, followed by problems, notes and the verdict."""
    parts: list[RenderableType] = [_table(state)]
    parts += [Text(f"problem  {problem}", style="red") for problem in state.problems]
    parts += [Text(f"   note  {note}", style="yellow") for note in state.notes]
    num = len(state.problems)
    parts.append(Text("Ready." if num == 0 else f"{num} to fix.", style="bold"))
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
            f"{node.bundle['CPU']:g}",
            f"{node.bundle['GPU']:g}",
            gib(node.memory_bytes),
            _UNKNOWN if facts is None else gib(facts["shared_memory_free"]),
            _UNKNOWN if facts is None else f"{report.clock_ahead_s:+.1f} s",
            _versions(state, report),
        )
    return table


def _versions(state: ClusterState, report: NodeReport) -> Text:
    if report.facts is None:
        return Text(_UNKNOWN, style="red")
    differing = [
        name
        for name, version in state.driver["versions"].items()
        if report.facts["versions"][name] != version
    ]
    if not differing:
        return Text("as the driver's", style="green")
    return Text(f"differ: {', '.join(differing)}", style="red")
