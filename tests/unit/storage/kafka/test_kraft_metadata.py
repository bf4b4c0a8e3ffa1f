"""What the records of a metadata log add up to, and the directory that is written for Kafka."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.records.builder import build_batch
from protocol.records.layout import ControlType
from protocol.records.record import Record, control_type
from protocol.records.scan import iter_records, scan_checked
from protocol.stored.kraft import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from storage.kafka.kraft_metadata import (
    METADATA_DIRECTORY,
    ClusterMetadata,
    KraftTopic,
    read_cluster_metadata,
    snapshot_records,
    write_cluster_metadata,
)
from storage.kafka.kraft_records import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    CorruptMetadata,
    OtherRecord,
    TransactionRecord,
    encode,
)
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
NOW = 1_700_000_000_000
DIRECTORY = f"/kafka/{METADATA_DIRECTORY}"

TOPIC = TopicRecord(name="t", topic_id=ID)
PARTITION = PartitionRecord(topic_id=ID, partition_id=0, replicas=[1], leader_epoch=4)


def setting(
    name: str, value: str | None, *, kind: int = RESOURCE_TOPIC, of: str = "t"
) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)


def test_topics_partitions_and_settings_come_and_go() -> None:
    metadata = ClusterMetadata()
    for record in (
        TOPIC,
        PARTITION,
        setting("retention.ms", "1"),
        setting("segment.ms", "2"),
        setting("retention.ms", None),
        setting("log.retention.ms", "3", kind=RESOURCE_BROKER, of=""),
        TopicRecord(name="gone", topic_id=OTHER_ID),
        setting("retention.ms", "4", of="gone"),
        RemoveTopicRecord(topic_id=OTHER_ID),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        setting("retention.ms", "1", kind=32, of="group"),
        OtherRecord(key=0),
    ):
        metadata.apply(record)
    assert metadata.topics == {"t": KraftTopic(name="t", topic_id=ID, partitions={0: PARTITION})}
    assert metadata.topic_settings == {"t": {"segment.ms": "2"}}
    assert metadata.broker_settings == {"": {"log.retention.ms": "3"}}
    assert metadata.next_producer_id == 1000
    assert metadata.others == {"settings of groups and client metrics": 1}


def limit(value: float, *names: str, remove: bool = False) -> ClientQuotaRecord:
    entity = [QuotaEntityData(entity_type=name, entity_name="a") for name in names]
    return ClientQuotaRecord(entity=entity, key="k", value=value, remove=remove)


def test_security_is_what_was_set_last_and_not_removed() -> None:
    metadata = ClusterMetadata()
    user = UserScramCredentialRecord(name="ann", mechanism=1, iterations=4096)
    kept = (
        replace(user, mechanism=2),
        replace(user, iterations=8192),
        AccessControlEntryRecord(id=ID, resource_name="t"),
        limit(3.0, "client-id", "user"),
        DelegationTokenRecord(token_id="kept"),
    )
    for record in (
        user,
        replace(user, name="gone"),
        AccessControlEntryRecord(id=OTHER_ID),
        limit(1.0, "user"),
        limit(2.0, "user", "client-id"),
        DelegationTokenRecord(token_id="gone"),
        *kept,
        RemoveUserScramCredentialRecord(name="gone", mechanism=1),
        RemoveAccessControlEntryRecord(id=OTHER_ID),
        limit(0.0, "user", remove=True),
        RemoveDelegationTokenRecord(token_id="gone"),
    ):
        metadata.apply(record)
    assert len(metadata.security) == len(kept)
    assert all(record in metadata.security for record in kept)


def test_transaction_counts_as_a_whole_or_not_at_all() -> None:
    metadata = ClusterMetadata()
    metadata.apply(TransactionRecord(begins=True))
    metadata.apply(TOPIC)
    assert metadata.topics == {}
    metadata.apply(TransactionRecord(begins=False, keeps=True))
    assert list(metadata.topics) == ["t"]
    metadata.apply(TransactionRecord(begins=True))
    metadata.apply(RemoveTopicRecord(topic_id=ID))
    metadata.apply(TransactionRecord(begins=False))
    assert list(metadata.topics) == ["t"]


def test_moved_partition_is_where_the_last_change_says() -> None:
    metadata = ClusterMetadata()
    metadata.apply(TOPIC)
    metadata.apply(PARTITION)
    metadata.apply(PartitionChangeRecord(topic_id=ID, partition_id=0, replicas=None))
    metadata.apply(PartitionChangeRecord(topic_id=ID, partition_id=0, replicas=[2, 3]))
    assert metadata.topics["t"].partitions[0].replicas == [2, 3]


@pytest.mark.parametrize(
    "record",
    [
        PARTITION,
        RemoveTopicRecord(topic_id=ID),
        PartitionChangeRecord(topic_id=ID, partition_id=0, replicas=None),
    ],
)
def test_record_about_an_unknown_topic_is_damage(record: PartitionRecord) -> None:
    with pytest.raises(CorruptMetadata):
        ClusterMetadata().apply(record)


def written(topics: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/kafka")
    disk.sync_directory("/")
    made = [
        KraftTopic(
            name=f"t{i}",
            topic_id=i.to_bytes(16),
            partitions={0: PartitionRecord(topic_id=i.to_bytes(16), partition_id=0, replicas=[1])},
        )
        for i in range(1, topics + 1)
    ]
    values = snapshot_records(
        node_id=1,
        directory_id=OTHER_ID,
        topics=made,
        topic_settings={"t1": {"retention.ms": "5"}},
        broker_settings={"log.retention.ms": "6"},
        next_producer_id=3000,
    )
    write_cluster_metadata(DIRECTORY, values, disk, now_ms=NOW)
    return disk


def test_snapshot_says_what_was_put_in_and_survives_a_power_cut() -> None:
    metadata = read_cluster_metadata(DIRECTORY, written().power_cut(0, Survival.LOST))
    assert metadata.topics["t1"].topic_id == (1).to_bytes(16)
    assert metadata.topics["t1"].partitions[0].replicas == [1]
    assert metadata.topic_settings == {"t1": {"retention.ms": "5"}}
    assert metadata.broker_settings == {"": {"log.retention.ms": "6"}}
    assert metadata.features == {"metadata.version": 21}
    assert metadata.next_producer_id == 3000


def test_snapshot_is_named_by_its_records_and_framed_by_control_batches() -> None:
    disk = written(topics=700)
    (name,) = disk.list_directory(DIRECTORY)
    count = 1 + 2 * 700 + 1 + 1 + 1
    assert name == f"{count:020d}-0000000001.checkpoint"
    content = disk.read_all(f"{DIRECTORY}/{name}")
    entries = scan_checked(content).entries
    assert [entry.is_control for entry in entries] == [True, False, False, True]
    assert [entry.base_offset for entry in entries] == [0, 1, 1001, count + 1]
    first, last = (next(iter_records(content, entries[i].position)) for i in (0, -1))
    assert control_type(first) is ControlType.SNAPSHOT_HEADER
    assert control_type(last) is ControlType.SNAPSHOT_FOOTER


def later(disk: SimulatedDisk, *names: str, lost: int = 0) -> list[bytes]:
    """Batches of the log after the snapshot of `disk`, each with a topic; `lost` come before."""
    (snapshot,) = disk.list_directory(DIRECTORY)
    end = int(snapshot.partition("-")[0]) + lost
    return [
        build_batch(
            [Record(0, NOW, None, encode(TopicRecord(name=name, topic_id=name.encode() * 16)))],
            base_offset=end + number,
        )
        for number, name in enumerate(names)
    ]


def with_log(disk: SimulatedDisk, content: bytes) -> SimulatedDisk:
    log = disk.create(f"{DIRECTORY}/{0:020d}.log")
    log.append(content)
    log.close()
    return disk


@pytest.mark.parametrize("tail", [lambda batch: batch[:-3], lambda _: bytes(4096)])
def test_log_after_the_snapshot_is_added_and_its_unfinished_write_is_not(
    tail: Callable[[bytes], bytes],
) -> None:
    disk = written()
    (below,) = later(disk, "b", lost=-1)
    above, unfinished = later(disk, "a", "u")
    with_log(disk, below + above + tail(unfinished))
    assert sorted(read_cluster_metadata(DIRECTORY, disk).topics) == ["a", "t1"]


@pytest.mark.parametrize("keeps", [0.5, 0.9])
def test_shortened_snapshot_is_damage(keeps: float) -> None:
    disk = written(topics=2000)
    (name,) = disk.list_directory(DIRECTORY)
    content = disk.read_all(f"{DIRECTORY}/{name}")
    ends = [entry.position for entry in scan_checked(content).entries]
    for end in (int(len(content) * keeps), *ends):
        disk.replace_atomically(f"{DIRECTORY}/{name}", content[:end])
        with pytest.raises(CorruptMetadata, match="is damaged at byte"):
            read_cluster_metadata(DIRECTORY, disk)


def test_damage_amid_a_snapshot_or_a_log_drops_no_record() -> None:
    disk = written(topics=2000)
    (name,) = disk.list_directory(DIRECTORY)
    content = bytearray(disk.read_all(f"{DIRECTORY}/{name}"))
    content[len(content) // 2] ^= 1
    disk.replace_atomically(f"{DIRECTORY}/{name}", bytes(content))
    with pytest.raises(CorruptMetadata, match="is damaged at byte"):
        read_cluster_metadata(DIRECTORY, disk)

    disk = written()
    first, second = later(disk, "a", "b")
    with_log(disk, first[:-1] + bytes([first[-1] ^ 1]) + second)
    with pytest.raises(CorruptMetadata, match="is damaged at byte 0"):
        read_cluster_metadata(DIRECTORY, disk)


def test_gap_after_a_snapshot_or_in_a_log_is_damage() -> None:
    disk = written()
    with_log(disk, *later(disk, "a", lost=1))
    with pytest.raises(CorruptMetadata, match=r"\.log lacks the records from offset 6 on"):
        read_cluster_metadata(DIRECTORY, disk)

    disk = written()
    first, _, third = later(disk, "a", "b", "c")
    with_log(disk, first + third)
    with pytest.raises(CorruptMetadata, match=r"\.log lacks the records from offset 7 on"):
        read_cluster_metadata(DIRECTORY, disk)
