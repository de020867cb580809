"""Where a pool's actors run: what is reserved for them, over the nodes, kept over restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@dataclass(frozen=True, slots=True)
class Places:
    """A placement group with a bundle for each of some actors."""

    group: PlacementGroup
    strategies: Sequence[PlacementGroupSchedulingStrategy]
    """The bundles, in order."""

    @classmethod
    def reserve(cls, name: str, *, count: int, num_cpus: float, num_gpus: float = 0.0) -> Places:
        """Ask for places on as many nodes as there are, and return at once; actors wait for theirs.

        Args:
            name: of the placement group.
            count: places, all of them given together.
            num_cpus, num_gpus: of each.
        """
        bundle = {"CPU": num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
        group = placement_group([bundle] * count, strategy="SPREAD", name=name)
        return cls(group, [PlacementGroupSchedulingStrategy(group, i) for i in range(count)])

    def give_back(self) -> None:
        """End the reservation; actors that still run there are ended by Ray."""
        remove_placement_group(self.group)
