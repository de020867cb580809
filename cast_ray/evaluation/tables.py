"""The results of an evaluation as one JSON document, and its tables in the paper's layout.

The tables depend on the document only, so a stored ``results.json`` gives the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from statistics import fmean
from typing import Any

from cast_ray.errors import ConfigError
from cast_ray.evaluation.attempts import Attempt
from cast_ray.evaluation.paired_test import holm, paired_test
from cast_ray.evaluation.scores import (
    attempts_per_puzzle,
    failure_reasons,
    pass_at_k,
    play_quality,
    puzzle_key,
    success_of,
)
from cast_ray.evaluation.table_sections import (
    COSTS,
    MOVES,
    REVEALS,
    column_title,
    comparison_table,
    failure_table,
    markdown_table,
    pass_table,
    percent,
    percents,
    quality_table,
    title_of,
)
from cast_ray.evaluation.tasks import GameTier
from cast_ray.statistics import Success

_PAPER_GAMES = ("sokoban", "minesweeper", "rush_hour")
_SHORT = {"sokoban": "Sok.", "minesweeper": "Mine.", "rush_hour": "Rush"}


# Any in documents: they are JSON.
def results_document(
    attempts: Sequence[Attempt], *, labels: Sequence[str], games: Sequence[str], seed: int
) -> dict[str, Any]:
    """Return all figures of an evaluation as JSON values; None = undefined or unknown.

    ``model`` and ``results`` are the first model's. ``models`` has the ``results``, ``pass_at_k``,
    ``failures`` and ``quality`` of every model by ``GAME:TIER``, ``comparisons`` every pair of
    models on every game.

    Args:
        attempts: of all models on all games.
        labels: the models, in the order of the tables.
        games: ``GAME:TIER``, in the order of the tables.
        seed: of bootstraps and permutations.

    Raises:
        ConfigError: a model did not play a game, or attempts or puzzles are missing.
    """
    played = {label: {game: _chosen(attempts, label, game) for game in games} for label in labels}
    models = {label: _figures(of_games, seed=seed) for label, of_games in played.items()}
    return {
        "model": labels[0],
        "attempts": attempts_per_puzzle(
            [one for of_games in played.values() for chosen in of_games.values() for one in chosen]
        ),
        "results": models[labels[0]]["results"],
        "puzzles": {
            game: len({puzzle_key(attempt) for attempt in chosen})
            for game, chosen in played[labels[0]].items()
        },
        "models": models,
        "comparisons": _comparisons(played, seed=seed),
    }


def _chosen(attempts: Sequence[Attempt], label: str, game: str) -> list[Attempt]:
    mine = [one for one in attempts if one.model == label]
    chosen = [one for one in mine if str(GameTier(game=one.game, tier=one.tier)) == game]
    if not chosen:
        raise ConfigError(
            f"there are no attempts of {label!r} at {game}: evaluate it on that game too"
        )
    return chosen


def _figures(played: Mapping[str, Sequence[Attempt]], *, seed: int) -> dict[str, Any]:
    return {
        "runs": len({one.run for attempts in played.values() for one in attempts}),
        "results": {
            game: asdict(success_of(attempts, seed=seed)) for game, attempts in played.items()
        },
        "pass_at_k": {game: list(pass_at_k(attempts)) for game, attempts in played.items()},
        "failures": {game: failure_reasons(attempts) for game, attempts in played.items()},
        "quality": {game: asdict(play_quality(attempts)) for game, attempts in played.items()},
    }


def _comparisons(
    played: Mapping[str, Mapping[str, Sequence[Attempt]]], *, seed: int
) -> list[dict[str, Any]]:
    compared = [(game, a, b) for a, b in combinations(played, 2) for game in played[a]]
    tests = [paired_test(played[a][game], played[b][game], seed=seed) for game, a, b in compared]
    corrected = holm([test.p_value for test in tests])
    return [
        {"game": game, "a": a, "b": b, **asdict(test), "p_holm": p_holm}
        for (game, a, b), test, p_holm in zip(compared, tests, corrected, strict=True)
    ]


def markdown_tables(document: Mapping[str, Any]) -> str:
    """Return the tables of a ``results_document``, each with a heading.

    The first has the success rates, one row per model as in the paper (tab:main_results). Then come
    quality of play, effort, reasons of failures, pass@k and comparisons of models. Empty tables are
    left out.
    """
    k = document["attempts"]
    sizes = ", ".join(f"{column_title(game)}: {n}" for game, n in document["puzzles"].items())
    sections = [
        (
            f"Avg@{k} in percent, with 95% bootstrap intervals over puzzles ({sizes})",
            _main_table(document),
        ),
        ("Quality of play, compared with the exact solver", quality_table(document, MOVES)),
        ("Quality of reveals, given what was visible", quality_table(document, REVEALS)),
        ("Effort, mean over attempts", quality_table(document, COSTS)),
        ("Failures by reason", failure_table(document)),
        ("pass@k in percent", pass_table(document) if k > 1 else ""),
        (
            "Paired permutation tests over puzzles; Holm's correction over this table",
            comparison_table(document),
        ),
    ]
    return "\n\n".join(f"### {heading}\n\n{table}" for heading, table in sections if table)


def _main_table(document: Mapping[str, Any]) -> str:
    models: Mapping[str, Any] = document["models"]
    games = _by_game(list(document["results"]))
    columns = {
        column_title(game): _column([model["results"][game] for model in models.values()])
        for game in games
    }
    for tier in dict.fromkeys(game.partition(":")[2] for game in games):
        averaged = [f"{name}:{tier}" for name in _PAPER_GAMES]
        if set(averaged) <= set(games):
            means = [
                fmean(model["results"][game]["success"] for game in averaged)
                for model in models.values()
            ]
            columns[f"Average {title_of(tier)}"] = percents(means)
    names = [_with_runs(label, model) for label, model in models.items()]
    rows = [list(row) for row in zip(names, *columns.values(), strict=True)]
    return markdown_table(["model", *columns], rows)


def _column(results: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = percents([result["success"] for result in results])
    return [
        f"{cell} [{percent(result['low'])}, {percent(result['high'])}]"
        for cell, result in zip(cells, results, strict=True)
    ]


def _by_game(games: Sequence[str]) -> list[str]:
    """Return ``GAME:TIER`` with the tiers of a game next to each other, games in their order."""
    names = [game.partition(":")[0] for game in games]
    return sorted(games, key=lambda game: names.index(game.partition(":")[0]))


def _with_runs(label: str, model: Mapping[str, Any]) -> str:
    return label if model["runs"] == 1 else f"{label} (mean of {model['runs']} runs)"


def transfer_table(found: Mapping[tuple[str, str | None], Mapping[str, Success]]) -> str:
    """Return the paper's transfer table (tab:ood_domain) in percent, without its column of types.

    One row per method. Each benchmark has a column per game the agents were trained on, and their
    average; the last column is the mean of the averages. A method without training has averages
    only. A method trained on some of the games has the average of those, with an asterisk and never
    in bold.

    Args:
        found: by (method, game it was trained on; None = not trained), then by benchmark.

    Raises:
        ConfigError: a method is given both with and without a game.
    """
    check_agents(list(found))
    methods = list(dict.fromkeys(method for method, _ in found))
    benchmarks = list(dict.fromkeys(name for results in found.values() for name in results))
    games = list(dict.fromkeys([*_PAPER_GAMES, *(game for _, game in found if game is not None)]))
    partial = [_is_partial(found, method, games) for method in methods]
    columns: dict[str, list[str]] = {}
    averages: list[list[float | None]] = []
    for benchmark in benchmarks:
        name = title_of(benchmark)
        for game in games:
            values = [_success(found, (method, game), benchmark) for method in methods]
            columns[f"{name}: {_SHORT.get(game, title_of(game))}"] = percents(values)
        averages.append([_average(found, method, benchmark) for method in methods])
        columns[f"{name}: Average"] = _average_column(averages[-1], partial)
    if len(benchmarks) > 1:
        overall = [_mean_of_all(of_method) for of_method in zip(*averages, strict=True)]
        columns["Overall"] = _average_column(overall, partial)
    rows = [list(row) for row in zip(methods, *columns.values(), strict=True)]
    table = markdown_table(["Method", *columns], rows)
    if any(partial):
        table += f"\n\n{_PARTIAL} average over some of the games only"
    return table


def check_agents(agents: Sequence[tuple[str, str | None]]) -> None:
    """Raise ConfigError if a method is given both with and without a game."""
    for method, _ in agents:
        if (method, None) in agents and sum(one == method for one, _ in agents) > 1:
            raise ConfigError(
                f"{method!r} is given both with and without a game: give METHOD=MODEL for a model "
                "without training, or METHOD/GAME=MODEL for every game"
            )


_Found = Mapping[tuple[str, str | None], Mapping[str, Success]]
_PARTIAL = "\\*"


def _is_partial(found: _Found, method: str, games: Sequence[str]) -> bool:
    return (method, None) not in found and any((method, game) not in found for game in games)


def _success(found: _Found, agent: tuple[str, str | None], benchmark: str) -> float | None:
    result = found.get(agent, {}).get(benchmark)
    return None if result is None else result.success


def _average(found: _Found, method: str, benchmark: str) -> float | None:
    """Return the mean over a method's agents; None if one was not evaluated."""
    return _mean_of_all([_success(found, one, benchmark) for one in found if one[0] == method])


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _average_column(values: Sequence[float | None], partial: Sequence[bool]) -> list[str]:
    cells = percents(
        [None if is_partial else value for value, is_partial in zip(values, partial, strict=True)]
    )
    return [
        cell if value is None or not is_partial else percent(value) + _PARTIAL
        for cell, value, is_partial in zip(cells, values, partial, strict=True)
    ]
