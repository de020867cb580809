"""What ``cast-ray bench scaling`` makes of its windows: efficiency, costs, the picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.main import BENCHMARKS, run_benchmark
from benchmarks.scaling import scaling_figures
from benchmarks.scaling_plot import plot_scaling, rates_by_nodes
from benchmarks.simulated_nodes import NodesWindow
from cast_ray.errors import ConfigError

SVG = "{http://www.w3.org/2000/svg}"


def window(num_nodes: int, *, num_turns: int, seconds: float = 10.0) -> NodesWindow:
    """Return a window whose other figures are round numbers."""
    return NodesWindow(
        num_nodes=num_nodes,
        seconds=seconds,
        num_turns=num_turns,
        num_calls=num_turns // 4,
        empty_fraction=0.02,
        cpu_s={"driver": 0.5, "environment": 1.0, "collector": 0.1},
        rest_of_machine_cpu_s=3.0,
        look_s=0.04,
        num_groups=5,
        group_turns=200,
        group_bytes=300_000,
        environment_mib=180.0,
        environment_connections=12.0,
        driver_mib=400.0,
        controller_mib=110.0,
        raylet_mib=14.0,
    )


def test_efficiency_is_against_one_node_as_measured_in_turns_a_second() -> None:
    # 25 a second alone, 44 with two in a window of another length.
    figures = scaling_figures([window(2, num_turns=880, seconds=20.0), window(1, num_turns=250)])
    assert figures["turns_per_second_1"] == 25
    assert figures["turns_per_second_2"] == 44
    assert figures["efficiency_1"] == 1
    assert figures["efficiency_2"] == pytest.approx(0.88)


def test_costs_are_by_turn_and_the_collector_is_counted_once() -> None:
    figures = scaling_figures([window(1, num_turns=250)])
    assert figures["driver_cpu_ms_per_turn_1"] == pytest.approx(2)
    assert figures["collector_cpu_ms_per_turn_1"] == pytest.approx(0.4)  # a part of the driver's
    assert figures["all_cpu_ms_per_turn_1"] == pytest.approx(6)
    assert figures["cores_1"] == pytest.approx(0.15)
    assert figures["cores_of_others_1"] == pytest.approx(0.3)
    assert figures["driver_cpu_ms_per_group_1"] == pytest.approx(100)
    assert figures["trajectory_bytes_per_turn_1"] == 1500
    assert figures["slots_empty_percent_1"] == pytest.approx(2)


def test_without_one_node_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(ValueError, match="unpack"):
        scaling_figures([window(2, num_turns=880)])


def test_the_picture_says_every_rate_and_its_efficiency(tmp_path: Path) -> None:
    figures = scaling_figures([window(1, num_turns=250), window(8, num_turns=1800)])
    assert rates_by_nodes(json.loads(json.dumps(figures))) == {1: 25, 8: 180}
    plot_scaling(figures, tmp_path / "new" / "scaling.svg")
    drawing = (tmp_path / "new" / "scaling.svg").read_text()
    assert ElementTree.fromstring(drawing).tag == f"{SVG}svg"
    # Letters are drawn as paths, each text with its words in a comment.
    for words in ("25.0 (100.0%)", "180.0 (90.0%)", "linear", "turns a second"):
        assert f"<!-- {words} -->" in drawing


def test_a_picture_of_another_kind_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    monkeypatch.setitem(BENCHMARKS, "scaling", lambda: measured.append(1) or {})
    monkeypatch.setitem(BENCHMARKS, "gym", lambda: measured.append(1) or {})
    with pytest.raises(ConfigError, match=r"--plot.*\.svg"):
        run_benchmark("scaling", plot=tmp_path / "scaling.png")
    with pytest.raises(ConfigError, match=r"gym .*--plot .*scaling"):
        run_benchmark("gym", plot=tmp_path / "gym.svg")
    assert measured == []


def test_a_picture_is_drawn_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = scaling_figures([window(1, num_turns=250), window(2, num_turns=490)])
    monkeypatch.setitem(BENCHMARKS, "scaling", lambda: figures)
    assert run_benchmark("scaling", plot=tmp_path / "scaling.svg") == figures
    assert "<!-- 49.0 (98.0%) -->" in (tmp_path / "scaling.svg").read_text()


def test_the_page_says_what_the_run_beside_it_measured() -> None:
    docs = Path(__file__).parents[2] / "docs"
    figures = json.loads((docs / "scaling.json").read_text())
    page, drawing = (docs / "scaling.md").read_text(), (docs / "scaling.svg").read_text()
    rates = rates_by_nodes(figures)
    assert sorted(rates) == [1, 2, 4, 8]
    for number, rate in rates.items():
        efficiency = figures[f"efficiency_{number}"]
        assert f"\n| {number} | {rate:.1f} | {efficiency:.1%} | " in page
        assert f"<!-- {rate:.1f} ({efficiency:.1%}) -->" in drawing
        assert efficiency == pytest.approx(rate / number / rates[1], abs=1e-3)
