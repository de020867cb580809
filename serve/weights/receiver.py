"""The engine's end of a weight update: backends of vLLM's weight transfer that verify everything.

They run inside vLLM's worker process, where the entry point ``register`` announces them. Both get
the tensors of a version, verify the bytes, load them layer by layer, and then compare what every
layer in use holds (``serve.weights.check``). The outcome goes to the caller as a receipt. With
tensor parallelism each worker does this for its own share.

``WeightReceiver`` reads a published file. ``BroadcastReceiver`` receives the tensors from the
learner, and touches nothing of the engine before all have arrived and are verified, here and at
every other worker of the update.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import VllmConfig, WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from cast_ray.errors import TransferBroken, WeightSyncError
from cast_ray.weights.broadcast import receive_tensors
from cast_ray.weights.device import on_device
from cast_ray.weights.group import BroadcastGroup, Meeting, join
from cast_ray.weights.manifest import WeightManifest, read_weights
from serve.messages import BROADCAST_BACKEND, FILE_BACKEND, WeightReceipt
from serve.orphans import kill_with_parent
from serve.weights.check import LayerCheck, check_layers
from serve.weights.receipts import write_receipt

logger = logging.getLogger(__name__)


@dataclass
class FileInit(WeightTransferInitInfo):
    """Empty: every update names its file."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """One published version."""

    manifest: str
    """``WeightManifest`` as JSON."""
    receipt_path: str
    """Where receipts are written, one path per engine and update; each rank adds its number."""


class WeightReceiver(WeightTransferEngine[FileInit, FileUpdate]):
    """Loads a published file; one update is one file.

    A subclass gets the tensors in another way by overriding ``acquire``. ``load`` and
    ``pack_tied_head`` are separate steps so that tests can break one of them.
    """

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def __init__(
        self,
        config: WeightTransferConfig,
        vllm_config: VllmConfig,
        device: torch.device,
        model: torch.nn.Module,
    ) -> None:
        super().__init__(config, vllm_config, device, model)
        parallel = self.parallel_config
        if parallel.world_size != parallel.tensor_parallel_size:
            raise WeightSyncError(
                f"the weight backend {config.backend} supports only tensor parallelism, got "
                f"{parallel.world_size} workers and tensor_parallel_size="
                f"{parallel.tensor_parallel_size}; start more engines instead"
            )

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Do nothing: there is no lasting connection."""

    def start_weight_update(self) -> None:
        """Do nothing: the layers are opened only after the tensors were verified."""

    def update_weights(self, update_info: dict[str, Any]) -> None:  # Any: vLLM's signature
        """Load one version and write the receipt; the base class would wait for an accelerator."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Acquire, load and check one version; errors go into the receipt.

        Nothing is raised: vLLM asks all workers and stops listening at the first failure. The
        answers of the others would then be taken for those of its next call.
        """
        manifest = WeightManifest.from_json(update_info.manifest)
        started = read = loaded = time.perf_counter()
        is_changed = is_broken = False
        moved: list[str] = []
        checks: list[LayerCheck] = []
        error = ""
        try:
            tensors = self.acquire(manifest, update_info)
            read = loaded = time.perf_counter()
            is_changed = True
            before = _addresses(self.model)
            initialize_layerwise_reload(self.model)
            self.load(tensors)
            finalize_layerwise_reload(self.model, self.model_config)
            self.pack_tied_head()
            moved = [name for name, at in _addresses(self.model).items() if at != before[name]]
            loaded = time.perf_counter()
            checks = check_layers(self.model, tensors)
            _raise_if_wrong(checks, manifest)
            self.raise_if_moved(moved)
        except WeightSyncError as failure:
            error, is_broken = str(failure), isinstance(failure, TransferBroken)
        except Exception as failure:  # a model's loader may raise anything
            error = f"the engine cannot load version {manifest.version}: {failure!r}"
            logger.exception("weights of version %d were not loaded", manifest.version)
        worst = max(checks, key=lambda check: check.severity, default=None)
        receipt = WeightReceipt(
            version=manifest.version,
            num_checks=len(checks),
            num_moved=len(moved),
            worst_relative_error=worst.relative_error if worst else 0.0,
            seconds_read=read - started,
            seconds_load=loaded - read,
            seconds_check=time.perf_counter() - loaded,
            error=error,
            is_changed=is_changed,
            is_broken=is_broken,
        )
        write_receipt(receipt, update_info.receipt_path, rank=self.parallel_config.rank)

    def acquire(
        self,
        manifest: WeightManifest,
        update_info: Any,  # Any: a FileUpdate, or a subclass's own type
    ) -> dict[str, torch.Tensor]:
        """Return the verified tensors of a version on the worker's device; the model is untouched.

        Raises:
            WeightSyncError: they are not what was published.
        """
        return on_device(read_weights(manifest), manifest.tensors, self.device)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Pass the tensors to the model, which packs each layer once it is complete."""
        model: Any = self.model  # Any: vLLM's models add methods to a module's
        model.load_weights(iter(tensors.items()))

    def pack_tied_head(self) -> None:
        """Repack the output head if it shares the embedding.

        The layer-wise reload sees the shared parameter only as the embedding's: on CPU the head
        would continue to compute with the copy packed at the start.
        """
        if self.model_config.hf_config.tie_word_embeddings:
            model: Any = self.model
            head = model.lm_head
            head.tie_weights(model.model.embed_tokens)
            head.quant_method.process_weights_after_loading(head)

    def raise_if_moved(self, moved: list[str]) -> None:
        """Refuse an update after which captured CUDA graphs would read the old memory.

        Args:
            moved: parameters whose address is another one now.

        Raises:
            WeightSyncError: there are some, and graphs that were captured before.
        """
        if moved and not self.model_config.enforce_eager and self.device.type == "cuda":
            raise WeightSyncError(
                f"{moved[0]} and {len(moved) - 1} other parameters lie elsewhere since the update, "
                f"and the captured CUDA graphs still read the old memory: set "
                f"engine.vllm.enforce_eager=true"
            )

    def finish_weight_update(self) -> None:
        """Do nothing: an update that returned is complete."""

    def shutdown(self) -> None:
        """Do nothing: no connection, no thread, no open file."""


def _addresses(model: torch.nn.Module) -> dict[str, int]:
    return {name: parameter.data_ptr() for name, parameter in model.named_parameters()}


def _raise_if_wrong(checks: list[LayerCheck], manifest: WeightManifest) -> None:
    wrong = [check for check in checks if not check.is_right]
    if wrong:
        found = "; ".join(
            f"{check.name} has relative error {check.relative_error:.3g}, allowed "
            f"{check.allowed_error:.3g}"
            for check in wrong[:3]
        )
        raise WeightSyncError(
            f"the engine does not compute with the weights of version {manifest.version}: "
            f"{found} ({len(wrong)} of {len(checks)} tensors wrong); load them again or restart "
            f"the engine"
        )


def register() -> None:
    """Prepare a process of vLLM; vLLM calls this in each of its processes."""
    WeightTransferEngineFactory.register_engine(FILE_BACKEND, WeightReceiver)
    WeightTransferEngineFactory.register_engine(
        BROADCAST_BACKEND, "serve.weights.receiver", "BroadcastReceiver"
    )
    kill_with_parent()
    # vLLM's attention uses AMX if the CPU has it, and the kernel allows it only to processes that
    # asked. Without this the engine dies of an illegal instruction, unless some matrix product
    # happened to ask before.
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()


@dataclass
class BroadcastUpdate(FileUpdate):
    """One published version, and where the learner sends it."""

    meeting: dict[str, Any] | None = None
    """The fields of a ``Meeting``; None = read the file."""
    first_rank: int = 0
    """Of this engine's first worker in the broadcast; the others follow."""
    timeout_s: float = 0.0
    """From the worker's start until all tensors are verified."""


class BroadcastReceiver(WeightReceiver):
    """Receives a version from the learner's rank 0, together with all other workers.

    An update without a meeting reads the file: that is how a restarted engine catches up.
    """

    update_info_cls = BroadcastUpdate

    def acquire(
        self, manifest: WeightManifest, update_info: BroadcastUpdate
    ) -> dict[str, torch.Tensor]:
        """Return the verified tensors of a version, on the worker's device.

        Raises:
            TransferBroken: a member of the broadcast is missing or late.
            WeightSyncError: what arrived is not what was sent or published.
        """
        if update_info.meeting is None:
            return super().acquire(manifest, update_info)
        meeting = Meeting(**update_info.meeting)
        with self.join(meeting, update_info) as group:
            tensors = receive_tensors(
                group,
                manifest.tensors,
                bucket_bytes=meeting.bucket_bytes,
                version=manifest.version,
            )
        return on_device(tensors, manifest.tensors, self.device)

    def join(self, meeting: Meeting, update_info: BroadcastUpdate) -> BroadcastGroup:
        """Meet the sender and the other workers."""
        return join(
            meeting,
            rank=update_info.first_rank + self.parallel_config.rank,
            timeout_s=update_info.timeout_s,
        )
