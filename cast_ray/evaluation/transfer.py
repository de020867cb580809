"""``cast-ray transfer``: the paper's transfer table (tab:ood_domain), by one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import read_attempts
from cast_ray.evaluation.endpoint.config import Patience, Prices
from cast_ray.evaluation.evaluate import Evaluation, evaluate
from cast_ray.evaluation.models import parse_models
from cast_ray.evaluation.scores import success_of
from cast_ray.evaluation.tables import check_agents, transfer_table
from cast_ray.evaluation.tasks import parse_games
from cast_ray.files import refusals_named, written_aside
from cast_ray.games import check_game_name
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.statistics import Success


def parse_transfer(
    texts: Sequence[str],
    overrides: Sequence[str],
    *,
    benchmarks: str,
    attempts: int,
    limit: int | None,
    patience: Patience,
    prices: Prices,
) -> Evaluation:
    """Read what ``METHOD[/GAME]=MODEL`` name; labels are what stands in front.

    Raises:
        CastRayError: one of them is of another form, or no such model, game or benchmark exists.
    """
    labels, models = [], []
    for text in texts:
        label, equals, model = text.partition("=")
        if not equals or not label or not model:
            raise ConfigError(
                f"{text!r} is not of the form METHOD=MODEL or METHOD/GAME=MODEL, "
                "e.g. CAST/sokoban=runs/a"
            )
        labels.append(label)
        models.append(model)
    check_agents([source_of(label) for label in labels])
    tiers = parse_games(benchmarks)
    names = [which.game for which in tiers]
    if len(set(names)) < len(names):
        raise ConfigError(f"--benchmarks {benchmarks}: give one tier of each, the table has one")
    return Evaluation(
        models=tuple(parse_models(models, overrides, labels=labels)),
        games=tuple(tiers),
        attempts=attempts,
        limit=limit,
        patience=patience,
        prices=prices,
    )


def source_of(label: str) -> tuple[str, str | None]:
    """Return method and game of a label; the game is None where it names none.

    Raises:
        ConfigError: there is no such game.
    """
    method, slash, game = label.rpartition("/")
    if not slash:
        return label, None
    check_game_name(game)
    return method, game


def evaluate_transfer(plan: Evaluation, *, out: Path, progress: TrainProgress) -> str:
    """Evaluate, and return the transfer table above all others; it is in ``transfer.md`` too."""
    tables = evaluate(plan, out=out, progress=progress)
    attempts = read_attempts(out / "attempts.parquet")
    found: dict[tuple[str, str | None], dict[str, Success]] = {}
    for model in plan.models:
        found[source_of(model.label)] = {
            which.game: success_of(
                [one for one in attempts if (one.model, one.game) == (model.label, which.game)],
                seed=model.configs[0].seed,
            )
            for which in plan.games
        }
    table = transfer_table(found)
    with refusals_named(out), written_aside(out / "transfer.md") as aside:
        aside.write_text(table + "\n")
    return f"{table}\n\n{tables}"
