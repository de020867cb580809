"""What came of sweeps, as small tables that can be kept, and drawn again from themselves alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cast_ray.comparison import arms_of, climbs, played_tiers, race
from cast_ray.files import refusals_named, written_aside
from cast_ray.jobs.compared_runs import read_tables, require_arm
from cast_ray.report.arms import comparison_tables, draw_comparison


def compare(
    folders: Sequence[Path],
    *,
    baseline: str,
    out: Path,
    only: Sequence[str] = (),
    evaluation: Path | None = None,
    ceiling: Path | None = None,
) -> str:
    """Write tables, picture and Markdown of sweeps beside each other; return the Markdown.

    Args:
        folders: of sweeps, or such as an earlier comparison wrote: one of those alone is drawn
            again.
        baseline: the arm that all others are held against.
        out: gets ``curves.parquet``, ``runs.parquet``, ``comparison.svg`` and
            ``comparison.md``, and ``training.parquet`` of the runs whose steps are known.
        only: the arms that are compared, in their order; empty = all.
        evaluation: what ``cast-ray eval`` wrote of the arms' models; ``out`` then gets
            ``tiers.parquet``, too.
        ceiling: directory of a run that took no step, whose start model shows how well the student
            can play; ``out`` then gets ``ceiling.parquet``, too.

    Raises:
        ConfigError: there is no such arm; runs were validated differently; a run is in two folders;
            or the ceiling's run took steps.
        RunDirectoryError: a folder holds neither, or there is no evaluation or ceiling.
        EnvironmentSetupError: the file system refused something.
    """
    tables = read_tables(folders, only=only, evaluation=evaluation, ceiling=ceiling)
    arms = arms_of(tables.curves)
    by_name = {arm.name: arm for arm in arms}
    require_arm(baseline, by_name)
    races = [
        race(*pair)
        for arm in arms
        if arm.name != baseline
        for pair in ((arm, by_name[baseline]), (by_name[baseline], arm))
    ]
    played = [] if tables.tiers is None else played_tiers(tables.tiers)
    reached = None if tables.ceiling is None else float(tables.ceiling["success"][0])
    text = comparison_tables(
        arms,
        tables.runs,
        races,
        played,
        ways=climbs(arms, by_name[baseline]),
        training=tables.training,
        ceiling=reached,
    )
    with refusals_named(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.by_file().items():
        with written_aside(out / name) as aside:
            table.write_parquet(aside)
    draw_comparison(arms, tables.runs, out / "comparison.svg", baseline=baseline, ceiling=reached)
    with written_aside(out / "comparison.md") as aside:
        aside.write_text(text)
    return text
