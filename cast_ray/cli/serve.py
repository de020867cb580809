"""The commands ``cast-ray serve`` and ``cast-ray view``: the agent as a service, runs on a page."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.config.load import load_config
from cast_ray.errors import ModelError
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import path_or_uri

_HOST_HELP = "Address to listen on; one that others reach needs CAST_RAY_API_KEYS."
_ANSWER_TOKENS = "rollout.max_answer_tokens=1024"
"""For a model that is no run of ours: the default is that of the small policy, 8."""


def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="Model directory or run directory, or the URI of one. Default: the newest run in "
            "runs/ that has a model."
        ),
    ] = "",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Configuration values as key=value, e.g. engine.max_num_seqs=64."),
    ] = None,
    host: Annotated[str, typer.Option(help=_HOST_HELP)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    name: Annotated[
        str, typer.Option(help="Name of the model for clients. Default: its directory's.")
    ] = "",
    max_replicas: Annotated[
        int, typer.Option(help="Model servers at most; as many as are asked for run.", min=1)
    ] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="Directory of training runs to show on the page, too.")
    ] = None,
) -> None:
    """Serve the agent, the solver and the page on Ray Serve, until Ctrl-C.

    OpenAI's clients find the model under /v1, everything else is described under /docs:
    moves, whole games with the value of every turn, exact costs, mine probabilities.

    API keys come from the environment, CAST_RAY_API_KEYS=KEY or KEY,KEY. With RAY_ADDRESS the
    service runs on that cluster; the same command with another model exchanges the model servers
    there one after the other, and no request is lost.
    """
    from serve.service.run import ServiceOptions, serve_model

    given = list(overrides or [])
    if "=" in model and not Path(model).exists():  # no model, only values
        given.insert(0, model)
        model = ""
    model = model or str(newest_trained(Path("runs")))
    location = path_or_uri(model)
    stored = stored_config(location)
    if stored is None and not any(item.startswith("rollout.max_answer_tokens=") for item in given):
        given.insert(0, _ANSWER_TOKENS)
    until = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: until.set())
    serve_model(
        location,
        load_config(stored, given),
        ServiceOptions(host=host, port=port, name=name, max_replicas=max_replicas, runs=runs),
        say=lambda text: typer.echo(text, err=True),
        until=until,
    )


def view(
    runs: Annotated[
        Path, typer.Argument(help="Directory of training runs, or a run directory.")
    ] = Path("runs"),
    host: Annotated[str, typer.Option(help=_HOST_HELP)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
) -> None:
    """Show training runs on a page, without an engine, until Ctrl-C.

    Curves, groups, every turn of every trajectory with its exact value, two runs side by side;
    and all games to play against the solver.
    """
    from serve.service.view import view_runs

    view_runs(runs, host=host, port=port, say=lambda text: typer.echo(text, err=True))


def newest_trained(runs: Path) -> Path:
    """Return the run that ended last with a model.

    Raises:
        ModelError: there is none.
    """
    configs = list(runs.glob("*/model/config.json"))
    if not configs:
        raise ModelError(f"there is no trained run in {runs}/: name a model, or train one first")
    return max(configs, key=lambda path: path.stat().st_mtime).parents[1]
