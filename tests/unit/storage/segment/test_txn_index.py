"""`.txnindex`: aborted transactions, byte for byte."""

import pytest

from storage.segment.txn_index import AbortedTxn, TxnIndex
from tests.support.logs import DIRECTORY, disk
from tests.support.simulated_disk import SimulatedDisk

PATH = f"{DIRECTORY}/00000000000000000000.txnindex"


def index(*txns: AbortedTxn, files: SimulatedDisk | None = None) -> TxnIndex:
    made = TxnIndex(disk() if files is None else files, PATH, 0)
    for txn in txns:
        made.append(txn)
    return made


def test_golden_bytes() -> None:
    files = disk()
    index(AbortedTxn(1, 0, 29, 8), files=files)
    assert files.read_all(PATH).hex() == (
        "000000000000000000010000000000000000000000000000001d0000000000000008"
    )


def test_no_abort_no_file() -> None:
    files = disk()
    made = index(files=files)
    assert made.file is None
    assert made.count == 0
    assert list(made.read_from(0)) == []
    made.clear()
    made.close()
    assert not files.exists(PATH)
    assert made.find_damage() is None


def test_entries_are_read_from_the_first_that_ends_at_the_offset() -> None:
    txns = [AbortedTxn(1, 0, 10, 0), AbortedTxn(2, 5, 20, 15), AbortedTxn(1, 15, 30, 31)]
    made = index(*txns)
    assert list(made.read_from(0)) == txns
    assert list(made.read_from(20)) == txns[1:]
    assert list(made.read_from(31)) == []


@pytest.mark.parametrize("damage", [b"\0", b"\1" + bytes(33), bytes(34)])
def test_damage_is_found(damage: bytes) -> None:
    files = disk()
    made = index(AbortedTxn(1, 0, 10, 0), files=files)
    assert made.find_damage() is None
    files.open(PATH).append(damage)
    assert TxnIndex(files, PATH, 0).find_damage() is not None


def test_transaction_that_ends_before_it_begins_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        index().append(AbortedTxn(1, 5, 4, 0))
