"""What of a directory of Kafka is taken over, and what is said about the rest."""

import pytest

from config import load
from protocol.stored.kraft import PartitionRecord
from storage.disk.checkpoints import (
    MetaProperties,
    format_meta_properties,
    format_partition_metadata,
)
from storage.errors import ForeignDataDir, HalfWrittenDataDir
from storage.kafka.kafka_import import ImportPlan, is_imported, plan_import
from storage.kafka.kraft_metadata import (
    METADATA_DIRECTORY,
    KraftTopic,
    snapshot_records,
    write_cluster_metadata,
)
from storage.producers.snapshots import encode_snapshot
from storage.producers.state import ProducerEntry
from tests.support.simulated_disk import SimulatedDisk

ROOT = "/kafka"
ID = bytes(range(16))
NOW = 1_700_000_000_000


def kafka_directory(*partitions: str, topic_id: bytes = ID) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    meta = MetaProperties(node_id=1, cluster_id="cluster", directory_id=ID)
    disk.replace_atomically(f"{ROOT}/meta.properties", format_meta_properties(meta))
    for name in partitions:
        disk.make_directory(f"{ROOT}/{name}")
        path = f"{ROOT}/{name}/partition.metadata"
        disk.replace_atomically(path, format_partition_metadata(topic_id))
    return disk


def with_metadata(
    disk: SimulatedDisk,
    settings: dict[str, str] | None = None,
    *,
    partitions: int = 2,
    broker: dict[str, str] | None = None,
) -> SimulatedDisk:
    records = {
        p: PartitionRecord(topic_id=ID, partition_id=p, replicas=[1]) for p in range(partitions)
    }
    values = snapshot_records(
        node_id=1,
        directory_id=ID,
        topics=[KraftTopic(name="t", topic_id=ID, partitions=records)],
        topic_settings={"t": settings or {}},
        broker_settings=broker or {},
        next_producer_id=5000,
    )
    write_cluster_metadata(f"{ROOT}/{METADATA_DIRECTORY}", values, disk, now_ms=NOW)
    return disk


def plan(disk: SimulatedDisk) -> ImportPlan:
    return plan_import(ROOT, disk, broker_config=load(), random_bytes=lambda n: bytes([9]) * n)


def test_metadata_log_gives_topics_ids_settings_and_producer_ids() -> None:
    disk = with_metadata(kafka_directory("t-0", "t-1"), {"retention.ms": "5"})
    found = plan(disk)
    (topic,) = found.topics
    assert (topic.name, topic.topic_id, topic.partitions) == ("t", ID, 2)
    assert topic.overrides == {"retention.ms": "5"}
    assert found.next_producer_id == 5000
    assert list(found.directories) == ["t-0", "t-1"]
    assert [note.partition(" are ")[0] for note in found.notes] == [
        "settings of Kafka's own server.properties"
    ]


def test_settings_that_do_not_exist_here_are_noted() -> None:
    disk = with_metadata(
        kafka_directory("t-0", "t-1"),
        {"acme.placement": "x", "retention.ms": "5"},
        broker={"log.retention.ms": "6", "acme.balancer.enable": "true"},
    )
    found = plan(disk)
    assert found.topics[0].overrides == {"retention.ms": "5"}
    assert found.broker_overrides == {"log.retention.ms": "6"}
    assert [note.partition("=")[0] for note in found.notes] == [
        "acme.placement",
        "acme.balancer.enable",
        found.notes[-1],
    ]


def test_partition_that_was_never_written_to_comes_along_empty() -> None:
    found = plan(with_metadata(kafka_directory("t-0")))
    assert found.topics[0].partitions == 2


def test_directory_of_another_id_does_not_count_as_the_topic() -> None:
    found = plan(with_metadata(kafka_directory("t-0", "t-1", topic_id=bytes(15) + b"\x01")))
    assert list(found.topics) == []
    assert any("topic t is left out" in note for note in found.notes)


def test_without_metadata_log_the_names_speak() -> None:
    disk = kafka_directory("t-0", "t-1", "u-1", "__consumer_offsets-0")
    found = plan(disk)
    assert [(topic.name, topic.topic_id) for topic in found.topics] == [
        ("__consumer_offsets", ID),
        ("t", ID),
    ]
    assert any("ZooKeeper" in note for note in found.notes)
    assert any("topic u is left out" in note for note in found.notes)


def test_what_is_not_known_of_a_topic_deletes_nothing() -> None:
    compacted, ordinary = plan(kafka_directory("t-0", "__consumer_offsets-0")).topics
    assert ordinary.overrides == {"retention.ms": "-1"}
    assert compacted.overrides == {"cleanup.policy": "compact"}


def test_producer_ids_step_over_the_block_of_the_highest_one_seen() -> None:
    disk = kafka_directory("t-0")
    entry = ProducerEntry(producer_id=4321)
    path = f"{ROOT}/t-0/00000000000000000005.snapshot"
    disk.replace_atomically(path, encode_snapshot([entry]))
    assert plan(disk).next_producer_id == 5000


def test_own_and_foreign_directories_are_refused() -> None:
    disk = kafka_directory()
    disk.unlink(f"{ROOT}/meta.properties")
    with pytest.raises(ForeignDataDir, match=r"log\.dirs"):
        plan(disk)
    disk = kafka_directory()
    disk.replace_atomically(f"{ROOT}/metadata.journal", b"")
    with pytest.raises(ForeignDataDir, match="already"):
        plan(disk)


def test_damaged_metadata_stops_the_import() -> None:
    disk = kafka_directory("t-0")
    values = [b"\x01\x03\x00"]
    write_cluster_metadata(f"{ROOT}/{METADATA_DIRECTORY}", values, disk, now_ms=NOW)
    with pytest.raises(HalfWrittenDataDir, match="metadata log"):
        plan(disk)


def test_unfinished_replacements_come_along_and_deleted_files_do_not() -> None:
    assert is_imported("00000000000000000000.log.swap")
    assert not is_imported("00000000000000000000.log.deleted")
    assert not is_imported("segment-manifest")
