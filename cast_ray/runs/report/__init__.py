"""What a run looks like: one self-contained HTML page, made from the run directory alone."""

from __future__ import annotations

from cast_ray.runs.report.page import write_report

__all__ = ["write_report"]
