"""The commands ``cast-ray data …``, which build, import and inspect puzzle files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from cast_ray.cli.options import resumable, table_console, this_command
from cast_ray.config.tiers import described_tier
from cast_ray.errors import ConfigError
from cast_ray.games.game import Tier
from cast_ray.games.registry import GAMES

data_app = typer.Typer(
    help="Build puzzle files from a seed, import existing boards, inspect them.",
    no_args_is_help=True,
)


@data_app.command()
def build(
    game: Annotated[
        str | None, typer.Option(help=f"{', '.join(GAMES)}, or an installed one. Default: all.")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(help="A tier of --game, e.g. id, unseen, mini, or a YAML file. Default: all."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Files are written to OUT/GAME/TIER/.")] = Path("data"),
    num_train: Annotated[int, typer.Option(help="Training puzzles per tier.", min=1)] = 8000,
    num_test: Annotated[int, typer.Option(help="Test puzzles per tier.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Seed that determines every board.")] = 0,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes. Default: one per usable core.", min=1)
    ] = None,
    on_ray: Annotated[
        bool,
        typer.Option("--ray", help="Use Ray tasks, on RAY_ADDRESS or a local Ray."),
    ] = False,
    order: Annotated[
        Literal["as-drawn", "by-cost"], typer.Option(help="Order of the training file.")
    ] = "as-drawn",
    cost_range: Annotated[
        str | None, typer.Option(help="Train only on puzzles of exact cost LOW:HIGH, e.g. 6:8.")
    ] = None,
    sample: Annotated[
        Literal["as-drawn", "even-cost"],
        typer.Option(help="even-cost: equally many training puzzles of each exact cost."),
    ] = "as-drawn",
) -> None:
    """Build test.parquet and train.parquet for games and tiers, from a seed.

    No two puzzles are equal up to the game's symmetries, within a file or across both. The same
    settings give the same bytes with any number of workers. The same command resumes an interrupted
    build; existing files are kept, never overwritten.

    The test set consists of the tier's first puzzles and does not depend on the training options,
    so training sets of different curricula (each with its own --out) share it.

    Example, easy boards first: cast-ray data build --game sokoban --tier id --order by-cost
    --sample even-cost --cost-range 2:12 --out data/curriculum
    """
    from cast_ray.datasets.build import (
        BuildProgress,
        BuildSettings,
        available_tiers,
        build_data_set,
    )
    from cast_ray.datasets.chunks import processes, this_process
    from cast_ray.games.generators import PuzzleSource
    from cast_ray.games.generators.collection import SplitRule

    all_settings: list[BuildSettings] = []
    for game_name, tier_name in available_tiers(game, tier and described_tier(tier)):
        source = PuzzleSource(game=game_name, tier=tier_name, seed=seed)
        is_even = sample == "even-cost"
        within = _cost_range(cost_range, source.level)
        if within is None and is_even:
            within = (source.level.min_cost, source.level.max_cost)
        rule = SplitRule(num_test=num_test, num_train=num_train, cost_range=within, is_even=is_even)
        all_settings.append(BuildSettings(source=source, rule=rule, order=order))
    num_workers = workers or len(os.sched_getaffinity(0))
    if on_ray:
        from cast_ray.datasets.chunks_on_ray import ray_tasks

        chunk_workers = ray_tasks(num_workers)
    else:
        chunk_workers = processes(num_workers) if num_workers > 1 else this_process()
    with resumable(this_command()), BuildProgress() as progress, chunk_workers as ready:
        for settings in all_settings:
            build_data_set(settings, out, workers=ready, progress=progress)


@data_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="File of boards, or a directory of such files.")],
    game: Annotated[str, typer.Option(help="Game of the boards.")],
    tier: Annotated[str, typer.Option(help="Their tier, or a YAML file that describes one.")],
    out: Annotated[Path, typer.Option(help="Puzzle file to write; must not exist.")],
    exclude: Annotated[
        list[Path] | None,
        typer.Option(help="Leave out boards that are in this file, up to symmetry; repeatable."),
    ] = None,
    keep_repeats: Annotated[
        bool,
        typer.Option(
            "--keep-repeats",
            help="Keep repeated boards and any cost, to import an existing test set.",
        ),
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out faulty boards and keep the others.")
    ] = False,
) -> None:
    """Import existing boards as a puzzle file, re-solved by the built-in solver.

    Sokoban: collections in XSB or SOK form, Boxoban files. Rush Hour: 36 symbols per line,
    optionally after a move count and before a state count, or blocks of rows. Minesweeper: rows in
    our symbols. All: Parquet with a column board, board_config or, for Minesweeper, mines and
    first_click, also inside extra_info (docs/puzzle_sets.md in the repository).

    Boards that are broken, of another size, repeated up to symmetry, excluded, over at the start,
    or of a cost that the tier does not have are listed, and nothing is written unless --skip-broken
    is given.

    Example: cast-ray data import boards.xsb --game sokoban --tier id --out data/mine/train.parquet
    """
    from cast_ray.datasets.build import BuildProgress
    from cast_ray.datasets.importing import format_import, import_puzzles
    from cast_ray.games.generators import PuzzleSource

    source = PuzzleSource(game=game, tier=described_tier(tier), seed=0)
    with BuildProgress() as progress:
        report = import_puzzles(
            file,
            source,
            out=out,
            skip_broken=skip_broken,
            progress=progress,
            exclude=exclude or [],
            keep_repeats=keep_repeats,
        )
    typer.echo(format_import(report))
    if not report.num_written:
        raise typer.Exit(1)


@data_app.command()
def stats(
    paths: Annotated[
        list[Path], typer.Argument(help="Puzzle files, or directories that hold some.")
    ],
    plot: Annotated[
        Path | None, typer.Option(help="File for a plot of the costs: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show what is in puzzle files, and check that training and test files share no puzzle.

    Each training file is compared with each test file of the same game, up to symmetry. Exit code 1
    if two share a puzzle; the output names the rows.

    Example: cast-ray data stats data --plot costs.png
    """
    from cast_ray.datasets.stats import certify, plot_costs, read_puzzle_files, stats_view

    files = read_puzzle_files(paths)
    certificates = certify(files)
    # Without line breaks, so that a path can be copied.
    table_console().print(stats_view(files, certificates), soft_wrap=True)
    if plot is not None:
        plot_costs(files, plot)
        typer.echo(f"plot in {plot}")
    if any(certificate.overlaps for certificate in certificates):
        raise typer.Exit(1)


def _cost_range(text: str | None, level: Tier) -> tuple[int, int] | None:
    """Parse ``LOW:HIGH`` and return the part of it that the tier allows."""
    if text is None:
        return None
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
        raise ConfigError(f"--cost-range must be LOW:HIGH, e.g. 6:8, got {text!r}")
    within = max(int(low), level.min_cost), min(int(high), level.max_cost)
    if within[0] > within[1]:
        raise ConfigError(
            f"--cost-range {text}: the costs of {level.name} are {level.min_cost} to "
            f"{level.max_cost}; give a range within these"
        )
    return within
