"""Weights between hosts: nodes of one Ray here, each with a folder of its own as shared memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cast_ray.errors import EnvironmentSetupError, RemoteTimeout, WeightSyncError
from cast_ray.weights.manifest import WeightManifest, publish_weights, read_weights
from serve.weights.carrier import (
    PIECES_IN_FLIGHT,
    WeightCarrier,
    WeightSource,
    clear_hosts,
    start_source,
)
from tests.support.engine_hosts import CountingSource, DyingSource, EngineHost, FlippingSource

pytestmark = pytest.mark.ray

NUM_PIECES = PIECES_IN_FLIGHT + 2
PIECE_BYTES = 2**20
TIMEOUT_S = 60.0


def a_state(seed: int) -> dict[str, torch.Tensor]:
    """Tensors of ``NUM_PIECES`` pieces together, random at a few places."""
    state = {f"w{i}": torch.zeros(PIECE_BYTES - 4096, dtype=torch.uint8) for i in range(NUM_PIECES)}
    generator = torch.Generator().manual_seed(seed)
    for tensor in state.values():
        tensor[:: 2**10] = torch.randint(
            0, 255, tensor[:: 2**10].shape, generator=generator, dtype=torch.uint8
        )
    return state


@dataclass
class Hosts:
    """A learner's host and two for engines."""

    cluster: Cluster
    folder: Path
    node_ids: list[str]
    num_sources: int = 0

    def __post_init__(self) -> None:
        self.published = self.folder / "learner"

    def source(self, kind: type[WeightSource] = CountingSource) -> tuple[str, Any]:
        """Start a source on the learner's host."""
        self.num_sources += 1
        name = f"source-{self.num_sources}"
        return name, start_source(
            name, directory=str(self.published), node_id=self.node_ids[0], kind=kind
        )

    def engine(
        self, source: str, node_id: str, *, folder: str = "", timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Start a stand-in on a host whose shared memory is a folder of its name."""
        actor: Any = ray.remote(EngineHost)
        return actor.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
        ).remote(source, str(self.folder / (folder or f"{source}-{node_id}")), timeout_s)

    def publish(self, version: int) -> WeightManifest:
        return publish_weights(
            a_state(version), directory=self.published, version=version, piece_bytes=PIECE_BYTES
        )


def expected_total(version: int) -> float:
    return sum(tensor.double().sum().item() for tensor in a_state(version).values())


def get(reference: ray.ObjectRef) -> Any:
    return ray.get(reference, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": 2**28, "include_dashboard": False},
    )
    ray.init(cluster.address, log_to_driver=False)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=2**28) for _ in range(2)]
    cluster.wait_for_nodes()
    yield Hosts(
        cluster=cluster,
        folder=tmp_path_factory.mktemp("hosts"),
        node_ids=[cluster.head_node.node_id, *(node.node_id for node in nodes)],
    )
    ray.shutdown()
    cluster.shutdown()


def test_two_engines_of_one_host_get_one_transfer(hosts: Hosts) -> None:
    name, source = hosts.source()
    manifest = hosts.publish(1)
    engines = [hosts.engine(name, hosts.node_ids[1]) for _ in range(2)]
    found = [get(engine.bring.remote(manifest)) for engine in engines]
    both = [engine.bring.remote(manifest) for engine in engines]
    assert [get(local) for local in both] == found
    assert found[0] == found[1]
    assert Path(found[0].path).parent != Path(manifest.path).parent
    assert get(engines[0].total.remote(found[0])) == expected_total(1)
    assert get(source.num_pieces_sent.remote()) == NUM_PIECES


def test_engines_that_ask_at_the_same_time_get_one_transfer_each_host(hosts: Hosts) -> None:
    name, source = hosts.source()
    manifest = hosts.publish(2)
    engines = [hosts.engine(name, node) for node in hosts.node_ids[1:] for _ in range(3)]
    for engine in engines:  # all are there before the first asks
        get(engine.__ray_ready__.remote())
    for local in [engine.bring.remote(manifest) for engine in engines]:
        assert get(local).checksum == manifest.checksum
    assert get(source.num_pieces_sent.remote()) == 2 * NUM_PIECES


def test_an_engine_on_the_learners_host_needs_no_transfer(hosts: Hosts) -> None:
    name, source = hosts.source()
    manifest = hosts.publish(3)
    engine = hosts.engine(name, hosts.node_ids[0], folder="learner")
    assert get(engine.bring.remote(manifest)) == manifest
    assert get(engine.current.remote()) == manifest
    assert get(source.num_pieces_sent.remote()) == 0


def test_an_engine_on_a_host_that_comes_late_gets_the_current_version(hosts: Hosts) -> None:
    name, _ = hosts.source()
    hosts.publish(4)
    newest = hosts.publish(5)
    node = hosts.cluster.add_node(num_cpus=1, object_store_memory=2**28)
    hosts.cluster.wait_for_nodes()
    engine = hosts.engine(name, node.node_id)
    local = get(engine.current.remote())
    assert (local.version, local.checksum) == (5, newest.checksum)
    assert get(engine.total.remote(local)) == expected_total(5)
    hosts.cluster.remove_node(node)


def test_before_anything_is_published_there_is_no_current_version(hosts: Hosts) -> None:
    engine = hosts.engine("nobody", hosts.node_ids[1])
    assert get(engine.current.remote()) is None


def test_a_source_that_dies_in_a_transfer_comes_back_and_the_transfer_ends_well(
    hosts: Hosts,
) -> None:
    name, _ = hosts.source(DyingSource)
    manifest = hosts.publish(6)
    engine = hosts.engine(name, hosts.node_ids[1])
    local = get(engine.bring.remote(manifest))
    assert (hosts.published / "died").exists()
    assert local.checksum == manifest.checksum
    assert get(engine.total.remote(local)) == expected_total(6)


def test_a_byte_that_changes_on_the_way_is_refused_by_name_and_leaves_nothing(
    hosts: Hosts,
) -> None:
    name, _ = hosts.source(FlippingSource)
    manifest = hosts.publish(7)
    engine = hosts.engine(name, hosts.node_ids[1])
    with pytest.raises(WeightSyncError, match=r"version 7\b.*checksum"):
        get(engine.bring.remote(manifest))
    left = {path.name for path in (hosts.folder / f"{name}-{hosts.node_ids[1]}").iterdir()}
    assert left == {".carrier.lock"}


def test_a_version_that_is_gone_is_refused_by_number(hosts: Hosts) -> None:
    name, _ = hosts.source()
    manifest = replace(hosts.publish(8), version=99, path="/gone/weights-99.safetensors")
    engine = hosts.engine(name, hosts.node_ids[1])
    with pytest.raises(WeightSyncError, match=r"version 99\b.*weights-99.*No such file"):
        get(engine.bring.remote(manifest))


def test_a_file_of_that_name_with_other_bytes_is_not_taken_for_the_version(hosts: Hosts) -> None:
    name, source = hosts.source()
    manifest = hosts.publish(9)
    folder = hosts.folder / f"{name}-{hosts.node_ids[1]}"
    publish_weights({"stale": torch.zeros(4)}, directory=folder, version=9)
    engine = hosts.engine(name, hosts.node_ids[1])
    assert get(engine.bring.remote(manifest)).checksum == manifest.checksum
    assert get(source.num_pieces_sent.remote()) == NUM_PIECES


def test_a_host_keeps_two_versions_and_a_spare_file(hosts: Hosts) -> None:
    name, _ = hosts.source()
    engine = hosts.engine(name, hosts.node_ids[1])
    for version in range(10, 14):
        get(engine.bring.remote(hosts.publish(version)))
    folder = hosts.folder / f"{name}-{hosts.node_ids[1]}"
    assert sorted(path.name for path in folder.iterdir()) == [
        ".carrier.lock",
        ".spare",
        "weights-12.json",
        "weights-12.safetensors",
        "weights-13.json",
        "weights-13.safetensors",
    ]
    assert json.loads((folder / "weights-13.json").read_text())["path"].startswith(str(folder))


def test_a_host_without_room_says_so_in_one_sentence(hosts: Hosts) -> None:
    name, _ = hosts.source()
    manifest = hosts.publish(14)
    engine = hosts.engine(name, hosts.node_ids[1])
    with pytest.raises(EnvironmentSetupError, match=r"weights-14\.safetensors.*space"):
        get(engine.bring_with_room.remote(manifest, PIECE_BYTES))


def test_a_source_that_is_silent_is_named_after_the_time_out(hosts: Hosts) -> None:
    name, _ = hosts.source()
    manifest = hosts.publish(15)
    engine = hosts.engine(name, hosts.node_ids[1], timeout_s=0.001)
    with pytest.raises(RemoteTimeout, match=rf"{name} .*0\.001 s"):
        get(engine.bring.remote(manifest))


def test_the_files_of_a_run_are_deleted_on_the_hosts(hosts: Hosts) -> None:
    folder = hosts.folder / "over"
    publish_weights({"w": torch.zeros(4)}, directory=folder, version=0)
    clear_hosts(str(folder), timeout_s=TIMEOUT_S)
    assert not folder.exists()


def test_without_a_source_a_missing_file_is_left_to_the_reader_to_name(tmp_path: Path) -> None:
    manifest = publish_weights({"w": torch.zeros(4)}, directory=tmp_path, version=0)
    carrier = WeightCarrier("", directory=str(tmp_path), timeout_s=TIMEOUT_S)
    assert carrier.current() == manifest
    Path(manifest.path).unlink()
    with pytest.raises(WeightSyncError, match=r"weights-0\.safetensors"):
        read_weights(carrier.bring(manifest))
