"""The command ``cast-ray doctor``, which checks this machine, a cluster or a cluster file."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.cli.options import table_console
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError
from cast_ray.runs.hub import with_commits


def doctor(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="With --cluster: configuration values (key=value) of the run to train there."
        ),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed.")] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Check all nodes of the running Ray cluster instead."),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --cluster: HOST:PORT of its head. Default: RAY_ADDRESS, else the cluster of "
            "this machine."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="With --cluster: YAML file of the run.")
    ] = None,
    cluster_file: Annotated[
        Path | None,
        typer.Option(help="Check a file for `ray up` instead, e.g. cluster.yaml."),
    ] = None,
) -> None:
    """Check what is missing or mismatched on this machine; exit code 1 if anything is.

    With --cluster, run it on any node of a running cluster: it checks the versions, shared memory,
    clock and network of every node, and whether each has the model and the run directory of a
    configuration.

    Example: cast-ray doctor --cluster --config mine.yaml run_dir=/shared/runs/mine
    """
    if not cluster and (overrides or config is not None or address is not None):
        raise ConfigError(
            "key=value, --config and --address need --cluster: add it, or leave them out"
        )
    if cluster and (fix or cluster_file is not None):
        raise ConfigError(
            "--cluster cannot be combined with --fix or --cluster-file: give one of them"
        )
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
    from cast_ray.cluster.doctor import fix as fix_faults

    if fix:
        for line in fix_faults():
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
        command = f"ray up {shlex.quote(str(path))}"
        typer.echo(f"{path}: nothing wrong was found; start the cluster with `{command}`")
    return not faults


def _look_at_cluster(address: str | None, config: Path | None, overrides: list[str]) -> bool:
    resolved = with_commits(load_config(config, overrides), with_weights=False)
    # Imported late: Ray takes a second, which a typing error need not wait for.
    import ray

    from cast_ray.cluster.check import cluster_view, look_at_cluster, needs_of
    from cast_ray.cluster.placement import cluster_nodes, placement_report
    from cast_ray.cluster.session import ANY, join_cluster

    join_cluster(address or os.environ.get("RAY_ADDRESS") or ANY)
    try:
        state = look_at_cluster(needs_of(resolved, run_dir=resolved.run_dir))
        fits, places = placement_report(resolved.resources, cluster_nodes())
    finally:
        ray.shutdown()
    console = table_console()
    if not fits:
        state = replace(state, problems=[*state.problems, places.splitlines()[-1]])
    console.print(places, soft_wrap=True, highlight=False)
    # Without line breaks, so that a path can be copied.
    console.print(cluster_view(state), soft_wrap=True)
    return not state.problems
