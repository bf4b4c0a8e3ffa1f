"""The fuzzing of all readers with few inputs, and a proof that it would find faults."""

import time

import pytest

from protocol.records.checksums import crc32c
from storage.segment import time_counts
from storage.segment.auxiliary_index import DamagedAuxiliaryIndex
from tests.fuzz.decoders import NUMBERS, machines
from tests.fuzz.driving import CPU_MS_MAX, Machine, Target, drive

INPUTS = 300


@pytest.mark.slow
def test_malformed_bytes_are_refused_or_read() -> None:
    known = machines()
    assert len(known) > 30
    for name, machine in known.items():
        tally = drive(machine, INPUTS, 1)
        assert tally.findings == [], name
        assert tally.refused + tally.accepted + tally.asked_for_more == INPUTS


def test_faults_would_be_found() -> None:
    def findings(target: Target) -> list[str]:
        machine = Machine(target=target, seeds=(b"good",), refusals=(ValueError,), pieces=NUMBERS)
        return drive(machine, 60, 1).findings

    assert any("IndexError" in finding for finding in findings(lambda message: message[3]))
    slow = findings(lambda message: burn(2 * CPU_MS_MAX) if len(message) > 200 else None)
    assert slow != []
    assert all(finding.endswith(" ms") for finding in slow)


def burn(milliseconds: float) -> None:
    """Compute for so long, by the clock of the thread's CPU."""
    until_s = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until_s:
        pass


@pytest.mark.parametrize("size", range(time_counts.HEADER.size + 8))
def test_a_file_of_counts_that_is_cut_is_damaged(size: int) -> None:
    """Found by fuzzing: a few bytes less than a header, with the right checksum."""
    content = time_counts.MAGIC + bytes(100)
    data = content[:size] + crc32c(content[:size]).to_bytes(4, "big")
    with pytest.raises(DamagedAuxiliaryIndex):
        time_counts.parse_counts(data)
