"""What is said of a cluster's nodes, from what they answered; no Ray."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast_ray.cluster.node_probe import Found, look
from cast_ray.cluster.placement import Node
from cast_ray.cluster.problems import (
    Needs,
    NodeReport,
    clock_ahead_s,
    labels,
    notes_of,
    problems_of,
    room_problems,
)

GIB = 2**30
VERSIONS = {"Python": "3.11.9", "cast_ray": "0.1.0 (code aa)", "torch": "2.13.0", "vllm": "0.29.0"}
GOOD = Found(
    versions=VERSIONS,
    shared_memory_free=24 * GIB,
    temporary_free=50 * GIB,
    temporary_used=0.4,
    models={"policy.path": ""},
    stores={"run_dir": ""},
    run_dir="",
)
NEEDS = Needs(
    models={"policy.path": "/models/one"},
    stores={"run_dir": "s3://runs/mine"},
    run_dir="/shared/mine",
    weight_bytes=8 * GIB,
)


def node(number: int, *, cpus: float = 4.0, address: str = "") -> Node:
    return Node(
        address=address or f"10.0.0.{number}",
        bundle={"CPU": cpus, "GPU": 0.0},
        is_head=number == 0,
        node_id=f"{number:056x}"[::-1],
        memory_bytes=GIB,
    )


def report(number: int, facts: Found | None = GOOD, **others: object) -> NodeReport:
    return NodeReport(node=node(number), facts=facts, **others)  # pyright: ignore[reportArgumentType]


def changed(**others: object) -> Found:
    return cast(Found, {**GOOD, **others})


def versions(**others: str) -> Found:
    return changed(versions={**VERSIONS, **others})


def test_one_machine_alone_is_refused_without_room_for_the_weights() -> None:
    assert list(room_problems(24 * GIB, 8 * GIB)) == []
    [problem] = room_problems(24 * GIB - 1, 8 * GIB)
    assert "24.0 GiB" in problem and "--shm-size" in problem


def test_nodes_that_are_as_the_driver_have_no_problem() -> None:
    assert problems_of(GOOD, [report(0), report(1), report(2)], NEEDS) == []
    assert notes_of([report(0), report(1)], NEEDS) == []


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (
            versions(cast_ray="0.0.9 (code bb)"),
            ["cast_ray", "0.0.9 (code bb)", "0.1.0 (code aa)", "cast-ray submit --with-code"],
        ),
        (versions(cast_ray=""), ["cast_ray is missing", "0.1.0 (code aa)", "install"]),
        (
            versions(torch="2.12.1", vllm=""),
            ["torch is 2.12.1", "2.13.0", "vllm is missing", "0.29.0", "install"],
        ),
        (versions(Python="3.11.2"), ["Python is 3.11.2", "3.11.9", "install"]),
        (
            changed(models={"policy.path": "is not a directory"}),
            ["policy.path=/models/one is not a directory"],
        ),
        (changed(run_dir="cannot be written"), ["run_dir=/shared/mine cannot be written"]),
        (
            changed(stores={"run_dir": "nobody answers: look at the network"}),
            ["run_dir=s3://runs/mine: nobody answers: look at the network"],
        ),
        (
            changed(shared_memory_free=24 * GIB - 1),
            ["/dev/shm", "24.0 GiB free", "take 24.0 GiB", "docker run --shm-size"],
        ),
        (None, ["it was silent", "ray status"]),
    ],
)
def test_each_trouble_of_a_node_is_one_sentence(facts: Found | None, named: list[str]) -> None:
    reports = [report(0), report(1, facts, silence="it was silent"), report(2)]
    (sentence,) = problems_of(GOOD, reports, NEEDS)
    assert sentence.startswith("on 10.0.0.1 ")
    assert [text for text in named if text not in sentence] == []


def test_nodes_with_the_same_trouble_share_a_sentence() -> None:
    old = versions(torch="2.12.1")
    older = versions(torch="2.0.0")
    found = problems_of(GOOD, [report(0), report(1, old), report(2, older), report(3, old)], NEEDS)
    assert [sentence.partition(" torch ")[0] for sentence in found] == [
        "on 10.0.0.1, 10.0.0.3",
        "on 10.0.0.2",
    ]


def test_node_with_several_troubles_has_a_sentence_for_each() -> None:
    bad = changed(
        versions={**VERSIONS, "cast_ray": ""},
        models={"policy.path": "is not a directory"},
        run_dir="gone",
    )
    found = problems_of(GOOD, [report(0), report(1, bad)], NEEDS)
    assert len(found) == len(set(found)) == 3


def test_node_that_computes_nothing_needs_no_room_for_weights() -> None:
    full = changed(shared_memory_free=0)
    idle = NodeReport(node=node(0, cpus=0), facts=full)
    assert problems_of(GOOD, [idle], NEEDS) == []
    assert len(problems_of(GOOD, [NodeReport(node=node(0), facts=full)], NEEDS)) == 1


def test_small_policy_has_no_demand_on_shared_memory() -> None:
    full = changed(shared_memory_free=0)
    assert problems_of(GOOD, [report(0, full)], replace(NEEDS, weight_bytes=0)) == []


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [
        (5.0, None),
        (-5.0, None),
        (5.6, "the clock is 6 s ahead of the driver's"),
        (-61.0, "the clock is 61 s behind the driver's"),
    ],
)
def test_clock_that_is_off_is_noted_and_stops_nothing(ahead_s: float, words: str | None) -> None:
    reports = [report(0), report(1, clock_ahead_s=ahead_s)]
    assert problems_of(GOOD, reports, NEEDS) == []
    notes = notes_of(reports, NEEDS)
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_what_was_not_looked_at_is_noted() -> None:
    (note,) = notes_of([report(0), report(1)], Needs())
    assert "give run_dir=PATH" in note
    assert notes_of([report(0)], Needs()) == []


def test_full_disk_and_dead_nodes_are_noted() -> None:
    full = changed(temporary_used=0.97, temporary_free=GIB)
    notes = notes_of([report(0, full)], NEEDS, num_dead=2)
    assert notes[0].startswith("on 10.0.0.0 the disk for Ray's session is 97% full (1.0 GiB free)")
    assert notes[1].startswith("2 node(s) died or were removed")


def test_nodes_of_one_address_are_told_apart() -> None:
    one, two = (NodeReport(node=node(n, address="10.0.0.9"), facts=GOOD) for n in (1, 2))
    assert labels([one, two, report(3)]) == [
        "10.0.0.9 (node 10000000)",
        "10.0.0.9 (node 20000000)",
        "10.0.0.3",
    ]


times = st.floats(min_value=0, max_value=1e6)


@given(asked=times, true=times, answered=times, ahead=st.floats(-1e5, 1e5))
def test_clock_is_never_called_further_off_than_it_is(
    asked: float, true: float, answered: float, ahead: float
) -> None:
    asked, true, answered = sorted([asked, true, answered])
    found = clock_ahead_s(asked=asked, said=true + ahead, answered=answered)
    assert found * ahead >= 0
    assert abs(found) <= abs(ahead) + 1e-6
    # It is off by at most the time that the question took.
    assert abs(ahead) <= abs(found) + (answered - asked) + 1e-6


@given(st.lists(st.sampled_from([GOOD, versions(torch="1"), versions(cast_ray=""), None])))
def test_every_node_that_is_not_as_the_driver_is_named_once(
    facts: list[Found | None],
) -> None:
    reports = [report(number, fact, silence="x") for number, fact in enumerate(facts)]
    named = " ".join(s.removeprefix("on ") for s in problems_of(GOOD, reports, NEEDS))
    words = named.replace(",", " ").split()
    for number, fact in enumerate(facts):
        assert words.count(f"10.0.0.{number}") == (fact is not GOOD)


def test_probe_names_the_fault_of_a_model_and_takes_quantised_weights_for_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "awq"}}')
    models = {"policy.path": str(tmp_path), "objective.reference": str(tmp_path / "none")}
    found = look(models=models, stores={}, beacon="", store_timeout_s=1)["models"]
    assert re.search(r"\bawq\b.*config\.json", found["policy.path"])
    assert "directory" in found["objective.reference"]


def test_probe_of_this_machine_finds_what_is_installed(tmp_path: Path) -> None:
    beacon = tmp_path / "beacon"
    beacon.touch()
    found = look(models={}, stores={}, beacon=str(beacon), store_timeout_s=1)
    assert all(found["versions"].values())
    assert "+" not in found["versions"]["torch"]
    assert found["run_dir"] == ""
    assert found["shared_memory_free"] > 0
