"""A learner's checkpoints: a directory with its state and the caller's, complete or absent.

    learner.json                   what must match on loading, number of updates, the caller's state
    weight-00001.safetensors, …    float32, under Hugging Face names
    exp_avg-…, exp_avg_sq-…        AdamW's moments, under the same names
    random_states-00000.safetensors, …   one per rank
    complete.json                  size and checksum of every file

Every rank calls the same function at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from deepspeed import comm

from cast_ray.errors import LearnerError
from cast_ray.files import read_json
from cast_ray.learner.settings import LearnerSettings
from cast_ray.learner.state import (
    num_updates,
    read_random_states,
    read_state,
    write_random_states,
    write_state,
)
from cast_ray.runs.directories import (
    check_whole,
    file_checksums,
    make_partial,
    partial_path,
    publish,
    save_refusals_named,
)
from cast_ray.runs.remote_directories import (
    forget,
    localized,
    scratch_directory,
    upload_share,
    withdraw,
    write_marker,
)
from cast_ray.runs.uris import PathOrUri, Uri

_STATE = "learner.json"


def save_checkpoint(
    engine: Any,
    model: torch.nn.Module,
    directory: PathOrUri,
    *,
    settings: LearnerSettings,
    client_state: Mapping[str, Any],
) -> None:
    """Write all that training needs to resume bit for bit, completely or not at all.

    Args:
        engine: DeepSpeed's; Any, because it annotates itself with what it is before its set-up.
        model: in the engine, under Hugging Face names.
        directory: on a file system that all ranks share, or a URI; an older checkpoint is
            replaced.
        settings: of the learner.
        client_state: what ``load_checkpoint`` returns; JSON values only.

    Raises:
        EnvironmentSetupError: it cannot be written.
        StorageError: the URI cannot be written; no checkpoint is there.
    """
    is_first = comm.get_rank() == 0
    state: dict[str, Any] = {}
    if is_first:
        state = {
            "written_by": _fingerprint(settings),
            "num_updates": num_updates(engine),
            "client_state": client_state,
        }
    if isinstance(directory, Uri):
        _save_at_uri(engine, model, directory, state)
        return
    partial = partial_path(directory)
    with save_refusals_named(directory):
        if is_first:
            make_partial(directory)
            (partial / _STATE).write_text(json.dumps(state, indent=1))
        comm.barrier()
        write_state(engine, model, partial)
        write_random_states(partial)
        comm.barrier()
        if is_first:
            publish(partial, directory)
        comm.barrier()


def _save_at_uri(engine: Any, model: torch.nn.Module, uri: Uri, state: Mapping[str, Any]) -> None:
    """Write a checkpoint on each rank's host and upload it; the marker comes last.

    ``state`` is that of rank 0.
    """
    is_first = comm.get_rank() == 0
    with scratch_directory() as own:
        with save_refusals_named(own):
            if is_first:
                (own / _STATE).write_text(json.dumps(state, indent=1))
            write_state(engine, model, own)
            write_random_states(own)
        if is_first:
            withdraw(uri)
        comm.barrier()  # before any file is replaced, the old checkpoint has lost its marker
        shares = _gathered(upload_share(own, uri), engine.device)
    if is_first:
        write_marker(uri, {name: file for share in shares for name, file in share.items()})
    comm.barrier()


def _gathered(share: dict[str, Any], device: torch.device) -> list[dict[str, Any]]:
    """Return the shares of all ranks, JSON values, on every rank.

    As tensors, because PyTorch unpickles the objects that ``all_gather_object`` receives.
    """
    text = json.dumps(share).encode()
    longest = torch.tensor(len(text), device=device)
    comm.all_reduce(longest, op=comm.ReduceOp.MAX)
    own = torch.frombuffer(bytearray(text.ljust(int(longest))), dtype=torch.uint8).to(device)
    texts = [torch.empty_like(own) for _ in range(comm.get_world_size())]
    comm.all_gather(texts, own)
    return [json.loads(bytes(text.tolist())) for text in texts]


def load_checkpoint(
    engine: Any, model: torch.nn.Module, directory: PathOrUri, *, settings: LearnerSettings
) -> dict[str, Any]:
    """Restore what ``save_checkpoint`` wrote; return the caller's part of it.

    The number of ranks and the ZeRO stage may differ from those of the learner that wrote it.

    Args:
        engine: as above, fresh or not.
        model: as above.
        directory: that was written; from a URI each host downloads its own copy.
        settings: of this learner.

    Raises:
        RunDirectoryError: the checkpoint is missing, incomplete or damaged.
        LearnerError: it is of another model, type, optimizer or kind of adapter.
    """
    copy = localized(directory)
    if comm.get_rank() == 0:
        check_whole(copy)
        written_by, here = _state(copy)["written_by"], _fingerprint(settings)
        if written_by != here:
            raise LearnerError(
                f"{directory} was written by a learner with {written_by} and this one has {here}: "
                "resume with the same settings"
            )
    comm.barrier()
    state = _state(copy)
    read_state(engine, model, copy, num_updates=state["num_updates"])
    read_random_states(copy, seed=settings.seed)
    if isinstance(directory, Uri):
        comm.barrier()  # another rank of this host may still be reading
        forget(copy)
    return state["client_state"]


def _state(directory: Path) -> dict[str, Any]:
    return read_json(directory / _STATE)


def _fingerprint(settings: LearnerSettings) -> dict[str, Any]:
    """Return the settings that a checkpoint and its learner must share; JSON values."""
    found: dict[str, Any] = {"dtype": settings.config.dtype, "optimizer": settings.optimizer}
    if settings.config.lora_rank:
        files = sorted(Path(settings.model_dir).glob("*.safetensors"))
        checksums = file_checksums(files)
        found |= {
            "lora_rank": settings.config.lora_rank,
            "lora_alpha": settings.config.lora_alpha,
            # Only the adapters are in the checkpoint, and they fit no other weights.
            "base": {path.name: crc32 for path, crc32 in zip(files, checksums, strict=True)},
        }
    return found
