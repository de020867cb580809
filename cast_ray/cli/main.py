"""The command line ``cast-ray``: it reads arguments, calls one function, and prints the result."""

from __future__ import annotations

import io
import logging
import os
import shutil
import signal
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, cast

import typer

from cast_ray.cli.bench import bench_app
from cast_ray.cli.config import config as config_command
from cast_ray.cli.data import data_app
from cast_ray.cli.doctor import doctor
from cast_ray.cli.evaluate import evaluate, transfer
from cast_ray.cli.model import model_app
from cast_ray.cli.new import new_app
from cast_ray.cli.options import Overrides, newest_run, resumable, resume_command
from cast_ray.cli.serve import serve, view
from cast_ray.cli.submit import submit
from cast_ray.cli.sweep import compare, credit, repeat, sweep
from cast_ray.cli.value_net import value_net_app
from cast_ray.cluster.access import use_loopback
from cast_ray.cluster.inside_job import greeting, is_ray_job, require_run_dir
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.errors import CastRayError, ConfigError, RunInterrupted
from cast_ray.numba_cache import use_kernel_cache
from cast_ray.runs.directories import new_run_dir
from cast_ray.runs.remote_run import readable_copy, working_copy
from cast_ray.runs.remote_session import stored_config
from cast_ray.runs.run_directory import RunDirectory
from cast_ray.runs.uris import Uri, path_or_uri

_THIS_MACHINE = "127.0.0.1,localhost"

EXIT_CODES = (
    "Exit codes: 0 = done; 1 = done, with problems found (a check failed, a line was bad); 2 = "
    "refused, and why; 75 = a run lost a part for good: resume it; 130 = stopped by Ctrl-C. submit "
    'has its own. "The paper" is Game Solvers as Turn-Level Teachers for LLM Agents (CAST).'
)
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # its module differs between versions
TRAIN, LOOK, JUDGE, PUZZLES, MACHINES = (
    "Train",
    "Look at runs and agents",
    "Evaluate and compare",
    "Games, puzzles and models",
    "Machines",
)

app = typer.Typer(
    name="cast-ray",
    help="Train language models on long games, with an exact solver's credit for every turn.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph in --help
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cast-ray {metadata.version('cast-ray')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def train(
    overrides: Overrides = None,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file of the run. Default: the small policy on CPUs."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume run_dir=PATH from its newest checkpoint.")
    ] = False,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="Do not restart the run's driver if it dies.")
    ] = False,
    outcome_alone: Annotated[
        bool,
        typer.Option(
            "--outcome-alone",
            help="Then train without the solver's credit from the same start, in "
            "RUN-outcome-alone, and show both in the report.",
        ),
    ] = False,
) -> None:
    """Train a policy on Ray: engines play the game, a solver scores every turn, a learner updates.

    The run directory (run_dir=PATH, default runs/GAME-TIER-TIME) gets config.yaml, metrics.parquet,
    trajectories, checkpoints, model/ and report.html. Actors, engines, learner ranks and nodes that
    die are replaced; the driver is restarted up to driver_restarts times.

    Example: cast-ray train run_dir=runs/mine steps=20 advantage.alpha=0.1
    """
    given = list(overrides or [])
    resolved = load_config(config, given)
    if resume and config is None and resolved.run_dir:
        stored = stored_config(path_or_uri(resolved.run_dir))
        # A resumed run keeps the values that it was started with.
        resolved = load_config(stored, given, is_stored=True) if stored else resolved
    if not no_restart and is_ray_job():
        for line in greeting():
            typer.echo(line)
        require_run_dir(resolved.run_dir)
    if resume and not resolved.run_dir:
        raise ConfigError(f"--resume needs run_dir=PATH, the directory to resume{newest_run()}")
    if not resolved.run_dir:
        run_dir = new_run_dir(resolved.title)
        resolved = replace(resolved, run_dir=run_dir)
        given.append(f"run_dir={run_dir}")
    if outcome_alone and isinstance(path_or_uri(resolved.run_dir), Uri):
        raise ConfigError("--outcome-alone needs a run_dir on disk, not a URI")
    run = RunDirectory(Path(resolved.run_dir))
    if outcome_alone and resume and run.has_finished(resolved.steps):
        typer.echo(f"{run.path} is finished")
    elif not no_restart and resolved.driver_restarts:
        from cast_ray.training.supervisor import supervise, train_command

        options = [] if config is None else ["--config", str(config)]
        code = supervise(
            train_command(["--no-restart", *options, *given]),
            run_dir=working_copy(path_or_uri(resolved.run_dir)),
            resume=resume,
            max_restarts=resolved.driver_restarts,
        )
        if code:
            raise typer.Exit(code)
    else:
        _drive(resolved, resume=resume)
    if outcome_alone:
        other = ["algorithm=dapo", f"run_dir={run.outcome_alone}"]
        if run.start_model.is_dir():
            other += [f"policy.path={run.start_model}", "warm_start.steps=0"]
        train(other, run.config, resume=run.outcome_alone.is_dir())
        report(str(run.path))


