"""The table of exported metrics, and the dashboard that asks Prometheus for them."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_origin

import pytest

from cast_ray.runs.metrics import METRIC_TYPES, METRICS
from cast_ray.runs.recoveries import KINDS
from cast_ray.training import prometheus as table

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "configs" / "grafana" / "cast_ray.json").read_text()
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES: dict[str, Any] = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel.get("targets", ())] + [
    one["definition"] for one in VARIABLES.values() if one["type"] == "query"
]


def source(package: str, *path: str) -> str:
    """Return the text of an installed module without importing its package."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.joinpath(*path).read_text()


def vllm_names() -> set[str]:
    """Return what vLLM exports through Ray, under Prometheus' names."""
    text = source("vllm", "v1", "metrics", "loggers.py")
    kinds = re.findall(
        r"self\._(gauge|counter|histogram)_cls\(\s*name=\"vllm:(\w+)\"", text, re.MULTILINE
    )
    suffixes = {"gauge": "", "counter": "_total", "histogram": "_bucket"}
    return {f"ray_vllm_{name}{suffixes[kind]}" for kind, name in kinds}


def ray_names() -> set[str]:
    """Return what Ray's own dashboards ask for, or its agent reports of a node."""
    folder = ("dashboard", "modules")
    own = source("ray", *folder, "metrics", "dashboards", "default_dashboard_panels.py")
    agent = source("ray", *folder, "reporter", "reporter_agent.py")
    reported = re.findall(r'^    "(node_\w+|component_\w+)": Gauge\(', agent, re.MULTILINE)
    return set(re.findall(r"\bray_\w+", own)) | {f"ray_{name}" for name in reported}


def test_every_column_of_a_step_is_exported_or_said_to_be_elsewhere() -> None:
    elsewhere = {"step", *(f"recovered_{kind}" for kind in KINDS)}
    assert set(table.STEP_METRICS) == set(METRICS) - elsewhere


def test_lists_and_no_others_have_a_tag_for_the_place() -> None:
    lists = {name for name, kind in METRIC_TYPES.items() if get_origin(kind) is tuple}
    assert {name for name, metric in table.STEP_METRICS.items() if metric.tags} == lists


def test_names_are_unique_and_as_ray_and_prometheus_take_them() -> None:
    names = [metric.name for metric in table.ALL]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"cast_[a-z0-9_]+", name) for name in names)
    assert all(metric.description for metric in table.ALL)


def test_dashboard_asks_for_nothing_that_nobody_exports() -> None:
    ours = {metric.prometheus_name for metric in table.ALL}
    asked = {name for query in QUERIES for name in re.findall(r"\bray_\w+", query)}
    assert {name for name in asked if name.startswith("ray_cast_")} <= ours
    of_vllm = {name for name in asked if name.startswith("ray_vllm_")}
    assert len(of_vllm) >= 5
    assert of_vllm <= vllm_names()
    of_ray = {name for name in asked if not name.startswith(("ray_cast_", "ray_vllm_"))}
    assert len(of_ray) >= 3
    assert of_ray <= ray_names()


def test_dashboard_shows_every_look_at_the_engines_and_processes() -> None:
    text = " ".join(QUERIES)
    looked_at = [m for m in table.ALL if not m.name.startswith(table.STEP_PREFIX)]
    assert not [m.name for m in looked_at if m.prometheus_name not in text]


def test_dashboard_has_rows_panels_and_queries_of_the_form_grafana_reads() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        "Learning",
        "Rollouts and engines",
        "Learner and weight sync",
        "Faults",
        "Memory",
    ]
    identities = [panel["id"] for panel in PANELS]
    assert len(set(identities)) == len(identities)
    for panel in PANELS:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert [target["refId"] for target in panel["targets"]] == list(
                "ABCDEFGH"[: len(panel["targets"])]
            )


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_our_metrics_are_asked_for_by_run_and_only_by_tags_that_they_have() -> None:
    by_name = {metric.prometheus_name: metric for metric in table.ALL}
    for panel in PANELS:
        for target in panel.get("targets", ()):
            for name, selector in re.findall(r"\b(ray_cast_\w+)(\{[^}]*\})?", target["expr"]):
                assert selector == '{run="$run"}', target["expr"]
                tags = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert tags <= set(by_name[name].tags), target["legendFormat"]
    assert VARIABLES["run"]["definition"] == "label_values(ray_cast_step, run)"


@pytest.mark.parametrize("expression", QUERIES)
def test_brackets_of_a_query_are_closed(expression: str) -> None:
    closing = {")": "(", "}": "{", "]": "["}
    open_ones: list[str] = []
    for character in re.sub(r'"[^"]*"', "", expression):
        if character in "({[":
            open_ones.append(character)
        elif character in closing:
            assert open_ones.pop() == closing[character]
    assert not open_ones
