"""docs/operations.md speaks of every metric, and of keys and metrics that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from cast_ray.config.reference import config_reference
from cast_ray.config.train import TrainConfig
from cast_ray.rollout.trajectory import BATCH_SCHEMA
from cast_ray.runs.metrics import StepMetrics

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
WORDS = set(re.findall(r"`([a-z_.]+)(?:=[^`]*)?`", PAGE))
METRICS = {item.name for item in fields(StepMetrics)}


def test_every_metric_is_spoken_of() -> None:
    assert sorted(METRICS - WORDS) == []


def test_every_name_is_one_of_ours() -> None:
    keys = {key.key for key in config_reference(TrainConfig)}
    sections = {key.partition(".")[0] for key in keys}
    files = {"metrics.parquet", "recoveries.jsonl"}
    assert sorted(WORDS - METRICS - keys - sections - files - set(BATCH_SCHEMA.names)) == []
