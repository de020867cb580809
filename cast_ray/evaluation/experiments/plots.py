"""A comparison of arms as an SVG plot and as Markdown; the same tables give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cast_ray.evaluation.experiments.arms import WAYPOINTS, Arm, Climb, Gap, Played, Race, band
from cast_ray.evaluation.table_sections import ABSENT, markdown_table
from cast_ray.files import written_aside
from cast_ray.statistics import Estimate

METHODS = {
    "CAST": "#3b6ea8",
    "DAPO": "#d9822b",
    "GRPO": "#b5485d",
    "GSPO": "#7d62a8",
    "GiGPO": "#8a7448",
    "value network": "#4d9a5b",
    "whole trajectories": "#2f4b7c",
    "shuffled": "#8a8a8a",
}
"""The colour of a method in every picture."""
_SAME = {"exact solver": "CAST", "outcome only": "DAPO"}
_OTHERS = ("#4fa3a5", "#d183b5", "#98b84c", "#2f4b7c", "#c2a33a", "#4d9a5b", "#8a7448", "#7d62a8")
_GREY = "#6b6b6b"
_SIZE = (11.0, 4.2)
_MOST_IN_ONE_PANEL = 4
"""With more arms the bands hide each other, and each arm gets its own panel."""


def draw_comparison(
    arms: Sequence[Arm],
    runs: pl.DataFrame,
    path: Path,
    *,
    baseline: str,
    gaps: Sequence[Gap],
    ceiling: float | None = None,
) -> None:
    """Write an SVG of mean validation curves with 95% bands, and of every run's held-out result.

    Many arms are drawn in one panel each, with the baseline. The scales start at 0 and end
    at the first quarter above all values.

    Args:
        arms: the baseline among them.
        runs: ``RUN_SCHEMA``.
        path: of the SVG.
        baseline: name of an arm.
        gaps: of every other arm from the baseline; they give the titles.
        ceiling: result of a policy that was taught by good play alone.

    Raises:
        EnvironmentSetupError: the file cannot be written.
    """
    found = {one.arm: one for one in gaps}
    others = [arm for arm in arms if arm.name != baseline]
    together = len(arms) <= _MOST_IN_ONE_PANEL
    rows = 1 if together else math.ceil(len(others) / 3)
    height = max(_SIZE[1], 1.4 + 0.34 * len(arms), 2.0 * rows)
    figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
    ((left, right),) = figure.subfigures(1, 2, width_ratios=(3, 2), squeeze=False)
    colours = colours_of([arm.name for arm in arms])
    bands = {arm.name: band(arm) for arm in arms}
    top = _quarter(max(one.high for estimates in bands.values() for one in estimates))
    if together:
        axes = left.subplots()
        for arm in arms:
            _draw_curve(axes, arm, bands[arm.name], colours[arm.name])
        axes.set(title=_finding(*gaps[:1]), xlabel="step", ylim=(0, top))
        axes.set_ylabel("validation boards solved\n(mean, 95% over seeds and boards)")
        ends = {name: estimates[-1].value for name, estimates in bands.items()}
        _name_curves(axes, arms[0].steps[-1], ends, colours)
    else:
        (behind,) = (arm for arm in arms if arm.name == baseline)
        panels = left.subplots(rows, 3, sharex=True, sharey=True, squeeze=False).flatten()
        title = f"Difference from {baseline} during training"
        left.suptitle(title, fontsize=12, color=colours[baseline])
        left.supxlabel("step", fontsize=10)
        left.supylabel("validation boards solved (mean, 95%)", fontsize=10)
        for axes, arm in zip(panels, others, strict=False):
            for one in (behind, arm):
                _draw_curve(axes, one, bands[one.name], colours[one.name])
            title = f"{arm.name}: {_points(found[arm.name])}"
            axes.set_title(title, color=colours[arm.name], fontsize=9)
        for axes in panels[len(others) :]:
            axes.set_axis_off()
        panels[0].set_ylim(0, top)
    _draw_held_out(right.subplots(), arms, runs, colours=colours, ceiling=ceiling)
    save_svg(figure, path)


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name: a method's own, one of the others for anything else."""
    methods = {
        name: METHODS[known] for name in names if (known := _SAME.get(name, name)) in METHODS
    }
    free = [one for one in _OTHERS if one not in methods.values()]
    others = [name for name in names if name not in methods]
    return methods | {name: free[place % len(free)] for place, name in enumerate(others)}


