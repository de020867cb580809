"""Run directories under one root, read for people who look around: never written, never run.

Everything comes back as values that ``dataclasses.asdict`` makes JSON of: no float in them is
infinite or NaN. ``T`` is the number of turns of a trajectory.
"""

from __future__ import annotations

from cast_ray.run_browser.browser import RunBrowser
from cast_ray.run_browser.details import MetricColumns, RunDetails, RunSummary
from cast_ray.run_browser.step_page import GroupRow, StepFilter, StepPage, TrajectoryRow
from cast_ray.run_browser.stored_episode import StoredEpisode, StoredTurn, TurnAdvantages

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
