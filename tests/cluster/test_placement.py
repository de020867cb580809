"""Whether a cluster holds a run: against brute force, and what is said where it does not."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cast_ray.cluster.placement import (
    Bundle,
    Node,
    Part,
    found_places,
    parts_of,
    placement_report,
    placement_table,
    reserved_cpus,
    wait_for_places,
)
from cast_ray.config.load import load_config
from cast_ray.config.resources import PRESETS, ResourcesConfig
from cast_ray.config.train import TrainConfig
from cast_ray.errors import ConfigError, EnvironmentSetupError


def node(cpus: float, gpus: float = 0, *, address: str = "10.0.0.1") -> Node:
    return Node(address=address, bundle={"CPU": cpus, "GPU": gpus})


def part(name: str, count: int, cpus: float, gpus: float = 0) -> Part:
    bundle = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
    return Part(name=name, count=count, bundle=bundle, keys=f"resources.{name}")


def fits_by_trying_all(parts: list[Part], nodes: list[Node]) -> bool:
    """Return whether any assignment of bundles to nodes is within all of them."""
    bundles = [one.bundle for one in parts for _ in range(one.count)]
    for places in itertools.product(range(len(nodes)), repeat=len(bundles)):
        left = [dict(one.bundle) for one in nodes]
        for bundle, place in zip(bundles, places, strict=True):
            for name, value in bundle.items():
                left[place][name] -= value
        if all(value >= 0 for one in left for value in one.values()):
            return True
    return False


COUNTS = st.integers(0, 2)
PARTS = st.tuples(COUNTS, COUNTS, COUNTS).map(
    lambda n: [part("ranks", n[0], 1, 1), part("engines", n[1], 2, 1), part("actors", n[2], 1)]
)
NODES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=3).map(
    lambda sizes: [node(cpus, gpus) for cpus, gpus in sizes]
)


@settings(max_examples=300)
@given(PARTS, NODES)
def test_a_run_fits_exactly_where_some_assignment_does(
    parts: list[Part], nodes: list[Node]
) -> None:
    found = found_places(parts, nodes)
    assert all(0 <= number <= one.count for number, one in zip(found, parts, strict=True))
    is_whole = found == [one.count for one in parts]
    assert is_whole == fits_by_trying_all(parts, nodes)


def test_a_bundle_is_on_one_node() -> None:
    assert found_places([part("engines", 1, 2)], [node(1), node(1)]) == [0]


def test_gpus_are_left_to_those_that_ask_for_them() -> None:
    actors, engine = part("actors", 2, 1), part("engines", 1, 1, 1)
    assert found_places([actors, engine], [node(1, 1), node(2)]) == [2, 1]


def test_tenths_add_up() -> None:
    assert found_places([part("actors", 10, 0.1)], [node(1.0)]) == [10]


def test_the_default_fits_the_ray_that_a_run_starts_for_itself() -> None:
    for preset in ("one_machine", "two_nodes_8_gpus"):
        config = load_config(None, [f"resources.preset={preset}"])
        nodes = [node(reserved_cpus(config), 16)]
        wait_for_places(config, say=pytest.fail, nodes_now=lambda nodes=nodes: nodes)


def test_a_fixed_cluster_that_is_too_small_is_refused_with_a_table() -> None:
    config = load_config(
        None, ["resources.engines=3", "resources.cpus_per_engine=4", "resources.wait_for_nodes_s=0"]
    )
    nodes = [
        Node(address="10.0.0.1", bundle={"CPU": 0, "GPU": 0}, is_head=True),
        node(12, address="10.0.0.2"),
    ]
    with pytest.raises(EnvironmentSetupError) as caught:
        wait_for_places(config, say=pytest.fail, nodes_now=lambda: nodes)
    message = str(caught.value)
    lines = {line.split("  ")[1]: line for line in message.splitlines()[1:-1]}
    assert lines["engines"].split()[1:] == ["3", "4", "CPU", "2", "<-", "too", "few"]
    assert "too few" not in lines["learner ranks"]
    assert re.search(r"10\.0\.0\.1 \(head\).*nothing", message)
    assert re.search(r"10\.0\.0\.2\b.* 12 CPU", message)
    assert re.search(r"resources\.engines.*resources\.min_engines", message)
    assert "resources.env_runners" not in message


def test_fewer_engines_at_the_start_are_enough() -> None:
    config = load_config(
        None, ["resources.engines=8", "resources.min_engines=1", "resources.wait_for_nodes_s=0"]
    )
    wait_for_places(config, say=pytest.fail, nodes_now=lambda: [node(4)])


def test_an_evaluation_needs_no_place_for_ranks() -> None:
    config = load_config(
        None, ["resources.gpus_per_learner_rank=1", "resources.wait_for_nodes_s=0"]
    )
    wait_for_places(config, say=pytest.fail, with_learner=False, nodes_now=lambda: [node(4)])


@pytest.mark.parametrize(
    ("cpus", "wait_s", "is_well", "what"),
    [
        (4, 0, True, "the run fits"),
        (3, 0, False, "the run would be refused; missing: 1 engines of 1 CPU"),
        (3, 60, True, "wait 60 s for them; missing: 1 engines"),
    ],
)
def test_the_doctor_says_what_would_become_of_a_run(
    cpus: float, wait_s: float, is_well: bool, what: str
) -> None:
    resources = ResourcesConfig(wait_for_nodes_s=wait_s)
    fits, text = placement_report(resources, [node(cpus)])
    assert fits == is_well
    assert what in text
    assert "learner ranks" in text


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_whole_and_hold_what_they_name(preset: str) -> None:
    resources = load_config(None, [f"resources.preset={preset}"]).resources
    gpus = {"one_machine": [], "one_gpu": [1], "one_node_8_gpus": [8], "two_nodes_8_gpus": [8, 8]}
    nodes = [node(64, number) for number in gpus[preset] or [0]]
    parts = parts_of(resources)
    assert found_places(parts, nodes) == [one.count for one in parts]
    needed = sum(one.count * one.bundle.get("GPU", 0) for one in parts)
    assert needed == sum(gpus[preset])  # none is left idle


def test_a_preset_stands_below_what_is_given_beside_it(tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("resources: {preset: one_node_8_gpus, engines: 7, learner_ranks: 1}\n")
    of_file = load_config(file, []).resources
    assert (of_file.engines, of_file.learner_ranks, of_file.oracle_actors) == (7, 1, 2)
    given = load_config(file, ["resources.preset=one_machine"]).resources
    assert given == replace(TrainConfig().resources, preset="one_machine")
    overrides = ["resources.engines=2", "resources.preset=one_node_8_gpus"]
    assert load_config(file, overrides).resources.engines == 2


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["resources.engines=0"], "resources.engines.* 1"),
        (["resources.min_engines=2"], r"resources.min_engines.*\(1\)"),
        (["resources.cpus_per_engine=0"], "resources.cpus_per_engine.* 0"),
        (["resources.gpus_per_engine=2"], "resources.gpus_per_engine.*engine.tensor_parallel_size"),
        (
            ["resources.gpus_per_learner_rank=0.5"],
            "gpus_per_learner_rank.*resources.share_gpu",
        ),
        (["resources.wait_for_nodes_s=-2"], "resources.wait_for_nodes_s.*-1"),
        (["resources.share_gpu=true"], "share_gpu.*gpus_per_learner_rank.* 1"),
        (["resources.preset=one_gpu", "max_staleness=1"], "max_staleness=0.* 1"),
        (["resources.preset=one_gpu", "resources.engines=2"], "share_gpu.* 2 and 1"),
        (
            ["resources.preset=one_gpu", "resources.engines=2", "resources.learner_ranks=2"],
            "share_gpu.*gpus_per_learner_rank above 0.5",
        ),
        (["engine.num_engines=2"], "engine.num_engines.*engine.dtype"),
        (["learner.num_ranks=2"], "learner.num_ranks.*num_threads"),
    ],
)
def test_bad_resources_are_named(overrides: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        load_config(None, overrides)


def test_every_preset_has_every_number() -> None:
    numbers = set(ResourcesConfig.__dataclass_fields__) - {
        "preset",
        "wait_for_nodes_s",
    }
    for values in PRESETS.values():
        assert set(values["resources"]) == numbers


def test_the_table_has_a_line_for_each_part_and_node() -> None:
    bundle: Bundle = {"CPU": 1, "GPU": 0}
    nodes = [Node(address=f"10.0.0.{i}", bundle=bundle) for i in range(3)]
    table = placement_table(parts_of(ResourcesConfig()), nodes)
    assert len(table.splitlines()) == 1 + 4 + 3
