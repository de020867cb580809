"""The command line ``cast-ray value-net …``: a network in the place of the exact solver."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.config.load import load_value_net_config

value_net_app = typer.Typer(
    help="Value networks: trained without any solver, to take the exact solver's place.",
    no_args_is_help=True,
)


@value_net_app.command()
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Configuration values as key=value, e.g. tier=mini dqn.steps=100000"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file; without it the paper's configuration.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with run_dir=PATH where it was left.")
    ] = False,
) -> None:
    """Train a value network: masked Double DQN in RLlib, then two stages of distillation.

    RUN/value_net is what oracle=value_net value_net.path=RUN/value_net asks; RUN/base, RUN/stage1
    and RUN/stage2 are the networks after each stage, RUN/metrics.jsonl says how they came to be.

    Example: cast-ray value-net train --config configs/value_net/mini.yaml run_dir=runs/my-net
    """
    given = list(overrides or [])
    resolved = load_value_net_config(config, given)
    if resume and config is None and resolved.run_dir:
        stored = Path(resolved.run_dir) / "config.yaml"
        # What the run was started with need not be typed again.
        resolved = load_value_net_config(stored, given) if stored.is_file() else resolved
    if not resolved.run_dir:
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = f"runs/value-net-{resolved.game}-{resolved.tier}-{now}"
        resolved = replace(resolved, run_dir=name)
    # Imported late: RLlib takes seconds that --help and a typing error need not.
    from cast_ray.training.value_net.progress import ValueNetProgress
    from cast_ray.training.value_net.train import train_value_net
    from solver_actors.value_net.scale import LossTest, has_loss_test

    try:
        with ValueNetProgress() as progress:
            is_dead = LossTest(resolved.game).is_dead if has_loss_test(resolved.game) else None
            train_value_net(resolved, resume=resume, progress=progress, is_dead=is_dead)
    except KeyboardInterrupt:
        typer.echo("cast-ray: stopped; go on with --resume and the same run_dir", err=True)
        raise typer.Exit(130) from None


@value_net_app.command()
def analyse(
    network: Annotated[Path, typer.Argument(help="Directory of a value network: RUN/value_net.")],
    tier: Annotated[
        str, typer.Option(help="Of the boards; without it that of the network's run.")
    ] = "",
    boards: Annotated[int, typer.Option(min=2, help="At most so many.")] = 200,
    file: Annotated[
        Path | None,
        typer.Option(help="Parquet file of puzzles, instead of those that the run held out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory; without it analysis-TIER beside the network.")
    ] = None,
) -> None:
    """Say how good a teacher a value network is, by exact costs: figures, a table, a page.

    Example: cast-ray value-net analyse runs/my-net/value_net --tier mini-unseen
    """
    from cast_ray.training.value_net.analysis import analyse_value_net, puzzles_for, write_analysis
    from solver_actors.value_net.network import load_q_network

    puzzles = puzzles_for(network, tier=tier, file=file, limit=boards)
    loaded, of_tier = load_q_network(network), puzzles[0].tier
    analysis = analyse_value_net(loaded, puzzles, tier=of_tier)
    place = out or network.parent / f"analysis-{of_tier}"
    write_analysis(analysis, place, game=loaded.shape.game, tier=of_tier, num_boards=len(puzzles))
    for line in analysis.lines():
        typer.echo(line)
    typer.echo(f"{place / 'analysis.html'}")
