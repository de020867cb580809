"""The commands ``cast-ray sweep``, ``compare``, ``repeat`` and ``credit``: experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cast_ray.cli.options import resumable, this_command
from cast_ray.runs.directories import timestamp


def sweep(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=a,b,… is swept; key=value is the same in all trials."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of all trials. Default: as for cast-ray train.")
    ] = None,
    arms: Annotated[
        Path | None,
        typer.Option(help="YAML file of arms to compare, one per line: name: [key=value, …]."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: sweeps/TIME.")
    ] = None,
    at_once: Annotated[
        int, typer.Option(help="Trials to run at once; 0 = as many as the cluster holds.", min=0)
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the trials and exit.")] = False,
) -> None:
    """Train one run (a trial) for every combination of values, all from the same start model.

    results.parquet gets one row per trial, results.svg their curves and held-out results. The same
    command with the same --out resumes an interrupted sweep; with more values of a key that it
    sweeps, it adds their trials. A file of --arms names settings of several keys:
    mine: [advantage.alpha=1, learner.lr=1e-4]. Give all seeds in one argument: a single one also
    determines the start model, so sweeps of one seed each do not begin alike.

    Example, six runs: cast-ray sweep advantage.alpha=0,0.1 seed=0,1,2 steps=10
    """
    from cast_ray.evaluation.experiments.sweep_plan import plan_sweep, read_arms

    plan = plan_sweep(config, overrides or [], arms=read_arms(arms) if arms else None)
    if dry_run:
        for trial in plan.trials:
            typer.echo(" ".join(f"{key}={value}" for key, value in trial.values.items()))
        return
    from cast_ray.evaluation.experiments.sweep import run_sweep

    place = (out or Path("sweeps") / timestamp()).absolute()
    again = this_command(*([] if out else ["--out", str(place)]))
    with resumable(again):
        failures = run_sweep(plan, file=config, out=place, at_once=at_once)
    typer.echo(f"{place / 'results.parquet'} and {place / 'results.svg'}")
    if failures:
        typer.echo(
            f"cast-ray: {len(failures)} of {len(plan.trials)} trials failed (see the column "
            f"failure of results.parquet); retry with {again}",
            err=True,
        )
        raise typer.Exit(1)


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of sweeps or of earlier comparisons."),
    ],
    baseline: Annotated[str, typer.Option(help="The arm to compare the others with, e.g. DAPO.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of tables and plot. Default: the folder, if there is only one."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare this arm only; repeat it for several, in the order of the tables."
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            help="Evaluation of the arms' models on further tiers: the --out of cast-ray eval."
        ),
    ] = None,
    ceiling: Annotated[
        Path | None,
        typer.Option(
            help="A run with steps=0 whose start model was taught well, drawn as an upper bound."
        ),
    ] = None,
) -> None:
    """Compare the arms of sweeps: curves, held-out results, steps until the baseline's best.

    Writes a few small tables (curves.parquet, runs.parquet, …) and from them comparison.svg and
    comparison.md; `cast-ray compare` on a folder with such tables regenerates the same bytes.
    Several folders, also of earlier comparisons, become one comparison.

    Example: cast-ray compare sweeps/first --baseline DAPO
    """
    from cast_ray.errors import ConfigError
    from cast_ray.evaluation.experiments.compare import compare as compare_runs

    if out is None and len(folders) > 1:
        raise ConfigError("several folders need a folder for the comparison: give --out")
    if out is None and only:
        raise ConfigError("--only needs a folder for its comparison: give --out")
    place = out or folders[0]
    text = compare_runs(
        folders,
        baseline=baseline,
        out=place,
        only=only or (),
        evaluation=evaluation,
        ceiling=ceiling,
    )
    typer.echo(text)
    typer.echo(f"{place / 'comparison.svg'} and {place / 'comparison.md'}")


def credit(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run directories or their URIs, or a folder that --out wrote."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the table (Parquet, Markdown) and the plot; else only print."),
    ] = None,
) -> None:
    """Measure which source of credit is accurate, on a run's logged games. Nothing is trained.

    On the same games: the advantages of each turn that the outcome alone (GRPO, DAPO), GiGPO, CAST
    at several alphas, CAST's credit on whole trajectories and shuffled would give, and those of a
    value network where the run has one. Each is compared with what the turn lost by an exact
    solver: moves, or in Minesweeper the risk above that of the safest cell.

    rank correlation: 1 = the better turn always earns more. wrong sign: best turns that are
    blamed, bad ones that are praised. noise: share of the credit's variance that the loss does not
    explain. within: share that lies within trajectories.

    Example: cast-ray credit runs/sokoban runs/rush_hour runs/minesweeper --out credit
    """
    import polars as pl
    from rich.console import Console

    from cast_ray.errors import ConfigError
    from cast_ray.evaluation.credit_accuracy import study_credit
    from cast_ray.evaluation.credit_figure import TABLE, credit_markdown, write_credit
    from cast_ray.parquet import read_frame
    from cast_ray.runs.remote_run import readable_copy
    from cast_ray.runs.uris import path_or_uri

    studied, left_out = [], []
    with Console(stderr=True).status("reading") as status:
        for run in runs:
            path = readable_copy(path_or_uri(run))
            try:
                is_table = (path / TABLE).is_file()
                studied.append(
                    read_frame(path / TABLE)
                    if is_table
                    else study_credit(path, progress=status.update)
                )
            except ConfigError as error:
                left_out.append(str(error))
    if not studied:
        raise ConfigError("; ".join(left_out))
    found = pl.concat(studied)
    typer.echo(write_credit(found, out) if out else credit_markdown(found))
    for reason in left_out:
        typer.echo(f"cast-ray: left out: {reason}", err=True)
    if out:
        typer.echo(f"{out / TABLE} and {out / 'credit.svg'}")


def repeat(
    evidence: Annotated[Path, typer.Argument(help="Folder that cast-ray compare wrote.")],
    arm: Annotated[str, typer.Option(help="The arm to repeat, e.g. CAST.")],
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the new run. Default: the first after the recorded ones."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new run. Default: sweeps/TIME.")
    ] = None,
) -> None:
    """Repeat one arm of a recorded comparison, and check that the result is as recorded.

    Values and start model are the recorded ones, the seed is new. Exit code 1 if the held-out
    result lies outside the 99% prediction interval of the recorded seeds.

    Example: cast-ray repeat docs/evidence/rush_hour --arm CAST
    """
    from cast_ray.evaluation.experiments.repeat import LEVEL, next_seed
    from cast_ray.evaluation.experiments.repeat import repeat as repeat_arm

    seed = next_seed(evidence, arm=arm) if seed is None else seed
    place = (out or Path("sweeps") / timestamp()).absolute()
    with resumable(this_command(*([] if out else ["--out", str(place)]))):
        found = repeat_arm(evidence, arm=arm, seed=seed, out=place)
    seeds = ", ".join(map(str, found.seeds))
    typer.echo(
        f"{arm}, seed {seed}: {found.after:.1%} of the held-out boards, "
        f"{'inside' if found.is_inside else 'OUTSIDE'} the {LEVEL:.0%} prediction interval of "
        f"seeds {seeds}: {found.low:.1%} to {found.high:.1%}"
    )
    if not found.is_inside:
        raise typer.Exit(1)
