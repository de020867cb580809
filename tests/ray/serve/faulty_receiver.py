"""A weight-transfer backend that does one thing wrong: what the engine tests register beside ours.

Which thing is read from the file named by ``FAULT_FILE`` at each update, so that one engine can
show every fault. The check is inherited and sees the tensors as they were sent.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from cast_ray.weights.group import BroadcastGroup, Meeting
from serve.weights.receiver import BroadcastReceiver, BroadcastUpdate, FileUpdate, WeightReceiver

BACKEND = "faulty_file"
BROADCAST_BACKEND = "faulty_broadcast"
NO_FAULT = {"kind": "none"}


class FaultyReceiver(WeightReceiver):
    """Leaves the head or a rank behind, loads other values than were sent, or takes its time."""

    def receive_weights(self, update_info: FileUpdate) -> None:
        self._old_head = self.model.get_parameter("lm_head.weight").detach().clone()
        if self._fault()["kind"] != "silent":
            super().receive_weights(update_info)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        while (fault := self._fault())["kind"] == "hold":
            time.sleep(0.05)  # for as long as the test wants an update to last
        if fault["kind"] == "left behind":
            return
        if fault["kind"] == "crash":
            raise KeyError("a name that the model does not know")
        if fault["kind"] == "nudge":
            sent = tensors[fault["name"]]
            nudged = sent.float()
            rows = slice(None) if fault["num_rows"] is None else slice(fault["num_rows"])
            # What one AdamW update does: every weight moves by the learning rate, up or down.
            generator = torch.Generator().manual_seed(0)
            signs = torch.randint(0, 2, nudged[rows].shape, generator=generator) * 2.0 - 1.0
            nudged[rows] += fault["learning_rate"] * signs
            tensors = {**tensors, fault["name"]: nudged.to(sent.dtype)}
        super().load(tensors)

    def pack_tied_head(self) -> None:
        if self._fault()["kind"] != "head left behind":
            super().pack_tied_head()
            return
        # Said outright: where oneDNN packs no copy, a head that is not packed again is right.
        model: Any = self.model
        old = self._old_head
        model.lm_head.cpu_linear = lambda x, weight, bias: linear(x, old, bias)

    def _fault(self) -> dict[str, object]:
        """What is wrong now; a fault with a rank is of that rank alone."""
        fault = json.loads(Path(os.environ["FAULT_FILE"]).read_text())
        rank = self.parallel_config.rank
        return fault if fault.get("rank", rank) == rank else NO_FAULT


class FaultyBroadcast(FaultyReceiver, BroadcastReceiver):
    """Flips a bit of what comes, or holds after the first bucket; a fault with a ``member`` is of
    that member of the broadcast alone."""

    def join(self, meeting: Meeting, update_info: BroadcastUpdate) -> BroadcastGroup:
        group = super().join(meeting, update_info)
        fault = self._fault()
        member = update_info.first_rank + self.parallel_config.rank
        if fault.get("member", member) == member:
            broadcast = group.broadcast

            def meddled(buffer: torch.Tensor, what: str) -> None:
                broadcast(buffer, what)
                if what == "bucket 0" and fault["kind"] == "flip":
                    buffer[len(buffer) // 2] ^= 1
                while what == "bucket 0" and self._fault()["kind"] == "hold bucket":
                    time.sleep(0.05)  # for as long as the test wants it

            group.broadcast = meddled
        return group


def register() -> None:
    """Announce the backends; the entry point lies in a folder that the test makes."""
    WeightTransferEngineFactory.register_engine(BACKEND, FaultyReceiver)
    WeightTransferEngineFactory.register_engine(BROADCAST_BACKEND, FaultyBroadcast)
