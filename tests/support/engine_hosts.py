"""Stand-ins for what is on the hosts of a cluster, in a module that Ray's workers can import."""

from __future__ import annotations

import os
from typing import Any

from cast_ray.weights.manifest import WeightManifest, read_weights
from serve.weights.carrier import WeightCarrier, WeightSource
from tests.support.full_disk import full_disk


class EngineHost:
    """Stands for an engine's replica: a process on one host that wants weights."""

    def __init__(self, source: str, directory: str, timeout_s: float) -> None:
        self._carrier = WeightCarrier(source, directory=directory, timeout_s=timeout_s)

    def bring(self, manifest: WeightManifest) -> WeightManifest:
        return self._carrier.bring(manifest)

    def bring_with_room(self, manifest: WeightManifest, room_bytes: int) -> WeightManifest:
        with full_disk(room_bytes):
            return self._carrier.bring(manifest)

    def current(self) -> WeightManifest | None:
        return self._carrier.current()

    def total(self, manifest: WeightManifest) -> float:
        return sum(tensor.double().sum().item() for tensor in read_weights(manifest).values())


class CountingSource(WeightSource):
    """Counts the pieces that were requested."""

    num_pieces = 0

    def piece(self, version: int, begin: int, size: int) -> Any:
        self.num_pieces += 1
        return super().piece(version, begin, size)

    def num_pieces_sent(self) -> int:
        return self.num_pieces


class FlippingSource(WeightSource):
    """Sends one byte wrong."""

    def piece(self, version: int, begin: int, size: int) -> Any:
        piece = super().piece(version, begin, size).copy()
        if begin == size:
            piece[12345] ^= 1
        return piece


class DyingSource(WeightSource):
    """Its process ends once, in the middle of a transfer."""

    def piece(self, version: int, begin: int, size: int) -> Any:
        mark = self._directory / "died"
        if begin == 2 * size and not mark.exists():
            mark.touch()
            os._exit(1)
        return super().piece(version, begin, size)
