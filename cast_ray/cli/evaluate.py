"""``cast-ray eval`` and ``cast-ray transfer``: numbers to put in a table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

_Attempts = Annotated[int, typer.Option(help="Attempts at each puzzle (Avg@k).", min=1)]
_Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Configuration values as key=value, e.g. engine.dtype=float32"),
]

_Limit = Annotated[
    int | None,
    typer.Option(
        help="Puzzles of each game or benchmark. Default: 200 of a game, all of a benchmark.", min=1
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(help="Directory of the results. Default: evaluations/… with the time."),
]
_Concurrency = Annotated[int, typer.Option(help="Requests at a time to an endpoint.", min=1)]
_PromptPrice = Annotated[
    float | None, typer.Option(help="US dollars for a million prompt tokens.", min=0)
]
_AnswerPrice = Annotated[
    float | None, typer.Option(help="US dollars for a million answer tokens.", min=0)
]


def evaluate(
    model: Annotated[
        list[str],
        typer.Option(
            help="Run or model directory or its URI; several runs with commas between are "
            "averaged; openai:NAME; solver, soft-solver:TAU, greedy or random. Give it again for "
            "further models, which are compared with the first."
        ),
    ],
    games: Annotated[
        str,
        typer.Option(help="GAME[:TIER],… e.g. sokoban:id,sokoban:unseen,alfworld,webshop"),
    ],
    overrides: _Overrides = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="What a --model is called in tables; one for each, in their order."),
    ] = None,
    attempts: _Attempts = 4,
    limit: _Limit = None,
    out: _Out = None,
    concurrency: _Concurrency = 16,
    prompt_price: _PromptPrice = None,
    answer_price: _AnswerPrice = None,
) -> None:
    """Play held-out puzzles and report the share solved, Avg@k, with 95% intervals, and more.

    Sampling and budgets are the paper's, or those of the run. The same command with the same --out
    goes on with an evaluation that was cut off; no answer of an endpoint is paid for twice.

    openai:NAME asks the endpoint at OPENAI_BASE_URL with the key OPENAI_API_KEY.

    Results: attempts.parquet (a row an attempt), results.json, results.md, and with two models
    case_study.html, the same puzzles side by side.
    """
    from cast_ray.evaluation.endpoint.config import Patience, Prices
    from cast_ray.evaluation.evaluate import Evaluation
    from cast_ray.evaluation.evaluate import evaluate as run_evaluation
    from cast_ray.evaluation.models import parse_models
    from cast_ray.evaluation.tasks import parse_games
    from cast_ray.runs.report.terminal import TrainProgress

    models = parse_models(model, overrides or [], labels=name or [])
    plan = Evaluation(
        models=tuple(models),
        games=tuple(parse_games(games)),
        attempts=attempts,
        limit=limit,
        patience=Patience(concurrency=concurrency),
        prices=Prices(price_per_million_prompt=prompt_price, price_per_million_answer=answer_price),
    )
    place = out or Path("evaluations") / f"{_as_file_name(models[0].label)}-{_now()}"
    with TrainProgress() as progress:
        tables = run_evaluation(plan, out=place, progress=progress)
    typer.echo(tables)
    typer.echo(f"\nresults in {place}")


def transfer(
    models: Annotated[
        list[str],
        typer.Argument(
            help="METHOD=MODEL or METHOD/GAME=MODEL, where GAME is what it was trained on."
        ),
    ],
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Configuration value as key=value.")
    ] = None,
    benchmarks: Annotated[str, typer.Option(help="Which of them.")] = "alfworld,webshop",
    attempts: _Attempts = 4,
    limit: _Limit = None,
    out: _Out = None,
    concurrency: _Concurrency = 16,
    prompt_price: _PromptPrice = None,
    answer_price: _AnswerPrice = None,
) -> None:
    """Fill the paper's transfer table: models that learned games, on benchmarks new to them.

    For example `cast-ray transfer ReAct=models/base CAST/sokoban=runs/a CAST/minesweeper=runs/b
    CAST/rush_hour=runs/c`. MODEL is what `cast-ray eval --model` takes. The benchmarks' data are
    found by ALFWORLD_DATA and WEBSHOP_DATA. Goes on with --out like `cast-ray eval`.
    """
    from cast_ray.evaluation.endpoint.config import Patience, Prices
    from cast_ray.evaluation.transfer import evaluate_transfer, parse_transfer
    from cast_ray.runs.report.terminal import TrainProgress

    plan = parse_transfer(
        models,
        override or [],
        benchmarks=benchmarks,
        attempts=attempts,
        limit=limit,
        patience=Patience(concurrency=concurrency),
        prices=Prices(price_per_million_prompt=prompt_price, price_per_million_answer=answer_price),
    )
    place = out or Path("evaluations") / f"transfer-{_now()}"
    with TrainProgress() as progress:
        tables = evaluate_transfer(plan, out=place, progress=progress)
    typer.echo(tables)
    typer.echo(f"\nresults in {place}")


def _as_file_name(label: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in label)[:60]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
