"""The command line ``cast-ray``: thin over the jobs."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.config import load_config
from cast_ray.errors import CastRayError

app = typer.Typer(
    name="cast-ray",
    help="Train language models to play long games, with credit for every turn from a solver.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Keep ``train`` a sub-command even while it is the only one."""


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
) -> None:
    """Train a policy: games, solver, engine and learner on Ray.

    Everything lands in the run directory (run_dir=PATH): config.yaml, metrics.parquet,
    trajectories, checkpoints, model/ and report.html.
    """
    # Imported here: Ray, torch and DeepSpeed take seconds that --help need not.
    from cast_ray.jobs.train import train as run_training
    from cast_ray.progress import TrainProgress

    resolved = load_config(config, overrides or [])
    with TrainProgress() as progress:
        run_training(resolved, resume=resume, progress=progress)


def main() -> None:
    """Run the command line; user errors are one line and exit code 2."""
    # Ray reads this once, when it is imported; unset, its processes may disagree about tokens.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app(standalone_mode=False)
    except CastRayError as error:
        print(f"cast-ray: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("cast-ray: stopped; go on with --resume and the same run_dir", file=sys.stderr)
        sys.exit(130)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except Exception as error:
        if hasattr(error, "format_message"):  # click's own usage errors
            print(f"cast-ray: {error.format_message()}", file=sys.stderr)
            sys.exit(2)
        raise


if __name__ == "__main__":
    main()
