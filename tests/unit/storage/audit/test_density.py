"""The audit of density files finds what would lead a lookup astray, and nothing else."""

import pytest

from protocol.records.checksums import crc32c
from storage.audit.findings import Finding, Severity
from storage.audit.partition import PartitionAudit
from storage.segment.density import ENTRY, HEADER, MS_PER_MINUTE, SEAL
from tests.support.logs import LogHarness

MIN = MS_PER_MINUTE
VARIANTS = ("interval", "minute", "minute-map")
TIMES = tuple(minute * MIN for minute in (3, 1, 4, 1, 5, 9, 2, 6))
PATH = "/data/t-0/00000000000000000000.density"


def closed_log(variant: str) -> LogHarness:
    """A log of two segments, stopped cleanly; the first has a record per batch at `TIMES`."""
    log = LogHarness(time_index_variant=variant, index_interval_bytes=0)
    for time in TIMES:
        log.append(time)
    log.log.roll(log.now_ms)
    log.append(20 * MIN)
    log.log.close(log.now_ms)
    return log


def findings(log: LogHarness, *, stopped_cleanly: bool = True) -> list[Finding]:
    audit = PartitionAudit(log.path, log.files, stopped_cleanly=stopped_cleanly)
    audit.run()
    return audit.findings


def entries(log: LogHarness) -> list[tuple[int, int]]:
    content = log.files.read_all(PATH)
    body = content[HEADER.size : -SEAL.size]
    return [(time, offset) for time, offset in ENTRY.iter_unpack(body)]


def rewrite(log: LogHarness, changed: list[tuple[int, int]]) -> None:
    """Other entries, with all checksums right: what only a mistake in the engine could do."""
    content = log.files.read_all(PATH)
    front = content[: HEADER.size] + b"".join(ENTRY.pack(*entry) for entry in changed)
    magic, _, *covered, _, _ = SEAL.unpack(content[-SEAL.size :])
    seal = SEAL.pack(magic, len(changed), *covered, crc32c(front), 0)[:-4]
    log.files.replace_atomically(PATH, front + seal + crc32c(seal).to_bytes(4, "big"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_engine_wrote_is_right(variant: str) -> None:
    assert findings(closed_log(variant)) == []


def test_entries_are_those_of_the_drafts() -> None:
    assert entries(closed_log("interval")) == [
        (3 * MIN, 0), (4 * MIN, 2), (5 * MIN, 4), (9 * MIN, 5)
    ]  # fmt: skip
    assert entries(closed_log("minute")) == [
        (3 * MIN, 0), (4 * MIN, 2), (5 * MIN, 4), (9 * MIN, 5)
    ]  # fmt: skip
    assert entries(closed_log("minute-map")) == [
        (3 * MIN, 0), (1 * MIN, 1), (4 * MIN, 2), (5 * MIN, 4), (9 * MIN, 5), (2 * MIN, 6),
        (6 * MIN, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_entry_that_starts_too_late_is_found(variant: str) -> None:
    log = closed_log(variant)
    for slot, (time, offset) in enumerate(entries(log)):
        if time in (4 * MIN, 5 * MIN):
            changed = entries(log)
            changed[slot] = (time, offset + 1)
            rewrite(log, changed)
            (finding,) = findings(log)
            assert (finding.severity, finding.rule) == (Severity.ERROR, "D3")
            assert finding.position == HEADER.size + slot * ENTRY.size
            changed[slot] = (time, offset)
            rewrite(log, changed)
    assert findings(log) == []


@pytest.mark.parametrize("variant", ["interval", "minute"])
def test_missing_entry_is_no_fault_of_an_index(variant: str) -> None:
    log = closed_log(variant)
    rewrite(log, entries(log)[1:])
    assert findings(log) == []


def test_missing_minute_is_a_fault_of_a_map_if_it_could_decide() -> None:
    log = closed_log("minute-map")
    whole = entries(log)
    rewrite(log, [entry for entry in whole if entry[0] != 2 * MIN])
    assert findings(log) == []
    for minute in (3, 4, 5, 9):
        rewrite(log, [entry for entry in whole if entry[0] != minute * MIN])
        assert {finding.rule for finding in findings(log)} == {"D3"}


@pytest.mark.parametrize(
    ("variant", "slot", "entry", "words"),
    [
        ("interval", 1, (2 * MIN, 2), "not above"),
        ("interval", 2, (5 * MIN, 1), "comes after"),
        ("minute-map", 1, (MIN + 1, 1), "not the start of a minute"),
        ("minute-map", 1, (3 * MIN, 1), "twice"),
    ],
)
def test_disorder_is_found(variant: str, slot: int, entry: tuple[int, int], words: str) -> None:
    log = closed_log(variant)
    changed = entries(log)
    changed[slot] = entry
    rewrite(log, changed)
    assert any(words in finding.found for finding in findings(log))


def test_every_flipped_bit_is_found() -> None:
    log = closed_log("minute-map")
    good = log.files.read_all(PATH)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1
        log.files.replace_atomically(PATH, bytes(bad))
        found = findings(log)
        assert {finding.rule for finding in found} == {"D3"}, position
        unsealed = bad[-SEAL.size :][:4] != b"TLDS"
        assert found[0].severity is (Severity.WARNING if unsealed else Severity.ERROR)


@pytest.mark.parametrize("size", [0, 5, HEADER.size - 1])
def test_file_too_short_for_a_header_is_found(size: int) -> None:
    log = closed_log("interval")
    log.files.replace_atomically(PATH, log.files.read_all(PATH)[:size])
    (finding,) = findings(log)
    assert (finding.severity, finding.position) == (Severity.ERROR, 0)


def test_file_that_will_not_be_trusted_is_a_warning() -> None:
    log = closed_log("interval")
    log.files.replace_atomically(PATH, log.files.read_all(PATH)[: -SEAL.size])
    (finding,) = findings(log)
    assert (finding.severity, finding.found) == (Severity.WARNING, "no seal")


def test_damage_after_a_crash_is_a_warning_because_the_start_removes_it() -> None:
    log = closed_log("interval")
    log.files.replace_atomically(PATH, b"torn")
    assert [f.severity for f in findings(log, stopped_cleanly=False)] == [Severity.WARNING]


def test_density_file_without_a_log_is_found() -> None:
    log = closed_log("interval")
    log.files.create("/data/t-0/00000000000000000099.density").append(b"x")
    (finding,) = findings(log)
    assert (finding.rule, finding.expected) == ("D8", "a .log of the same base")
