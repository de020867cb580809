"""Run directories under one root, read for people who look around: never written, never run.

Everything comes back as values that ``dataclasses.asdict`` makes JSON of: no float in them is
infinite or NaN. ``T`` is the number of turns of a trajectory.
"""

from __future__ import annotations

from serve.site.runs.browser import RunBrowser
from serve.site.runs.details import MetricColumns, RunDetails, RunSummary
from serve.site.runs.episode import StoredEpisode, StoredTurn, TurnAdvantages
from serve.site.runs.steps import GroupRow, StepFilter, StepPage, TrajectoryRow

__all__ = [
    "GroupRow",
    "MetricColumns",
    "RunBrowser",
    "RunDetails",
    "RunSummary",
    "StepFilter",
    "StepPage",
    "StoredEpisode",
    "StoredTurn",
    "TrajectoryRow",
    "TurnAdvantages",
]
