"""The metadata journal: changes are durable, torn tails are cut, damage refuses the start."""

import errno

import pytest

from storage.directory import metadata
from storage.directory.metadata import KIND_TOPIC, TopicMetadata, format_topic
from storage.directory.metadata_journal import JOURNAL_FILE, MetadataJournal, read_topics
from storage.errors import DiskFull, ForeignDataDir, HalfWrittenDataDir, StorageFailed
from tests.support.power_loss import Survival
from tests.support.simulated_disk import Fault, Operation, SimulatedDisk

PATH = f"/d/{JOURNAL_FILE}"
FLIGHTS = TopicMetadata(
    name="flights", topic_id=bytes(range(16)), partitions=4, overrides={"retention.ms": "5"}
)
OTHER = TopicMetadata(name="other", topic_id=b"x" * 16, partitions=1)
HEADER = b'e2a22601 {"kind":"journal","key":"format","value":{"version":1}}\n'
FLIGHTS_LINE = (
    b'baa5149a {"kind":"topic","key":"flights","value":'
    b'{"id":"AAECAwQFBgcICQoLDA0ODw","partitions":4,"overrides":{"retention.ms":"5"}}}\n'
)


def new_disk(content: bytes | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    if content is not None:
        disk.replace_atomically(PATH, content)
    return disk


def reopened(disk: SimulatedDisk, survival: Survival = Survival.LOST) -> MetadataJournal:
    return MetadataJournal("/d", disk.power_cut(0, survival))


def test_file_bytes_are_lines_of_checksum_and_document() -> None:
    disk = new_disk()
    MetadataJournal("/d", disk).put_topic(FLIGHTS)
    assert disk.read_all(PATH) == HEADER + FLIGHTS_LINE


def test_changes_are_durable_when_the_method_returns() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    journal.put_topic(FLIGHTS)
    journal.put_topic(OTHER)
    journal.set_broker_overrides({"log.retention.ms": "7"})
    journal.allocate_producer_ids(1000)
    found = reopened(disk)
    assert found.topics() == {"flights": FLIGHTS, "other": OTHER}
    assert found.broker_overrides == {"log.retention.ms": "7"}
    assert found.next_producer_id == 1000


def test_topics_of_one_line_are_read_from_the_content_too() -> None:
    """As `tidelog restore` writes them; fsck reads the file before the first start."""
    disk = new_disk()
    both = {topic.name: format_topic(topic) for topic in (FLIGHTS, OTHER)}
    MetadataJournal("/d", disk).put_all(KIND_TOPIC, both)
    assert read_topics(disk.read_all(PATH)) == {"flights": FLIGHTS, "other": OTHER}


def test_new_journal_knows_nothing() -> None:
    journal = MetadataJournal("/d", new_disk())
    assert journal.is_new
    assert journal.topics() == {}
    assert journal.broker_overrides == {}
    assert journal.next_producer_id == 0
    journal.close()


def test_removed_topic_stays_removed() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    journal.put_topic(FLIGHTS)
    journal.remove_topic("flights")
    assert journal.topics() == {}
    assert reopened(disk).topics() == {}


def test_deleted_topic_is_known_until_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    journal.put_topic(FLIGHTS)
    journal.put_topic(OTHER)
    journal.mark_deleted(FLIGHTS)
    for found in (journal, reopened(disk)):
        assert (found.topics(), found.deleted_topics()) == ({"other": OTHER}, [FLIGHTS])
        with monkeypatch.context() as patched:
            # A topic is looked up for each one created: among 10,000, none may be parsed.
            patched.delattr(metadata, "parse_topic")
            assert found.is_topic_deleted("flights")
            assert not found.is_topic_deleted("other")
            assert not found.is_topic_deleted("unknown")
    journal.remove_topic("flights")
    assert not journal.is_topic_deleted("flights")


def test_producer_ids_are_never_given_twice() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    assert journal.allocate_producer_ids(10) == range(10)
    assert reopened(disk).allocate_producer_ids(5) == range(10, 15)


@pytest.mark.parametrize("size", range(len(FLIGHTS_LINE)))
def test_torn_last_line_is_cut(size: int) -> None:
    disk = new_disk(HEADER + FLIGHTS_LINE[:size])
    journal = MetadataJournal("/d", disk)
    assert journal.topics() == {}
    assert journal.bytes_cut == size
    journal.put_topic(OTHER)
    assert list(reopened(disk).topics()) == ["other"]


@pytest.mark.parametrize(
    "tail", [b"\0" * 700, b"\n\n", b"\r\n{}", b"00000000 {}\n", b"00000000 \n"]
)
def test_garbage_at_the_end_is_cut(tail: bytes) -> None:
    journal = MetadataJournal("/d", new_disk(HEADER + FLIGHTS_LINE + tail))
    assert list(journal.topics()) == ["flights"]


def test_bad_line_before_a_good_one_refuses_the_start() -> None:
    damaged = HEADER + FLIGHTS_LINE.replace(b"flights", b"fl1ghts") + FLIGHTS_LINE
    disk = new_disk(damaged)
    with pytest.raises(HalfWrittenDataDir, match=r"damaged in its middle.*bad line at byte 65"):
        MetadataJournal("/d", disk)
    assert disk.read_all(PATH) == damaged


@pytest.mark.parametrize("content", [b"", b"hello\n", FLIGHTS_LINE, HEADER[:20]])
def test_file_without_its_first_line_refuses_the_start(content: bytes) -> None:
    with pytest.raises(HalfWrittenDataDir, match="does not begin with its format"):
        MetadataJournal("/d", new_disk(content))


def test_newer_format_refuses_the_start() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    journal.put("journal", "format", {"version": 3})
    with pytest.raises(ForeignDataDir, match="version 3, expected 1 or 2"):
        reopened(disk)


@pytest.mark.parametrize(
    ("kind", "key", "document"),
    [
        ("topic", "t", {"id": "short", "partitions": 1, "overrides": {}}),
        ("topic", "t", {"partitions": 1}),
        ("topic", "t", {"id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 1, "overrides": {"a": 1}}),
        ("producer-ids", "", -1),
        ("broker-overrides", "", []),
    ],
)
def test_impossible_document_refuses_the_start(kind: str, key: str, document: object) -> None:
    disk = new_disk()
    MetadataJournal("/d", disk).put(kind, key, document)  # type: ignore[arg-type]
    with pytest.raises(HalfWrittenDataDir, match="impossible"):
        reopened(disk)


def test_documents_of_unknown_kinds_are_kept() -> None:
    disk = new_disk()
    MetadataJournal("/d", disk).put("quota", "alice", {"rate": 1})
    second = disk.power_cut(0, Survival.LOST)
    MetadataJournal("/d", second).close()
    assert b'"quota"' in second.read_all(PATH)


def test_open_rewrites_without_what_is_superseded() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    for _ in range(50):
        journal.put_topic(FLIGHTS)
    journal.put_topic(OTHER)
    journal.remove_topic("other")
    MetadataJournal("/d", disk)
    assert disk.read_all(PATH) == HEADER + FLIGHTS_LINE


def test_what_was_only_in_the_page_cache_is_durable_after_open() -> None:
    disk = new_disk(HEADER)
    disk.open(PATH).append(FLIGHTS_LINE)
    assert list(MetadataJournal("/d", disk).topics()) == ["flights"]
    assert list(reopened(disk).topics()) == ["flights"]


def test_running_journal_is_rewritten_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.directory.metadata_journal._SUPERSEDED_LINES_MAX", 10)
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    for _ in range(100):
        journal.allocate_producer_ids(1)
    assert disk.size(PATH) < 2000
    assert reopened(disk).next_producer_id == 100


def test_full_disk_changes_nothing_and_passes() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    disk.fault = Fault(
        at=0, errno=errno.ENOSPC, short_write=True, kinds=frozenset({Operation.APPEND})
    )
    with pytest.raises(DiskFull):
        journal.put_topic(FLIGHTS)
    assert journal.topics() == {}
    journal.put_topic(OTHER)
    assert list(reopened(disk).topics()) == ["other"]


def test_failed_sync_is_never_retried() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    disk.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(StorageFailed, match="sync failed"):
        journal.put_topic(FLIGHTS)
    syncs = disk.counts[Operation.SYNC]
    with pytest.raises(StorageFailed, match="an earlier write failed"):
        journal.put_topic(OTHER)
    assert disk.counts[Operation.SYNC] == syncs
    assert journal.topics() == {}


def test_append_that_cannot_be_undone_ends_all_changes() -> None:
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    disk.fault = Fault(at=0, for_ever=True)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            journal.put_topic(FLIGHTS)


def test_failed_rewrite_ends_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.directory.metadata_journal._SUPERSEDED_LINES_MAX", 1)
    disk = new_disk()
    journal = MetadataJournal("/d", disk)
    journal.allocate_producer_ids(1)
    journal.allocate_producer_ids(1)
    disk.fault = Fault(at=0, kinds=frozenset({Operation.RENAME}))
    with pytest.raises(StorageFailed, match="rewrite"):
        journal.allocate_producer_ids(1)
    with pytest.raises(StorageFailed, match="earlier"):
        journal.allocate_producer_ids(1)


@pytest.mark.parametrize("survival", Survival)
def test_every_crash_state_has_all_finished_changes_and_at_most_one_more(
    survival: Survival,
) -> None:
    disk = new_disk()
    done: list[int] = [0]

    def look(operation: Operation, path: str) -> None:
        for seed in range(4):
            after = disk.power_cut(seed, survival)
            if not after.exists(PATH):
                assert done[0] == 0
                continue
            first = MetadataJournal("/d", after)
            assert first.next_producer_id - done[0] in (0, 1)
            assert reopened(after).next_producer_id == first.next_producer_id

    disk.before_operation = look
    journal = MetadataJournal("/d", disk)
    for number in range(1, 12):
        journal.allocate_producer_ids(1)
        done[0] = number