def _drive(config: TrainConfig, *, resume: bool) -> None:
    """Run the driver of a run in this process."""
    from cast_ray.training.supervisor import INTERRUPTED, driver_lost_at, exit_with_parent

    exit_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    # Imported late: Ray and torch take seconds, which --help and a typing error need not wait for.
    from cast_ray.runs.report.terminal import TrainProgress
    from cast_ray.training.train import train as run_training

    try:
        again = resume_command("train", config.run_dir)
        with resumable(again), TrainProgress() as progress:
            run_training(config, resume=resume, progress=progress, lost_at=driver_lost_at())
    except RunInterrupted as error:
        typer.echo(f"cast-ray: {error}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def solve(
    input_path: Annotated[
        Path,
        typer.Option("--input", help="States, one JSON object per line, or boards. - = stdin."),
    ],
    output_path: Annotated[
        Path, typer.Option("--output", help="Costs, one JSON object per line. - = stdout.")
    ] = Path("-"),
    game: Annotated[
        str, typer.Option(help="The input holds boards of this game, not JSON lines.")
    ] = "",
    with_q: Annotated[bool, typer.Option("--q", help="Add the cost after each action.")] = False,
    with_line: Annotated[
        bool, typer.Option("--lines", help="Add the solver's actions to the goal.")
    ] = False,
) -> None:
    """Compute each state's distance to the goal in moves, and one best action.

    A cost is a number of moves, "dead" or "unknown". Dead is proven for Sokoban and Rush Hour; for
    Minesweeper it means that the solver loses. A line that cannot be read gets an error in the
    output, and the exit code is 1.

    With --game the input is a file or directory of boards, in any form that data import reads. A
    Minesweeper board as its player sees it (a line mines: N, then rows; . # ? or blank = hidden)
    gets the probability of a mine in each cell, and the safest cell.

    Example: cast-ray solve --game sokoban --input levels.xsb --lines

    Example of a JSON line: {"game": "sokoban", "board": ["#####", "#PXO#", "#####"]}
    """
    from solver_actors.solve_file import solve_file

    num_bad = solve_file(input_path, output_path, with_q=with_q, with_line=with_line, game=game)
    if num_bad:
        typer.echo(f'{num_bad} bad line(s): see "error" in the output', err=True)
        raise typer.Exit(1)


def replay(
    run: Annotated[str, typer.Argument(help="Run directory, or its URI.")],
    updates: Annotated[
        bool,
        typer.Option("--updates", help="Also repeat all updates and compare the checkpoints."),
    ] = False,
) -> None:
    """Replay and rescore every stored trajectory of a run, and report every difference.

    With --updates also repeat every optimizer update, from the start model and the stored
    trajectories; the weights must equal those of each checkpoint byte for byte. The result is
    printed; nothing is written. Exit code 1 if anything differs.

    Example: cast-ray replay runs/mine --updates
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


def report(run: Annotated[str, typer.Argument(help="Run directory, or its URI.")]) -> None:
    """Regenerate RUN/report.html from the files of a run.

    Example: cast-ray report runs/mine
    """
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


for panel, commands in {
    TRAIN: {"train": train, "sweep": sweep, "submit": submit, "config": config_command},
    LOOK: {"view": view, "serve": serve, "report": report, "replay": replay},
    JUDGE: {
        "eval": evaluate,
        "transfer": transfer,
        "compare": compare,
        "repeat": repeat,
        "credit": credit,
    },
    PUZZLES: {"solve": solve},
    MACHINES: {"doctor": doctor},
}.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
for name, panel, group in (
    ("value-net", TRAIN, value_net_app),
    ("data", PUZZLES, data_app),
    ("model", PUZZLES, model_app),
    ("new", PUZZLES, new_app),
    ("bench", MACHINES, bench_app),
):
    app.add_typer(group, name=name, rich_help_panel=panel)


def main() -> None:
    """Run the command line; a user's mistake gives one line and exit code 2."""
    _speak_utf_8()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        _prepare_environment()
        code = app(prog_name="cast-ray", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except _UsageError as error:
        usage = cast("typer.BadParameter", error)
        command = usage.ctx.command_path if usage.ctx else "cast-ray"
        message = usage.format_message().rstrip(".")
        if not message:  # it was given no words, and said its help
            sys.exit(2)
        refusal = f"{message}; see {command} --help"
    except CastRayError as error:
        refusal = str(error)
    except ModuleNotFoundError as error:
        from cast_ray.cluster.machine import TRAINING_INSTALL, installed_versions, is_for_training

        if is_for_training(installed_versions()):
            raise
        install = TRAINING_INSTALL
        if error.name in ("fastapi", "fastapi_offline", "uvicorn"):
            install = "python -m pip install 'cast-ray[view]'"
        refusal = f"this needs {error.name}, which comes with an extra: {install}"
    except RuntimeError as error:
        # pathlib's for a user without a home, and numba's where it can keep no compiled kernels.
        if not str(error).startswith(("Could not determine home", "cannot cache function")):
            raise
        refusal = "neither HOME nor NUMBA_CACHE_DIR can be written: set HOME to a folder that can"
    except OSError as error:
        if error.filename is None:
            raise
        # Any path may turn out unusable: its name is too long, or its folder cannot be read.
        refusal = f"{error.filename}: {error.strerror}; give another path"
    print(f"cast-ray: {refusal}", file=sys.stderr)
    sys.exit(2)


def _speak_utf_8() -> None:
    """Use UTF-8 for arguments, paths and files in every locale, as Arrow and Polars do.

    Only a new process can, so this one is started again where the locale has another encoding. A
    console with its own encoding shows what it lacks as question marks.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _prepare_environment() -> None:
    """Set the environment of this process and its children; refuse arguments that are not UTF-8."""
    for argument in sys.argv:
        if argument.encode(errors="replace").decode() != argument:
            raise ConfigError(f"{argument!a} has bytes that are not UTF-8: give another name")
    # Ray reads this once, on import; without it its processes may disagree about tokens.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    use_loopback()
    # Tools that are installed next to this command, such as ninja, must be found by name.
    others = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{others}"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    use_kernel_cache()
    if shutil.which("nvidia-smi") is None:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    # The progress bars of libraries would break our own display.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # No proxy leads to this machine: neither to a dashboard nor to a model that is served on it.
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    if direct != "*" and not direct.endswith(_THIS_MACHINE):
        os.environ["no_proxy"] = f"{direct},{_THIS_MACHINE}".lstrip(",")
