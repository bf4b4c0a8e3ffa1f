"""What the records of a metadata log add up to, and the directory that is written for Kafka."""

import pytest

from protocol.records.builder import build_batch
from protocol.records.layout import ControlType
from protocol.records.record import Record, control_type
from protocol.records.scan import iter_records, scan_checked
from protocol.stored.kraft import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
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
        OtherRecord(key=18),
        OtherRecord(key=0),
    ):
        metadata.apply(record)
    assert metadata.topics == {"t": KraftTopic(name="t", topic_id=ID, partitions={0: PARTITION})}
    assert metadata.topic_settings == {"t": {"segment.ms": "2"}}
    assert metadata.broker_settings == {"": {"log.retention.ms": "3"}}
    assert metadata.next_producer_id == 1000
    assert metadata.others == {"ACLs": 1}


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


def test_log_behind_the_snapshot_is_added_and_its_torn_tail_is_not() -> None:
    disk = written()
    (snapshot,) = disk.list_directory(DIRECTORY)
    end = int(snapshot.partition("-")[0])
    old, new = (
        build_batch([Record(0, NOW, None, encode(record))], base_offset=offset)
        for record, offset in (
            (TopicRecord(name="below", topic_id=OTHER_ID), end - 1),
            (TopicRecord(name="above", topic_id=OTHER_ID), end),
        )
    )
    log = disk.create(f"{DIRECTORY}/{0:020d}.log")
    log.append(old + new + new[:-3])
    log.close()
    assert sorted(read_cluster_metadata(DIRECTORY, disk).topics) == ["above", "t1"]
