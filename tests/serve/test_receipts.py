"""What becomes of an update is told by the receipts of all ranks, the worst of them first."""

from __future__ import annotations

from pathlib import Path

from serve.messages import WeightReceipt
from serve.weights.receipts import collect_receipts, write_receipt


def a_receipt(error: str = "", *, is_broken: bool = False, seconds_read: float = 1.0):
    return WeightReceipt(
        version=3,
        num_checks=0 if error else 7,
        worst_relative_error=0.0,
        seconds_read=seconds_read,
        seconds_load=0.0,
        seconds_check=0.0,
        error=error,
        is_changed=not error,
        is_broken=is_broken,
    )


def collected(folder: Path, *receipts: WeightReceipt) -> WeightReceipt:
    for rank, receipt in enumerate(receipts):
        write_receipt(receipt, folder / "receipt", rank=rank)
    return collect_receipts(folder / "receipt", num_ranks=len(receipts), version=3)


def test_the_rank_that_refused_is_named_and_not_one_that_heard_of_it(tmp_path: Path) -> None:
    found = collected(
        tmp_path, a_receipt("another worker refused", is_broken=True), a_receipt("not as sent")
    )
    assert found.error == "rank 1: not as sent"
    assert not found.is_broken
    assert not found.is_changed


def test_a_broadcast_that_broke_off_at_every_rank_may_be_tried_again(tmp_path: Path) -> None:
    broken = a_receipt("rank 2 did not come", is_broken=True)
    found = collected(tmp_path, broken, broken)
    assert found.error == "rank 0: rank 2 did not come"
    assert found.is_broken
    assert not found.is_changed


def test_a_rank_that_took_what_another_did_not_get_leaves_the_engine_changed(
    tmp_path: Path,
) -> None:
    found = collected(tmp_path, a_receipt(), a_receipt("a member is gone", is_broken=True))
    assert found.error == "rank 1: a member is gone"
    assert found.is_broken
    assert found.is_changed


def test_receipts_without_an_error_are_added_up(tmp_path: Path) -> None:
    found = collected(tmp_path, a_receipt(seconds_read=2.0), a_receipt())
    assert (found.error, found.is_broken, found.is_changed) == ("", False, True)
    assert (found.num_checks, found.seconds_read) == (14, 2.0)
    assert not list(tmp_path.iterdir())
