"""The presets for GPUs on nodes with logical GPUs: what Ray places where."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cast_ray.cluster.placement import bundle_of
from cast_ray.config.load import load_config
from cast_ray.config.train import TrainConfig
from cast_ray.training.workers import reserve_learner

pytestmark = pytest.mark.ray
STORE_BYTES = 100 * 2**20


@ray.remote
class Placed:
    """Says where it is."""

    def where(self) -> tuple[str, str]:
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", "")


def gpus_of(group: PlacementGroup, bundle: int, num_cpus: float, num_gpus: float) -> Any:
    strategy = PlacementGroupSchedulingStrategy(group, bundle)
    options = Placed.options(num_cpus=num_cpus, num_gpus=num_gpus, scheduling_strategy=strategy)
    return options.remote()


def places_of(config: TrainConfig) -> dict[str, list[tuple[str, str]]]:
    """Place ranks and engines as a run does, in its order; return their nodes and GPUs."""
    resources = config.resources
    ranks = reserve_learner(config)
    shape = (resources.cpus_per_learner_rank, resources.gpus_per_learner_rank)
    actors = [gpus_of(ranks, rank, *shape) for rank in range(resources.learner_ranks)]
    shape = (resources.cpus_per_engine, resources.gpus_per_engine)
    groups = [placement_group([dict(bundle_of(*shape))]) for _ in range(resources.engines)]
    actors += [gpus_of(group, 0, *shape) for group in groups]
    found = ray.get([actor.where.remote() for actor in actors], timeout=300)
    return {"ranks": found[: resources.learner_ranks], "engines": found[resources.learner_ranks :]}


SHARED = ("share_gpu=true", "gpus_per_engine=0.4", "gpus_per_learner_rank=0.6")


def by_gpu_on(config: TrainConfig, *, nodes: int, gpus: int) -> dict[tuple[str, str], list[str]]:
    """Return the parts on each GPU of a cluster of logical GPUs, and print them."""
    cluster = Cluster()
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=64, num_gpus=gpus, object_store_memory=STORE_BYTES)
        ray.init(address=cluster.address)
        found = places_of(config)
    finally:
        ray.shutdown()
        cluster.shutdown()
    ids = dict.fromkeys(node for node, _ in found["ranks"] + found["engines"])
    names = {node: f"node {number}" for number, node in enumerate(ids)}
    by_gpu: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, places in found.items():
        for number, (node, visible) in enumerate(places):
            by_gpu[names[node], visible].append(f"{kind} {number}")
    for (node, gpu), parts in sorted(by_gpu.items()):
        print(f"{config.resources.preset}: {node}, GPU {gpu}: {', '.join(parts)}")
    assert len({node for node, _ in found["ranks"]}) == 1  # near each other
    return by_gpu


@pytest.mark.parametrize(
    ("preset", "nodes", "gpus"),
    [("one_gpu", 1, 1), ("one_node_8_gpus", 1, 8), ("two_nodes_8_gpus", 2, 8)],
)
def test_every_part_of_a_preset_has_its_gpu(preset: str, nodes: int, gpus: int) -> None:
    config = load_config(None, [f"resources.preset={preset}"])
    by_gpu = by_gpu_on(config, nodes=nodes, gpus=gpus)
    assert len(by_gpu) == nodes * gpus
    if config.resources.share_gpu:
        assert list(by_gpu.values()) == [["ranks 0", "engines 0"]]
    else:
        assert all(len(parts) == 1 for parts in by_gpu.values())


@pytest.mark.parametrize("ranks", [4, 8])
def test_each_rank_shares_its_gpu_with_one_engine(ranks: int) -> None:
    """Also where GPUs are left over: Ray fills a GPU that is in use before it begins another."""
    numbers = (*SHARED, f"engines={ranks}", f"learner_ranks={ranks}")
    config = load_config(None, [f"resources.{number}" for number in numbers])
    by_gpu = by_gpu_on(config, nodes=1, gpus=8)
    assert len(by_gpu) == ranks
    kinds = [sorted(part.split()[0] for part in parts) for parts in by_gpu.values()]
    assert kinds == [["engines", "ranks"]] * ranks
