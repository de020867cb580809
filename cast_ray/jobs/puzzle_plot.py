"""The distribution of costs in puzzle files, as a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cast_ray.errors import ConfigError
from cast_ray.files import refusals_named, written_aside
from cast_ray.games import get_game
from cast_ray.jobs.puzzle_stats import PuzzleFile

_COLUMNS = 2
_PANEL_INCHES = (6.0, 2.8)
_COLORS = {True: "#3b6ea8", False: "#d9822b"}
_FORMATS = ("png", "svg", "pdf")


def plot_costs(files: Sequence[PuzzleFile], path: Path) -> None:
    """Draw one panel a game and tier: the share of its puzzles at each cost, file by file.

    Raises:
        ConfigError: the name of the picture does not end in a format that can be drawn.
    """
    if path.suffix[1:].lower() not in _FORMATS:
        raise ConfigError(f"--plot must end in {', '.join(_FORMATS)}, got {path}")
    panels: dict[tuple[str, str], list[PuzzleFile]] = {}
    for file in files:
        for key in dict.fromkeys((p.game, p.tier) for p in file.puzzles):
            panels.setdefault(key, []).append(file)
    columns = min(_COLUMNS, max(len(panels), 1))
    rows = max(math.ceil(len(panels) / columns), 1)
    figure = Figure(
        figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows), layout="constrained"
    )
    in_order = sorted(panels, key=lambda key: (key[0], list(get_game(key[0]).tiers).index(key[1])))
    for place, key in enumerate(in_order, start=1):
        _draw_panel(figure.add_subplot(rows, columns, place), key, panels[key])
    with refusals_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        figure.savefig(aside, format=path.suffix[1:].lower(), dpi=120)


def _draw_panel(axes: Axes, key: tuple[str, str], files: Sequence[PuzzleFile]) -> None:
    """Draw one game and tier; costs that are no number stand apart, right of the largest one."""
    puzzles = {file.path: [p for p in file.puzzles if (p.game, p.tier) == key] for file in files}
    exact = [p.cost_to_go for each in puzzles.values() for p in each if p.cost_to_go is not None]
    apart = sorted(
        {p.cost_status for each in puzzles.values() for p in each if p.cost_to_go is None}
    )
    last = max(exact, default=0)
    gap = max(2, math.ceil(last / 8))
    place_of = {status: last + gap * (1 + i) for i, status in enumerate(apart)}
    width = 0.8 / len(files)
    has_namesakes = len({file.path.stem for file in files}) < len(files)
    for number, file in enumerate(files):
        mine = puzzles[file.path]
        counts = Counter(
            p.cost_to_go if p.cost_to_go is not None else place_of[p.cost_status] for p in mine
        )
        shift = (number - (len(files) - 1) / 2) * width
        axes.bar(
            [cost + shift for cost in counts],
            [count / len(mine) for count in counts.values()],
            width=width,
            color=_COLORS[file.is_training] if len(files) <= 2 else None,
            label=f"{file.path if has_namesakes else file.path.stem} ({len(mine):,})",
        )
    ticks = list(range(min(exact, default=0), last + 1, max(1, math.ceil((last + 1) / 12))))
    axes.set_xticks([*ticks, *place_of.values()], [*map(str, ticks), *place_of])
    axes.set_title(f"{key[0]} {key[1]}", loc="left", fontsize="medium")
    axes.set_xlabel("cost-to-go of the start state, in moves")
    axes.set_ylabel("share of puzzles")
    axes.spines[["top", "right"]].set_visible(False)
    if len(files) <= 2:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    else:
        axes.margins(y=0.1 * len(files))  # room for the legend
        axes.legend(frameon=False, loc="upper right")
