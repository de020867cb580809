"""The engine's end of a broadcast: as ``weight_receiver``, but the tensors come from the learner.

Nothing of the engine is touched before all of them have arrived and are proved, here and at every
other worker of the update. An update without an address is one from the file: so an engine that
was started again catches up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cast_ray.weight_broadcast import receive_tensors
from cast_ray.weight_group import BroadcastGroup, Meeting, join
from cast_ray.weights import WeightManifest
from serve.weight_receiver import FileUpdate, WeightReceiver


@dataclass
class BroadcastUpdate(FileUpdate):
    """One published version, and where the learner sends it; the fields of a ``Meeting``."""

    address: str = ""
    """Empty = read the file."""
    port: int = 0
    token: str = ""
    world_size: int = 0
    device: str = ""
    bucket_bytes: int = 0
    first_rank: int = 0
    """Of this engine's workers in the broadcast; the others follow."""
    timeout_s: float = 0.0
    """From the worker's start until all tensors are proved."""

    @property
    def meeting(self) -> Meeting:
        """Where the tensors are received."""
        return Meeting(
            address=self.address,
            port=self.port,
            token=self.token,
            world_size=self.world_size,
            device=self.device,
            bucket_bytes=self.bucket_bytes,
        )


class BroadcastReceiver(WeightReceiver):
    """Receives a version from the learner's rank 0, together with all other workers."""

    update_info_cls = BroadcastUpdate

    def acquire(
        self, manifest: WeightManifest, update_info: BroadcastUpdate
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a version, as they were sent, on the worker's device.

        Raises:
            TransferBroken: a member of the broadcast is away, or late.
            WeightSyncError: what arrived is not what was sent, or, of a file, published.
        """
        if not update_info.address:
            return super().acquire(manifest, update_info)
        with self.join(update_info) as group:
            return receive_tensors(
                group,
                manifest.tensors,
                bucket_bytes=update_info.bucket_bytes,
                version=manifest.version,
            )

    def join(self, update_info: BroadcastUpdate) -> BroadcastGroup:
        """Meet the sender and the other workers."""
        return join(
            update_info.meeting,
            rank=update_info.first_rank + self.parallel_config.rank,
            device=self.device,
            timeout_s=update_info.timeout_s,
        )
