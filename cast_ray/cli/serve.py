"""The commands ``cast-ray serve``, the agent as a service, and ``view``, runs on a page."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.cli.options import Host, Overrides, Port
from cast_ray.config.load import load_config
from cast_ray.errors import ConfigError, ModelError
from cast_ray.runs.directories import OUTCOME_ALONE
from cast_ray.runs.hub import pinned
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import path_or_uri

_ANSWER_TOKENS = "rollout.max_answer_tokens=1024"
"""For a model that is not a run of ours: the default of 8 suits the small policy only."""


def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="Model directory, run directory, URI of one, or a name at the hub (OWNER/NAME). "
            "Default: the newest run in runs/ that has a model."
        ),
    ] = "",
    overrides: Overrides = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Annotated[
        str, typer.Option(help="Name of the model for clients. Default: that of its directory.")
    ] = "",
    max_replicas: Annotated[
        int,
        typer.Option(help="Maximum number of model servers; demand decides how many run.", min=1),
    ] = 1,
    runs: Annotated[
        Path | None, typer.Option(help="Directory of training runs to show on the page as well.")
    ] = None,
) -> None:
    """Serve the agent, the solver and the web page on Ray Serve, until Ctrl-C.

    OpenAI clients find the model under /v1. The rest of the API is documented under /docs: moves,
    complete games with the value of every turn, exact costs, probabilities of mines.

    Set the API keys in the environment: CAST_RAY_API_KEYS=KEY or KEY,KEY. With RAY_ADDRESS the
    service runs on that cluster; the same command with another model replaces the model servers
    there one by one, without losing a request.
    """
    from serve.service.access import api_keys, guard_settings
    from serve.service.plan import ServicePlan
    from serve.service.run import serve_model

    given = list(overrides or [])
    if "=" in model and not Path(model).exists():  # only configuration values
        given.insert(0, model)
        model = ""
    model = model or str(newest_trained(Path("runs")))
    location = path_or_uri(pinned(model))
    stored = stored_config(location)
    if stored is None and not any(item.startswith("rollout.max_answer_tokens=") for item in given):
        given.insert(0, _ANSWER_TOKENS)
    config = load_config(stored, given, is_stored=True)
    until = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: until.set())
    plan = ServicePlan.of(
        location,
        config,
        guard=guard_settings(host, api_keys()),
        name=name,
        max_replicas=max_replicas,
        runs=runs,
    )
    serve_model(
        plan,
        host=host,
        port=port,
        say=lambda text: typer.echo(text, err=True),
        until=until,
    )


def view(
    runs: Annotated[
        Path, typer.Argument(help="Directory of training runs, or a run directory.")
    ] = Path("runs"),
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Show the recorded runs that come with the package."),
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
) -> None:
    """Show training runs on a web page, without an engine, until Ctrl-C.

    The page has curves, groups, every turn of every trajectory with its exact value, and two runs
    side by side. It also lets you play every game with the solver's advice. --demo shows a small
    run of each game, before you have trained anything.
    """
    from serve.service.view import DEMO, RUNS, view_runs

    if demo and runs != RUNS:
        raise ConfigError(f"--demo shows runs of its own: leave out {runs}, or --demo")
    view_runs(
        DEMO if demo else runs, host=host, port=port, say=lambda text: typer.echo(text, err=True)
    )


def newest_trained(runs: Path) -> Path:
    """Return the run whose model is newest; ``--outcome-alone`` runs come last.

    Raises:
        ModelError: there is none.
    """
    configs = list(runs.glob("*/model/config.json"))
    if not configs:
        raise ModelError(
            f"no run in {runs}/ has a model: give MODEL, or train one with cast-ray train"
        )
    trained = [one for one in configs if not one.parents[1].name.endswith(OUTCOME_ALONE)]
    return max(trained or configs, key=lambda path: path.stat().st_mtime).parents[1]