def _finding(found: Gap | None = None) -> str:
    """Return a title that says what the curves show."""
    if found is None or math.isnan(found.area.low):
        return "Validation during training"
    area = found.area
    if area.low <= 0 <= area.high:
        return (
            f"No clear lead of {found.arm} over {found.baseline} during training: {_points(found)}"
        )
    ahead = (found.arm, found.baseline) if area.value > 0 else (found.baseline, found.arm)
    return f"{ahead[0]} leads {ahead[1]} during training: {_points(found)}"


def _points(found: Gap) -> str:
    """Return the mean difference of two curves with its interval."""
    value, low, high = (100 * at for at in (found.area.value, found.area.low, found.area.high))
    interval = "" if math.isnan(low) else f"\n(95%: {low:+.1f} to {high:+.1f})"
    return "no pair of seeds" if math.isnan(value) else f"{value:+.1f} points{interval}"


def _name_curves(axes: Axes, step: float, ends: dict[str, float], colours: dict[str, str]) -> None:
    """Write the names of curves at their right ends, moved apart."""
    height, apart = -math.inf, 0.05 * axes.get_ylim()[1]
    for name in sorted(ends, key=ends.__getitem__):
        height = max(ends[name], height + apart)
        axes.text(step, height, f" {name}", color=colours[name], weight="bold", va="center")


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG; equal figures give equal bytes."""
    with written_aside(path) as aside, rc_context({"svg.hashsalt": "cast_ray"}):
        figure.savefig(aside, format="svg", metadata={"Date": None})


def _draw_curve(axes: Axes, arm: Arm, estimates: Sequence[Estimate], colour: str) -> None:
    low, high = [one.low for one in estimates], [one.high for one in estimates]
    axes.fill_between(arm.steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(arm.steps, [one.value for one in estimates], color=colour, linewidth=2)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    plain(axes)


def _draw_held_out(
    axes: Axes,
    arms: Sequence[Arm],
    runs: pl.DataFrame,
    *,
    colours: dict[str, str],
    ceiling: float | None,
) -> None:
    for place, arm in enumerate(arms):
        after = runs.filter(pl.col("arm") == arm.name).sort("seed")["after"].to_numpy()
        colour = colours[arm.name]
        axes.plot(after, [place] * len(after), "o", color=colour, markersize=4, alpha=0.8)
        mean = after.mean()
        axes.plot(mean, place, "|", color=colour, markersize=18, markeredgewidth=2.5)
        axes.text(mean, place + 0.25, f"{mean:.1%}", color=colour, size=8, ha="center", va="top")
    before = runs["before"].to_numpy().mean()
    axes.axvline(before, color=_GREY, linestyle=":", label="before training")
    if ceiling is not None:
        axes.axvline(ceiling, color=_GREY, linestyle="--", label="taught by good play")
    axes.set(title="Held-out boards after training", xlabel="share of attempts, a dot a seed")
    axes.set_xlim(0, _quarter(max(runs["after"].to_numpy().max(), ceiling or 0.0)))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.set_ylim(len(arms) - 0.2, -1.2)  # from the top, with room for the legend
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    plain(axes)


def plain(axes: Axes) -> None:
    """Draw a light grid, and no frame at the top and on the right."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _quarter(share: float) -> float:
    """Round a share up to a multiple of a quarter, at least one quarter."""
    return min(1.0, math.ceil(4 * max(share, 0.01)) / 4)


