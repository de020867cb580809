"""The command line ``cast-ray``: thin over what it calls."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.cli.config import config as config_command
from cast_ray.cli.data import data_app
from cast_ray.cli.doctor import doctor
from cast_ray.cli.evaluate import evaluate, transfer
from cast_ray.cli.serve import serve, view
from cast_ray.cli.submit import submit
from cast_ray.cli.sweep import compare, repeat, sweep
from cast_ray.cli.value_net import value_net_app
from cast_ray.cluster.inside_job import greeting, is_ray_job, require_run_dir
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import CastRayError, RunInterrupted
from cast_ray.numba_cache import use_kernel_cache
from cast_ray.runs.remote_run import readable_copy, working_copy
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.uris import Uri, path_or_uri

app = typer.Typer(
    name="cast-ray",
    help="Train language models to play long games, with credit for every turn from a solver.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph in --help
)
app.add_typer(data_app, name="data")
app.add_typer(value_net_app, name="value-net")
app.command("eval")(evaluate)
app.command()(transfer)
app.command("config")(config_command)
app.command()(submit)
app.command()(sweep)
app.command()(compare)
app.command()(repeat)
app.command()(doctor)
app.command()(serve)
app.command()(view)


@app.command()
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Configuration values as key=value, e.g. steps=20 advantage.alpha=0.1"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file; without it the quickstart is run.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with run_dir=PATH from its newest checkpoint.")
    ] = False,
    unsupervised: Annotated[
        bool,
        typer.Option("--unsupervised", help="Do not start the run's driver again when it dies."),
    ] = False,
) -> None:
    """Train a policy: games, solver, engine and learner on Ray.

    Everything lands in the run directory (run_dir=PATH): config.yaml, metrics.parquet,
    trajectories, checkpoints, model/ and report.html. Actors, engines, learner ranks and nodes that
    die are replaced, and the driver itself is started again, up to driver_restarts times.
    """
    given = list(overrides or [])
    resolved = load_config(config, given)
    if resume and config is None and resolved.run_dir:
        stored = stored_config(path_or_uri(resolved.run_dir))
        # What the run was started with need not be typed again.
        resolved = load_config(stored, given) if stored else resolved
    if not unsupervised and is_ray_job():
        for line in greeting():
            typer.echo(line)
        require_run_dir(resolved.run_dir)
    if not unsupervised and resolved.driver_restarts:
        from cast_ray.training.supervisor import driver_command, supervise

        if not resolved.run_dir:
            resolved = replace(resolved, run_dir=_new_run_dir(resolved.game, resolved.tier))
            given.append(f"run_dir={resolved.run_dir}")
        options = [] if config is None else ["--config", str(config)]
        code = supervise(
            driver_command([*options, *given]),
            run_dir=working_copy(path_or_uri(resolved.run_dir)),
            resume=resume,
            max_restarts=resolved.driver_restarts,
        )
        raise typer.Exit(code)
    _drive(resolved, resume=resume)


def _drive(config: TrainConfig, *, resume: bool) -> None:
    """Be the driver of a run."""
    from cast_ray.training.supervisor import INTERRUPTED, driver_lost_at, exit_with_parent

    exit_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    # Imported late: Ray and torch take seconds that --help and a typing error need not.
    from cast_ray.runs.report.terminal import TrainProgress
    from cast_ray.training.train import train as run_training

    try:
        with TrainProgress() as progress:
            run_training(config, resume=resume, progress=progress, lost_at=driver_lost_at())
    except RunInterrupted as error:
        print(f"cast-ray: {error}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        typer.echo("cast-ray: stopped; go on with --resume and the same run_dir", err=True)
        raise typer.Exit(130) from None


@app.command()
def solve(
    input_path: Annotated[Path, typer.Option("--input", help="One JSON object a line: states.")],
    output_path: Annotated[Path, typer.Option("--output", help="One JSON object a line: costs.")],
    with_q: Annotated[bool, typer.Option("--q", help="Also the cost after each action.")] = False,
) -> None:
    """Say how far states are from the goal: moves, dead or unknown, and one best action.

    Dead is proven for Sokoban and Rush Hour; for Minesweeper it says that the solver loses.

    Example line: {"game": "sokoban", "board": ["#####", "#PXO#", "#####"]}
    """
    from solver_actors.solve_file import solve_file

    num_bad = solve_file(input_path, output_path, with_q=with_q)
    if num_bad:
        typer.echo(f"{num_bad} bad line(s): see their error in {output_path}", err=True)
        raise typer.Exit(1)


@app.command()
def replay(
    run: Annotated[str, typer.Argument(help="Run directory, or its URI.")],
    updates: Annotated[
        bool,
        typer.Option("--updates", help="Also learn from them again and compare all checkpoints."),
    ] = False,
) -> None:
    """Play every stored trajectory again from its rows alone and report every difference.

    With --updates also take every optimizer update again, from the start model and the stored
    trajectories: the weights of each checkpoint must come out, byte for byte.
    """
    from cast_ray.training.replay.replay import format_replay, replay_run

    run_dir = readable_copy(path_or_uri(run), with_weights=True)
    result = replay_run(run_dir)
    typer.echo(format_replay(result))
    differs = bool(result.differences)
    if updates:
        from cast_ray.training.replay.updates import format_updates, replay_updates

        found = replay_updates(run_dir)
        typer.echo(format_updates(found))
        differs |= bool(found.differing)
    if differs:
        raise typer.Exit(1)


@app.command()
def report(run: Annotated[str, typer.Argument(help="Run directory, or its URI.")]) -> None:
    """Write report.html anew from what lies in a run directory."""
    from cast_ray.runs.report import write_report
    from cast_ray.runs.run_directory import RunDirectory

    location = path_or_uri(run)
    page = write_report(RunDirectory.existing(readable_copy(location)))
    if isinstance(location, Uri):
        from cast_ray.runs.object_store import upload_file

        upload_file(page, location / page.name)
        typer.echo(location / page.name)
        return
    typer.echo(page)


@app.command()
def theory(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("theory.html"),
) -> None:
    """Hold the paper's theorem to exact enumeration on a small board, and write what comes out."""
    from cast_ray.cli.theory import make_theory_page

    make_theory_page(out)
    typer.echo(out)


