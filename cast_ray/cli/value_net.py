"""The commands ``cast-ray value-net …``: train and analyse a network that replaces the solver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cast_ray.cli.options import resumable, resume_command
from cast_ray.config.load import load_value_net_config
from cast_ray.runs.directories import new_run_dir

value_net_app = typer.Typer(
    help="Train and analyse value networks, which replace the exact solver.",
    no_args_is_help=True,
)


@value_net_app.command()
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Configuration values as key=value, e.g. tier=mini dqn.steps=100000"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run. Default: the paper's configuration.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume run_dir=PATH.")] = False,
) -> None:
    """Train a value network: masked Double DQN in RLlib, then two stages of distillation.

    A policy learns from the result with oracle=value_net value_net.path=RUN/value_net. RUN/base,
    RUN/stage1 and RUN/stage2 hold the network after each stage, RUN/metrics.jsonl the curves.

    Example: cast-ray value-net train --config configs/value_net/mini.yaml run_dir=runs/my-net
    """
    given = list(overrides or [])
    resolved = load_value_net_config(config, given)
    if resume and config is None and resolved.run_dir:
        stored = Path(resolved.run_dir) / "config.yaml"
        # A resumed run keeps the values that it was started with.
        resolved = (
            load_value_net_config(stored, given, is_stored=True) if stored.is_file() else resolved
        )
    if not resolved.run_dir:
        title = f"value-net-{resolved.game}-{resolved.tier}"
        resolved = replace(resolved, run_dir=new_run_dir(title))
    # Imported late: RLlib takes seconds, which --help and a typing error need not wait for.
    from cast_ray.training.value_net.progress import ValueNetProgress
    from cast_ray.training.value_net.train import train_value_net
    from solver_actors.value_net.scale import LossTest, has_loss_test

    is_dead = LossTest(resolved.game).is_dead if has_loss_test(resolved.game) else None
    again = resume_command("value-net train", resolved.run_dir)
    with resumable(again), ValueNetProgress() as progress:
        train_value_net(resolved, resume=resume, progress=progress, is_dead=is_dead)


@value_net_app.command()
def analyse(
    network: Annotated[Path, typer.Argument(help="Directory of a value network: RUN/value_net.")],
    tier: Annotated[
        str, typer.Option(help="Tier of the boards. Default: that of the network's run.")
    ] = "",
    boards: Annotated[int, typer.Option(min=2, help="Maximum number of boards.")] = 200,
    file: Annotated[
        Path | None,
        typer.Option(help="Puzzle file. Default: the boards that the run held out."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the results. Default: analysis-TIER next to the network."),
    ] = None,
) -> None:
    """Compare a value network with exact costs: analysis.json, .parquet and .html.

    Example: cast-ray value-net analyse runs/my-net/value_net --tier mini-unseen
    """
    from cast_ray.training.value_net.analysis import analyse_value_net, puzzles_for, write_analysis
    from solver_actors.value_net.network import load_q_network

    puzzles = puzzles_for(network, tier=tier, file=file, limit=boards)
    loaded, of_tier = load_q_network(network), puzzles[0].tier
    analysis = analyse_value_net(loaded, puzzles, tier=of_tier)
    place = out or network.parent / f"analysis-{of_tier}"
    write_analysis(analysis, place, game=loaded.shape.game, tier=of_tier, num_boards=len(puzzles))
    for row in analysis.headlines(loaded.shape.game):
        typer.echo(f"{row.name:<37} {row.figure:>6}  ({row.interval})")
    typer.echo(f"{analysis.quality.num_states} states; intervals of 95%, over boards")
    typer.echo(f"{place / 'analysis.html'}")
