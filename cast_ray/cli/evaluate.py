"""The commands ``cast-ray eval`` and ``cast-ray transfer``, which evaluate models on puzzles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cast_ray.cli.options import Overrides
from cast_ray.runs.directories import dated

if TYPE_CHECKING:
    from cast_ray.evaluation.models import EvaluatedModel
    from cast_ray.evaluation.tasks import GameTier

_Attempts = Annotated[int, typer.Option(help="Attempts at each puzzle (Avg@k).", min=1)]
_Limit = Annotated[
    int | None,
    typer.Option(
        help="Puzzles per game (default: 200) or tasks per benchmark (default: all).", min=1
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(help="Directory of the results. Default: evaluations/MODEL-TIME."),
]
_Concurrency = Annotated[
    int, typer.Option(help="Maximum concurrent requests to an endpoint.", min=1)
]
_PromptPrice = Annotated[
    float | None, typer.Option(help="US dollars per million prompt tokens.", min=0)
]
_AnswerPrice = Annotated[
    float | None, typer.Option(help="US dollars per million answer tokens.", min=0)
]
_ExtraBody = Annotated[
    str, typer.Option(help="JSON object, merged into the body of every request to an endpoint.")
]


def evaluate(
    model: Annotated[
        list[str],
        typer.Option(
            help="Run or model directory, or its URI; several runs separated by commas, which are "
            "averaged; openai:NAME; or a built-in player: solver, soft-solver:TAU, greedy, random. "
            "Repeat it to compare models."
        ),
    ],
    games: Annotated[
        str,
        typer.Option(
            help="GAME[:TIER],… e.g. sokoban:id,rush_hour:unseen,minesweeper:mini,alfworld"
        ),
    ],
    puzzles: Annotated[
        list[Path] | None,
        typer.Option(
            help="Play the boards of this file or directory, in order, with the turn limit of "
            "--games; any form that data import reads; repeatable."
        ),
    ] = None,
    overrides: Overrides = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name of a --model in tables; repeat it, in the order of the models."),
    ] = None,
    attempts: _Attempts = 4,
    limit: _Limit = None,
    out: _Out = None,
    concurrency: _Concurrency = 16,
    prompt_price: _PromptPrice = None,
    answer_price: _AnswerPrice = None,
    extra_body: _ExtraBody = "{}",
) -> None:
    """Evaluate models on held-out puzzles: success rate (Avg@k) with 95% intervals, and regret.

    A run is played with its own sampling and budgets, another model with the paper's; key=value
    changes either. The same command with the same --out
    resumes an interrupted evaluation; no answer of an endpoint is paid for twice.

    openai:NAME asks the endpoint at OPENAI_BASE_URL with the key OPENAI_API_KEY.

    Results: attempts.parquet (one row per attempt), results.json, results.md, and with two or more
    models case_study.html, the first two side by side on the same puzzles.

    Example: cast-ray eval --model runs/mine --model random --games sokoban:mini,sokoban:mini-unseen
    """
    from cast_ray.evaluation.evaluate import evaluate as play
    from cast_ray.evaluation.models import parse_models
    from cast_ray.evaluation.tasks import parse_games

    found = parse_models(model, overrides or [], labels=name or [])
    _run(
        play,
        found,
        parse_games(games),
        out or _default_out(found[0].label),
        attempts=attempts,
        limit=limit,
        concurrency=concurrency,
        prices=(prompt_price, answer_price),
        extra_body=extra_body,
        puzzles=puzzles or [],
    )


def transfer(
    models: Annotated[
        list[str],
        typer.Argument(
            help="METHOD=MODEL or METHOD/GAME=MODEL: METHOD is any label, GAME the game that MODEL "
            "was trained on."
        ),
    ],
    override: Annotated[
        list[str] | None,
        typer.Option("--set", help="Configuration value as key=value; repeatable."),
    ] = None,
    benchmarks: Annotated[
        str,
        typer.Option(
            help="The benchmarks to play, separated by commas; webshop:test has human goals."
        ),
    ] = "alfworld,webshop:synthetic-test",
    attempts: _Attempts = 4,
    limit: _Limit = None,
    out: _Out = None,
    concurrency: _Concurrency = 16,
    prompt_price: _PromptPrice = None,
    answer_price: _AnswerPrice = None,
    extra_body: _ExtraBody = "{}",
) -> None:
    """Produce the paper's transfer table: models trained on games, evaluated on other benchmarks.

    MODEL is anything that `cast-ray eval --model` takes. Set ALFWORLD_DATA and WEBSHOP_DATA to the
    benchmarks' data. The same command with the same --out resumes.

    Example: cast-ray transfer ReAct=models/base CAST/sokoban=runs/a CAST/minesweeper=runs/b
    CAST/rush_hour=runs/c
    """
    from cast_ray.evaluation.transfer import evaluate_transfer, parse_transfer

    found, games = parse_transfer(models, override or [], benchmarks=benchmarks)
    _run(
        evaluate_transfer,
        found,
        games,
        out or _default_out("transfer"),
        attempts=attempts,
        limit=limit,
        concurrency=concurrency,
        prices=(prompt_price, answer_price),
        extra_body=extra_body,
    )


def _run(
    play: Callable[..., str],
    models: Sequence[EvaluatedModel],
    games: Sequence[GameTier],
    out: Path,
    *,
    attempts: int,
    limit: int | None,
    concurrency: int,
    prices: tuple[float | None, float | None],
    extra_body: str,
    puzzles: Sequence[Path] = (),
) -> None:
    """Evaluate, and print the tables that ``play`` returns."""
    from cast_ray.evaluation.endpoint.config import Patience, Prices, parse_extra_body
    from cast_ray.evaluation.evaluate import Evaluation
    from cast_ray.runs.report.terminal import TrainProgress

    plan = Evaluation(
        models=tuple(models),
        games=tuple(games),
        attempts=attempts,
        limit=limit,
        patience=Patience(concurrency=concurrency),
        prices=Prices(price_per_million_prompt=prices[0], price_per_million_answer=prices[1]),
        extra_body=parse_extra_body(extra_body),
        puzzle_files=tuple(puzzles),
    )
    with TrainProgress() as progress:
        tables = play(plan, out=out, progress=progress)
    typer.echo(f"{tables}\n\nresults in {out}")


def _default_out(label: str) -> Path:
    name = "".join(char if char.isalnum() or char in "._-" else "-" for char in label)[:60]
    return Path("evaluations") / dated(name)