@app.command()
def bench(
    what: Annotated[
        str,
        typer.Argument(
            help="asynchronous, evaluation, gym, learner, rollout, scaling, service, simulated, "
            "solve, solvers, startup, sync, value-net"
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(help="Draw the figures of scaling into this SVG file.")
    ] = None,
) -> None:
    """Measure a speed on this machine; the last line is one JSON object.

    asynchronous: seconds of a step with rollouts beside the learner, and one after the other.
    evaluation: turns a second of an evaluation, beside vLLM alone on the same tokens.
    gym: steps a second of the numeric Gymnasium environments, beside gym-sokoban if installed.
    learner: tokens a second of whole updates, beside bare PyTorch loops, and TRL's if installed.
    rollout: turns a second through the whole path, beside vLLM alone with the same token work.
    scaling: turns a second of 1, 2, 4 and 8 simulated nodes, and what the processes use.
    service: overhead of a turn over HTTP, 64 games at once, simulated and real engine.
    simulated: 4,096 episodes on an engine of stated slots and latency: slots filled, CPU, memory.
    solve: seconds for 10,000 states of all games in play, from 1,000 puzzles, with --q.
    solvers: microseconds a scored state, beside the same in plain Python.
    startup: seconds until the command line, Ray and an engine answer, beside vLLM alone.
    sync: seconds from the learner's weights to an engine's, 1 GB, beside a plain copy of the bytes.
    value-net: environment steps a CPU second of the value network's DQN, beside RLlib's own.
    """
    from benchmarks.main import run_benchmark

    typer.echo(json.dumps(run_benchmark(what, plot=plot)))


def _new_run_dir(game: str, tier: str) -> str:
    return f"runs/{game}-{tier}-{_now()}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def main() -> None:
    """Run the command line; user errors are one line and exit code 2."""
    # Ray reads this once, when it is imported; unset, its processes may disagree about tokens.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    # Tools that were installed beside this command, as ninja, must be found by name.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    use_kernel_cache()
    if shutil.which("nvidia-smi") is None:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # The job shows its own progress; bars of libraries would tear it.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except CastRayError as error:
        print(f"cast-ray: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        from cast_ray.cluster.machine import TRAINING_INSTALL, installed_versions, is_for_training

        if is_for_training(installed_versions()):
            raise
        print(
            f"cast-ray: this needs {error.name}, which comes with an extra: {TRAINING_INSTALL}",
            file=sys.stderr,
        )
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        # A place that nobody had reason to expect trouble from: a name too long, a closed folder.
        print(f"cast-ray: {error.filename}: {error.strerror}; give another", file=sys.stderr)
        sys.exit(2)