def comparison_tables(
    arms: Sequence[Arm],
    runs: pl.DataFrame,
    races: Sequence[Race],
    played: Sequence[Played] = (),
    *,
    gaps: Sequence[Gap] = (),
    ways: Sequence[Climb] = (),
    training: pl.DataFrame | None = None,
    ceiling: float | None = None,
) -> str:
    """Return the results of a comparison as Markdown tables.

    They are: every arm's held-out results and the ceiling, results on further tiers, steps until
    the baseline's best, the difference in area under the curve, steps for parts of the baseline's
    rise, training, and the solver's share of the time.
    Those without data are left out.
    """
    results, shares = [], []
    for arm in arms:
        own = runs.filter(pl.col("arm") == arm.name).sort("seed")
        results.append(
            [
                arm.name,
                ", ".join(map(str, own["seed"])),
                _percent(own["before"].mean()),
                ", ".join(_percent(one) for one in own["after"]),
                _percent(own["after"].mean()),
                _number(own["regret"].mean(), 3),
            ]
        )
        shares.append(
            [
                arm.name,
                _percent(own["solver_of_turn"].mean()),
                _percent(own["solver_of_trajectory"].mean(), 3),
                _percent(own["solver_of_step"].mean(), 2),
            ]
        )
    if ceiling is not None:
        results.append(["taught by good play alone", *[""] * 3, _percent(ceiling), ""])
    parts = [
        markdown_table(
            ["arm", "seeds", "held-out before", "after, each", "mean", "regret per turn"], results
        ),
        *([_tier_table(played)] if played else []),
        markdown_table(
            ["", "best", "at step", "reached at step", "ratio", "95%"],
            [_race(one) for one in races],
        ),
        *([_gap_table(gaps)] if gaps else []),
        *([_way_table(ways)] if ways else []),
        *([] if training is None or training.is_empty() else [_training_table(training)]),
        markdown_table(
            ["solver's share", "of a turn", "of a trajectory", "of a step"],
            shares,
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _gap_table(gaps: Sequence[Gap]) -> str:
    rows = []
    for one in gaps:
        seeds = ", ".join(map(str, one.seeds)) or ABSENT
        if one.unpaired:
            seeds += f" (without a pair: {', '.join(map(str, one.unpaired))})"
        low, value, high = (100 * at for at in (one.area.low, one.area.value, one.area.high))
        interval = ABSENT if math.isnan(low) else f"{low:+.1f} to {high:+.1f}"
        rows.append([one.arm, seeds, ABSENT if math.isnan(value) else f"{value:+.1f}", interval])
    against = f"area under the validation curve, points above {gaps[0].baseline}"
    return markdown_table(["", "paired seeds", against, "95% (t)"], rows)


def _way_table(ways: Sequence[Climb]) -> str:
    return markdown_table(
        [f"steps to … of the way to {ways[0].baseline}'s best", *(f"{w:.0%}" for w in WAYPOINTS)],
        [[one.arm, *map(_steps, one.steps)] for one in ways],
    )


def _training_table(training: pl.DataFrame) -> str:
    """Return the means of training episodes over seeds and each quarter of the steps."""
    last = pl.col("step").max().over("arm")
    quarters = (
        training.with_columns(
            quarter=(4 * (pl.col("step") - 1)) // last,
            # A reveal of an open cell is illegal, a move into a wall ineffective.
            in_vain=pl.col("ineffective_fraction") + pl.col("invalid_fraction"),
        )
        .group_by("arm", "quarter", maintain_order=True)
        .agg(pl.col("success", "lost_fraction", "in_vain").mean())
        .sort("quarter", maintain_order=True)
    )
    rows = [
        [arm, *(", ".join(f"{share:.0%}" for share in own[name]) for name in own.columns[2:])]
        for (arm,), own in quarters.group_by("arm", maintain_order=True)
    ]
    return markdown_table(
        ["in training, a quarter each", "games won", "lost", "turns without effect"], rows
    )


def _tier_table(played: Sequence[Played]) -> str:
    columns = list(dict.fromkeys((one.game, one.tier) for one in played))
    cells: dict[str, list[str]] = {}
    for one in played:  # all arms have the tiers in the same order
        of = one.solved
        interval = f"{100 * of.low:.1f} to {100 * of.high:.1f}"
        cells.setdefault(one.arm, []).append(f"{_percent(of.value)} ({interval})")
    return markdown_table(
        ["trained by", *(f"{game}:{tier}" for game, tier in columns)],
        [[arm, *row] for arm, row in cells.items()],
    )


def _race(found: Race) -> list[str]:
    return [
        f"{found.runner} to the best of {found.baseline}",
        _percent(found.best),
        str(found.baseline_step),
        _steps(found.runner_step),
        _steps(found.ratio.value, 2),
        f"{_steps(found.ratio.low, 2)} to {_steps(found.ratio.high, 2)}",
    ]


def _steps(value: float, digits: int = 0) -> str:
    return "not reached" if math.isinf(value) else f"{value:.{digits}f}"


def _percent(value: object, digits: int = 1) -> str:
    return ABSENT if value is None else f"{100 * float(str(value)):.{digits}f}%"


def _number(value: object, digits: int) -> str:
    return ABSENT if value is None else f"{float(str(value)):.{digits}f}"
