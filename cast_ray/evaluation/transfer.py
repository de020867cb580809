"""``cast-ray transfer``: evaluates models for the paper's transfer table (tab:ood_domain)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import read_attempts
from cast_ray.evaluation.evaluate import Evaluation, evaluate
from cast_ray.evaluation.models import EvaluatedModel, parse_models
from cast_ray.evaluation.scores import success_of
from cast_ray.evaluation.tables import check_agents, transfer_table
from cast_ray.evaluation.tasks import GameTier, parse_games
from cast_ray.files import write_text
from cast_ray.games import check_game_name
from cast_ray.runs.report.terminal import TrainProgress
from cast_ray.statistics import Success


def parse_transfer(
    texts: Sequence[str], overrides: Sequence[str], *, benchmarks: str
) -> tuple[list[EvaluatedModel], list[GameTier]]:
    """Parse ``METHOD[/GAME]=MODEL`` arguments; labels are the parts before the equals sign.

    Raises:
        CastRayError: one has another form, or there is no such model, game or benchmark.
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
        raise ConfigError(f"--benchmarks {benchmarks}: give one tier of each; the table has one")
    return parse_models(models, overrides, labels=labels), tiers


def source_of(label: str) -> tuple[str, str | None]:
    """Return method and game of a label; the game is None if the label has none.

    Raises:
        ConfigError: there is no such game.
    """
    method, slash, game = label.rpartition("/")
    if not slash:
        return label, None
    check_game_name(game)
    return method, game


def evaluate_transfer(plan: Evaluation, *, out: Path, progress: TrainProgress) -> str:
    """Evaluate, write ``transfer.md``, and return the transfer table followed by all others."""
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
    write_text(out / "transfer.md", table + "\n")
    return f"{table}\n\n{tables}"
