"""How accurate sources of credit are, as Markdown and as an SVG plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from cast_ray.evaluation.credit_accuracy import DISTANCES, OWN_SOURCES
from cast_ray.evaluation.experiments.plots import METHODS, plain, save_svg
from cast_ray.evaluation.table_sections import ABSENT, markdown_table
from cast_ray.files import write_text
from cast_ray.games import get_game
from cast_ray.games.turn_quality import has_regret
from cast_ray.parquet import write_frame

_COLOURS = {
    "outcome (GRPO, DAPO)": METHODS["DAPO"],
    "GiGPO": METHODS["GiGPO"],
    "CAST, α = 0.01": "#a9c3e0",
    "CAST, α = 0.1": "#7ba3cf",
    "CAST, α = 0.3": "#5388bd",
    "CAST, α = 1": "#2f5f96",
    "CAST, whole trajectories, α = 1": METHODS["whole trajectories"],
    "CAST, shuffled, α = 1": METHODS["shuffled"],
    OWN_SOURCES["value_net"]: METHODS["value network"],
    OWN_SOURCES["expected"]: "#1aa0a8",
}
_WIDTH, _HEIGHT = 4.2, 4.6
TABLE = "credit.parquet"
_SHARES = ("wrong_sign", "no_sign", "noise", "within")


def write_credit(found: pl.DataFrame, out: Path) -> str:
    """Write ``credit.parquet``, ``credit.md`` and ``credit.svg``; return the Markdown.

    Args:
        found: rows of ``study_credit``, of one run or more.
        out: folder, which may exist.

    Raises:
        EnvironmentSetupError: a file cannot be written.
    """
    text = credit_markdown(found)
    write_frame(out / TABLE, found)
    write_text(out / "credit.md", text)
    draw_credit(found, out / "credit.svg")
    return text


def credit_markdown(found: pl.DataFrame) -> str:
    """Return a table for each run that ``study_credit`` measured."""
    parts = []
    for (run, game), own in found.group_by("run", "game", maintain_order=True):
        overall = own.filter(pl.col("distance").is_null())
        loss = "moves lost" if has_regret(game) else "risk above the safest action"
        parts.append(
            f"**{get_game(game).title}**, {run}: {own['num_turns'][0]:,} turns of "
            f"{own['num_steps'][0]} steps; credit against {loss}\n\n"
            + markdown_table(
                ["credit", "rank correlation", "95%", "wrong sign", "no sign", "noise", "within"],
                [
                    [
                        row["source"],
                        _written("{:.2f}", row["correlation"]),
                        _written("{:.2f} to {:.2f}", row["low"], row["high"]),
                        *(_written("{:.0%}", row[name]) for name in _SHARES),
                    ]
                    for row in overall.to_dicts()
                ],
            )
        )
    return "\n\n".join(parts) + "\n"


def draw_credit(found: pl.DataFrame, path: Path) -> None:
    """Write a panel per run: rank correlation over the distance to the goal, a line a source.

    Raises:
        EnvironmentSetupError: the file cannot be written.
    """
    runs = found.partition_by("run", "game", maintain_order=True)
    figure = Figure(figsize=(max(2, len(runs)) * _WIDTH, _HEIGHT + 0.8), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    ends = [*DISTANCES, math.inf]
    for axes, own in zip(panels, runs, strict=True):
        game = own["game"][0]
        classes = own.filter(pl.col("distance").is_not_null())
        measured = classes.filter(pl.col("correlation").is_not_nan())["distance"].to_list()
        present = [end for end in ends if end in measured]
        for (source,), line in classes.group_by("source", maintain_order=True):
            by_end = dict(zip(line["distance"], line["correlation"], strict=True))
            axes.plot(
                range(len(present)),
                [by_end.get(end, np.nan) for end in present],
                color=_COLOURS[source],
                marker="o",
                markersize=3.5,
                label=source,
            )
        axes.axhline(0, color="#6b6b6b", linewidth=0.8)
        axes.set_xticks(range(len(present)), _class_names(present, game))
        axes.set(title=get_game(game).title, xlabel="cost-to-go before the turn", ylim=(-0.5, 1.02))
        plain(axes)
    panels[0].set_ylabel("rank correlation of credit and minus the loss")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save_svg(figure, path)


def _class_names(ends: Sequence[float], game: str) -> list[str]:
    names = []
    for end in ends:
        below = max((one for one in DISTANCES if one < end), default=0)
        if math.isinf(end):
            names.append(f"over {below}" if has_regret(game) else f"over {below},\nor infinite")
        else:
            names.append(f"{end:g}" if end - below <= 1 else f"{below + 1}–{end:g}")
    return names


def _written(layout: str, *values: float) -> str:
    return ABSENT if math.isnan(values[0]) else layout.format(*values)
