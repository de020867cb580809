"""The plot of ``cast-ray bench scaling``: turns per second over nodes, and the linear line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from cast_ray.errors import ConfigError
from cast_ray.files import refusals_named, written_aside

ALLOWED_LOSS = 0.1
"""Lowest efficiency that counts as linear."""
_INCHES = (6.0, 3.6)
_COLOUR, _LINEAR = "#3b6ea8", "#6b6b6b"


def plot_scaling(figures: Mapping[str, float], path: Path) -> None:
    """Draw the figures of ``bench_scaling`` into an SVG file.

    Raises:
        ConfigError: the name does not end in ``.svg``.
    """
    check_plot(path)
    rates = rates_by_nodes(figures)
    nodes = sorted(rates)
    linear = [rates[1] * number for number in nodes]
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.fill_between(
        nodes,
        [(1 - ALLOWED_LOSS) * rate for rate in linear],
        [(1 + ALLOWED_LOSS) * rate for rate in linear],
        color=_LINEAR,
        alpha=0.15,
        linewidth=0,
        label=f"within {ALLOWED_LOSS:.0%} of linear",
    )
    axes.plot(nodes, linear, color=_LINEAR, linestyle="--", linewidth=1, label="linear")
    axes.plot(nodes, [rates[n] for n in nodes], "o-", color=_COLOUR, label="measured")
    for number in nodes:
        words = f"{rates[number]:.1f} ({figures[f'efficiency_{number}']:.1%})"
        axes.annotate(
            words,
            (number, rates[number]),
            xytext=(6, -12),
            textcoords="offset points",
            fontsize=8,
            color=_COLOUR,
        )
    axes.set(title="Simulated nodes on one machine", xlabel="nodes", ylabel="turns a second")
    axes.set_xticks(nodes)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(nodes) * 1.2)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        figure.savefig(aside, format="svg", metadata={"Date": None})


def check_plot(path: Path) -> None:
    """Refuse a file of another type before the measurement, which takes minutes.

    Raises:
        ConfigError: the name does not end in ``.svg``.
    """
    if path.suffix.lower() != ".svg":
        raise ConfigError(f"--plot must end in .svg, got {path}")


def rates_by_nodes(figures: Mapping[str, float]) -> dict[int, float]:
    """Return the turns per second by number of nodes."""
    found = (
        (re.fullmatch(r"turns_per_second_(\d+)", name), rate) for name, rate in figures.items()
    )
    return {int(match[1]): rate for match, rate in found if match}
