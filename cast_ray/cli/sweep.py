"""``cast-ray sweep``, ``compare`` and ``repeat``: many runs, what came of them, one once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer


def sweep(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=a,b,… is swept, key=value the same in all trials."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of all trials; without it the quickstart's.")
    ] = None,
    arms: Annotated[
        Path | None,
        typer.Option(help="YAML file of what is compared: name: [key=value, …], a line each."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: sweeps/….")
    ] = None,
    at_once: Annotated[
        int, typer.Option(help="Trials together; 0 = as many as the cluster holds.", min=0)
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials and stop.")] = False,
) -> None:
    """Train with every combination of the given values, and compare.

    For example `cast-ray sweep advantage.alpha=0,0.1 seed=0,1,2 steps=10`: six runs from one start
    model. results.parquet has a row a trial, results.svg their curves and held-out boards. The same
    command with the same --out goes on with a sweep that was cut off, with more values it adds
    their trials. What differs in more than one key goes into a file of --arms, such as
    configs/arms/rush_hour_oracles.yaml.
    """
    from cast_ray.evaluation.experiments.sweep_plan import plan_sweep, read_arms

    plan = plan_sweep(config, overrides or [], arms=read_arms(arms) if arms else None)
    if dry_run:
        for trial in plan.trials:
            typer.echo(" ".join(f"{key}={value}" for key, value in trial.values.items()))
        return
    from cast_ray.evaluation.experiments.sweep import run_sweep

    place = (out or Path("sweeps") / _now()).absolute()
    with _stopped_in_words(place):
        failures = run_sweep(plan, file=config, out=place, at_once=at_once)
    typer.echo(f"{place / 'results.parquet'} and {place / 'results.svg'}")
    if failures:
        typer.echo(
            f"cast-ray: {len(failures)} of {len(plan.trials)} trials failed (column failure of "
            f"results.parquet); the same command with --out {place} goes on with them",
            err=True,
        )
        raise typer.Exit(1)


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of sweeps, or such as earlier comparisons wrote."),
    ],
    baseline: Annotated[
        str, typer.Option(help="The arm that the others are held against, e.g. DAPO.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of tables and picture. Default: the folder, if it is one."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Of all arms this one; give it once for each, in the order wanted."),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(help="Of the arms' models on whole tiers: what `cast-ray eval --out` wrote."),
    ] = None,
    ceiling: Annotated[
        Path | None,
        typer.Option(help="A run with steps=0 whose start was taught well: what could be reached."),
    ] = None,
) -> None:
    """Hold the arms of sweeps beside each other: curves, held-out boards, steps to the best.

    Writes curves.parquet and runs.parquet, a few kilobytes that are all that comparison.svg and
    comparison.md are made of: `cast-ray compare` on a folder that holds them writes the same bytes
    again. Several folders, recorded ones too, become one comparison.
    """
    from cast_ray.errors import ConfigError
    from cast_ray.evaluation.experiments.compare import compare as hold_beside

    if out is None and len(folders) > 1:
        raise ConfigError("where do the tables of several folders go? Give --out")
    if out is None and only:
        raise ConfigError("where do the tables of these arms alone go? Give --out")
    place = out or folders[0]
    text = hold_beside(
        folders,
        baseline=baseline,
        out=place,
        only=only or (),
        evaluation=evaluation,
        ceiling=ceiling,
    )
    typer.echo(text)
    typer.echo(f"{place / 'comparison.svg'} and {place / 'comparison.md'}")


def repeat(
    evidence: Annotated[Path, typer.Argument(help="Folder that `cast-ray compare` wrote.")],
    arm: Annotated[str, typer.Option(help="Which arm to run once more, e.g. CAST.")],
    seed: Annotated[
        int | None, typer.Option(help="Of the new run. Default: the first that is not recorded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new run. Default: sweeps/….")
    ] = None,
) -> None:
    """Train one arm of a recorded comparison again, and say if it comes out as recorded.

    The values and the start model are the recorded ones, the seed is new. Exit code 1: the held-out
    boards lie outside the 99% prediction interval of the recorded seeds.
    """
    from cast_ray.evaluation.experiments.repeat import LEVEL, next_seed
    from cast_ray.evaluation.experiments.repeat import repeat as run_again

    seed = next_seed(evidence, arm=arm) if seed is None else seed
    place = (out or Path("sweeps") / _now()).absolute()
    with _stopped_in_words(place):
        found = run_again(evidence, arm=arm, seed=seed, out=place)
    seeds = ", ".join(map(str, found.seeds))
    typer.echo(
        f"{arm}, seed {seed}: {found.after:.1%} of the held-out boards; after seeds {seeds} "
        f"{found.low:.1%} to {found.high:.1%} are to be expected ({LEVEL:.0%} prediction "
        f"interval): {'inside' if found.is_inside else 'OUTSIDE'}"
    )
    if not found.is_inside:
        raise typer.Exit(1)


@contextmanager
def _stopped_in_words(place: Path) -> Iterator[None]:
    """End with a word on how to go on, and exit code 130, if the block is stopped by Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"cast-ray: stopped; go on with the same command and --out {place}", err=True)
        raise typer.Exit(130) from None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
