"""The command ``cast-ray submit``, which runs training as a job of a Ray cluster."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from cast_ray.cli.options import Overrides
from cast_ray.cluster.submit import JobRequest, pack_job, require_job_name, train_job
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, RunInterrupted
from cast_ray.runs.directories import dated

if TYPE_CHECKING:
    from cast_ray.cluster.jobs_api import JobServer

_EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 3}
_LOST = 75
"""EX_TEMPFAIL: the connection is lost; the job goes on."""
_NOT_FOUND = 127
"""Exit code of a shell if it cannot find the command."""


def submit(
    overrides: Overrides = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run; it is sent with the job.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume run_dir=PATH of the cluster.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. Default: GAME-TIER-TIME.", metavar="NAME")
    ] = None,
    with_code: Annotated[
        bool,
        typer.Option("--with-code", help="Run the code of this checkout instead of the nodes'."),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Show the job's output until it ends.")
    ] = True,
    address: Annotated[
        str | None,
        typer.Option(
            help="The cluster's dashboard, http://HOST:PORT. Default: RAY_API_SERVER_ADDRESS, "
            "RAY_ADDRESS, else http://127.0.0.1:8265."
        ),
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Show the state of a job.", metavar="NAME")
    ] = None,
    stop: Annotated[
        str | None, typer.Option(help="Stop a job after its current step.", metavar="NAME")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(help="Show the output of a job.", metavar="NAME")
    ] = None,
    list_jobs: Annotated[
        bool, typer.Option("--list", help="List the jobs of the cluster.")
    ] = False,
) -> None:
    """Run `cast-ray train` as a job of a Ray cluster, independent of this terminal.

    Give run_dir=PATH on storage that all nodes share, or run_dir=URI. Ctrl-C leaves the job
    running; use its name with --status, --logs and --stop.

    Exit codes: 0 the job succeeded, 1 it failed, 2 a mistake (nothing was sent), 3 it was stopped,
    75 the connection was lost (it keeps running), 130 Ctrl-C (it keeps running).

    Example: cast-ray submit --config mine.yaml run_dir=/shared/runs/mine
    """
    asked = [name for name in (status, stop, logs) if name is not None]
    if len(asked) + list_jobs > 1:
        raise ConfigError("give only one of --status, --stop, --logs and --list")
    if not asked and not list_jobs:
        resolved = load_config(config, overrides or [])
        request = train_job(
            resolved,
            name=name or dated(resolved.title),
            overrides=overrides or [],
            config_file=config,
            resume=resume,
        )
        server = _connect(address)
        send_job(server, request, config_file=config, with_code=with_code)
        if follow:
            _follow(server, request.name)
        else:
            typer.echo(_how_to(request.name))
        return
    if overrides:
        raise ConfigError(f"{overrides[0]}: an existing job takes no values; leave it out")
    for one in asked:
        require_job_name(one)
    server = _connect(address)
    if list_jobs:
        _list(server)
    elif status is not None:
        _show(server, status)
    elif stop is not None:
        _stop(server, stop)
    elif logs is not None and follow:
        _follow(server, logs)
    elif logs is not None:
        typer.echo(server.logs(logs), nl=False)


def send_job(
    server: JobServer, request: JobRequest, *, config_file: Path | None, with_code: bool
) -> None:
    """Send a job and print what was sent. Raises what ``pack_job`` and ``submit`` raise."""
    with TemporaryDirectory(prefix="cast-ray-job-") as folder:
        package = pack_job(
            Path(folder),
            config_file=config_file,
            functions=request.functions,
            with_code=with_code,
        )
        server.submit(request, package)
    typer.echo(f"job {request.name} was submitted (sent: {package})")
    for key, value in request.metadata.items():
        typer.echo(f"{key:<9} {value}")
    typer.echo(f"dashboard {server.url}/#/jobs/{request.name}")


def _connect(address: str | None) -> JobServer:
    from cast_ray.cluster.jobs_api import JobServer  # imported late: Ray takes a second

    for handler in logging.getLogger("ray").handlers:
        handler.setLevel(logging.WARNING)  # we print what is sent ourselves
    return JobServer(address)


def _follow(server: JobServer, name: str) -> None:
    """Show a job's output until it ends, and exit with the code for its outcome."""
    from cast_ray.cluster.job_log import follow

    try:
        status = follow(server, name, _write)
    except KeyboardInterrupt:
        typer.echo(f"\njob {name} keeps running; {_how_to(name)}", err=True)
        raise typer.Exit(130) from None
    except RunInterrupted as error:
        typer.echo(f"cast-ray: {error}", err=True)
        raise typer.Exit(_LOST) from None
    job = server.job(name)
    typer.echo(f"job {name}: {status.value}")
    if job.driver_exit_code == _NOT_FOUND:
        typer.echo(
            "cast-ray: the cluster's head cannot find the command cast-ray: start Ray there with "
            "the PATH of the environment where it is installed",
            err=True,
        )
    elif job.driver_exit_code is None and status.value == "FAILED":
        typer.echo(f"cast-ray: {_last_line(job.message)}", err=True)
    raise typer.Exit(_EXIT_CODES[status.value])


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _how_to(name: str) -> str:
    return f"follow it with cast-ray submit --logs {name}; --status and --stop take its name too"


def _show(server: JobServer, name: str) -> None:
    job = server.job(name)
    rows = {
        "job": name,
        "status": job.status.value,
        "started": _time(job.start_time),
        "ended": _time(job.end_time),
        **(job.metadata or {}),
        "command": job.entrypoint,
        "says": _last_line(job.message),
    }
    for key, value in rows.items():
        if value:
            typer.echo(f"{key:<9} {value}")


def _stop(server: JobServer, name: str) -> None:
    if not server.stop(name):
        typer.echo(f"job {name} has ended already: {server.job(name).status.value}")
        return
    typer.echo(
        f"job {name} stops after its current step, which is kept; follow it with cast-ray submit "
        f"--logs {name}"
    )


def _list(server: JobServer) -> None:
    jobs = server.jobs()
    if not jobs:
        typer.echo(f"{server.url} has no jobs")
    width = max((len(job.submission_id or "") for job in jobs), default=0)
    for job in jobs:
        typer.echo(
            f"{job.submission_id:<{width}}  {job.status.value:<9}  {_time(job.start_time)}  "
            f"{(job.metadata or {}).get('run_dir', '')}"
        )


def _time(milliseconds: int | None) -> str:
    """Format one of Ray's times in UTC; empty if there is none."""
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _last_line(message: str | None) -> str:
    return (message or "").strip().rpartition("\n")[2]
