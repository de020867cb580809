"""Receipts of weight updates, and an engine's place in a broadcast; importable without vLLM.

Each worker of an engine reports an update's outcome in a small JSON file, because vLLM's interface
carries neither results nor exception types. A rank without a receipt has not taken part, and the
update has failed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cast_ray.weights.broadcast import GIVE_UP_SHARE
from cast_ray.weights.group import Meeting
from serve.messages import WeightReceipt


def write_receipt(receipt: WeightReceipt, path: str | Path, *, rank: int) -> None:
    """Write the receipt of one rank, atomically."""
    place = _place(path, rank)
    aside = place.with_name(f"{place.name}.partial")
    aside.write_text(json.dumps(asdict(receipt)))
    os.replace(aside, place)


def collect_receipts(path: str | Path, *, num_ranks: int, version: int) -> WeightReceipt:
    """Read and delete the receipts of all ranks; return the worst of each value.

    Its ``error`` is that of the lowest rank that has one; errors that only report an interrupted
    broadcast come last. A rank whose receipt is missing, or of another version, counts as changed:
    what it holds is unknown.
    """
    receipts = [_read(_place(path, rank), rank, version) for rank in range(num_ranks)]
    worst = max(receipts, key=lambda r: (bool(r.error), not r.is_broken, r.worst_relative_error))
    return replace(
        worst,
        num_checks=sum(receipt.num_checks for receipt in receipts),
        num_moved=sum(receipt.num_moved for receipt in receipts),
        seconds_read=max(receipt.seconds_read for receipt in receipts),
        seconds_load=max(receipt.seconds_load for receipt in receipts),
        seconds_check=max(receipt.seconds_check for receipt in receipts),
        error=_first_error(receipts),
        is_changed=any(receipt.is_changed for receipt in receipts),
        is_broken=worst.is_broken,
    )


def discard_receipts(path: Path) -> None:
    """Delete the receipts that an abandoned update left behind."""
    for place in path.parent.glob(f"{path.name}.*"):
        place.unlink(missing_ok=True)


def _read(place: Path, rank: int, version: int) -> WeightReceipt:
    try:
        receipt = WeightReceipt(**json.loads(place.read_text()))
    except FileNotFoundError:
        return _unknown(version, f"rank {rank} of the engine wrote no receipt of version {version}")
    place.unlink()
    if receipt.version != version:
        return _unknown(
            version, f"rank {rank} of the engine loaded version {receipt.version}, not {version}"
        )
    return receipt


def _unknown(version: int, error: str) -> WeightReceipt:
    return WeightReceipt(version=version, error=f"{error}; restart the engine", is_changed=True)


def _first_error(receipts: Sequence[WeightReceipt]) -> str:
    """Return the first error, with its rank if there are several; empty if none failed."""
    failed = [(rank, receipt) for rank, receipt in enumerate(receipts) if receipt.error]
    for rank, receipt in sorted(failed, key=lambda pair: pair[1].is_broken):
        return receipt.error if len(receipts) == 1 else f"rank {rank}: {receipt.error}"
    return ""


def _place(path: str | Path, rank: int) -> Path:
    return Path(f"{path}.{rank}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRoute:
    """An engine's place in a broadcast."""

    meeting: Meeting
    first_rank: int
    """Of the engine's first worker; the others follow."""

    def update_fields(self, timeout_s: float) -> dict[str, Any]:
        """Return the fields of ``BroadcastUpdate`` other than manifest and receipt.

        Args:
            timeout_s: of the complete update; the workers stop waiting before that.
        """
        return {
            "meeting": asdict(self.meeting),
            "first_rank": self.first_rank,
            "timeout_s": timeout_s * GIVE_UP_SHARE,
        }
