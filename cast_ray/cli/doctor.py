"""The command ``cast-ray doctor``: what is missing on this machine, in a cluster, in its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError

_PLAIN_WIDTH = 132  # of a table that goes to a file or a pipe


def doctor(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="With --cluster, of the run that is to be trained there: key=value."),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended.")] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Look at all nodes of the running Ray cluster instead."),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the cluster's head. Default: RAY_ADDRESS, else the cluster that "
            "this machine belongs to."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="With --cluster: the YAML file of the run.")
    ] = None,
    cluster_file: Annotated[
        Path | None,
        typer.Option(help="Look at a file for `ray up` instead, e.g. cluster.yaml."),
    ] = None,
) -> None:
    """Say what is missing or mismatched on this machine; exit with 1 if something is.

    With --cluster, on any node of a running cluster: versions, shared memory, clock and reach of
    every node, and whether it has the model and sees the run directory of a configuration, e.g.
    `cast-ray doctor --cluster --config mine.yaml run_dir=/shared/runs/mine`.
    """
    if not cluster and (overrides or config is not None or address is not None):
        raise ConfigError("key=value, --config and --address are for cast-ray doctor --cluster")
    if cluster and (fix or cluster_file is not None):
        raise ConfigError("--cluster goes with neither --fix nor --cluster-file: one at a time")
    if cluster:
        is_well = _look_at_cluster(address, config, overrides or [])
    elif cluster_file is not None:
        is_well = _look_at_file(cluster_file)
    else:
        is_well = _look_at_machine(fix=fix)
    if not is_well:
        raise typer.Exit(1)


def _look_at_machine(*, fix: bool) -> bool:
    from cast_ray.cluster.doctor import diagnose, format_findings
    from cast_ray.cluster.doctor import fix as mend

    if fix:
        for line in mend():
            typer.echo(line)
    findings = diagnose()
    typer.echo(format_findings(findings))
    return all(finding.ok for finding in findings)


def _look_at_file(path: Path) -> bool:
    from cast_ray.cluster.cluster_file import faults_of, read_cluster_file

    faults = faults_of(read_cluster_file(path))
    for fault in faults:
        typer.echo(f"{path}: {fault}")
    if not faults:
        typer.echo(f"{path}: nothing wrong was found. `ray up {path}` starts it.")
    return not faults


def _look_at_cluster(address: str | None, config: Path | None, overrides: list[str]) -> bool:
    resolved = load_config(config, overrides)
    # Imported late: Ray takes a second that a typing error need not.
    import ray
    from rich.console import Console

    from cast_ray.cluster.check import cluster_view, look_at_cluster, needs_of
    from cast_ray.cluster.placement import cluster_nodes, placement_report
    from cast_ray.cluster.session import ANY, join_cluster

    join_cluster(address or os.environ.get("RAY_ADDRESS") or ANY)
    try:
        state = look_at_cluster(needs_of(resolved, run_dir=resolved.run_dir))
        fits, places = placement_report(resolved.resources, cluster_nodes())
    finally:
        ray.shutdown()
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    if not fits:
        state = replace(state, problems=[*state.problems, places.splitlines()[-1]])
    console.print(places, soft_wrap=True, markup=False, highlight=False)
    # Sentences are as long as they need to be: a path that is broken in two cannot be copied.
    console.print(cluster_view(state), soft_wrap=True)
    return not state.problems
