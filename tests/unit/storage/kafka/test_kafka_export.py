"""What of a data directory goes to Kafka, and what is said about the rest."""

from storage.directory.data_dir import DataDir
from storage.disk.steps import run_steps
from storage.kafka.kafka_export import is_exported, plan_export, settings_for_kafka
from storage.kafka.kraft_metadata import (
    METADATA_DIRECTORY,
    read_cluster_metadata,
    write_cluster_metadata,
)
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.storage.directory.test_data_dir import NOW, open_dir, produce

DIRECTORY_ID = bytes(range(16))


def test_settings_that_kafka_lacks_or_refuses_are_left_out_with_a_sentence() -> None:
    notes: list[str] = []
    carried = settings_for_kafka(
        "t",
        {"retention.ms": "5", "flush.policy": "os", "segment.bytes": "1000", "segment.ms": "9"},
        notes,
    )
    assert carried == {"retention.ms": "5", "segment.ms": "9"}
    assert len(notes) == 2
    assert "flush.policy=os of topic t" in notes[0]
    assert "1048576" in notes[1]


def test_difference_becomes_the_two_settings_that_replaced_it() -> None:
    difference = {"message.timestamp.difference.max.ms": "7"}
    before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
    assert settings_for_kafka("t", difference, []) == {before: "7", after: "7"}
    assert settings_for_kafka("t", {**difference, after: "8"}, []) == {before: "7", after: "8"}


def test_files_of_our_own_stay() -> None:
    assert is_exported("00000000000000000000.log")
    assert is_exported("00000000000000000007.snapshot")
    assert is_exported("partition.metadata")
    assert not is_exported("segment-manifest")
    assert not is_exported("00000000000000000000.log.deleted")


def test_plan_holds_topics_ids_epochs_and_producer_ids() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    topic = run_steps(data_dir.create_topic("t", 2, {"retention.ms": "5"}, NOW))
    produce(topic.logs[1], 3)
    topic.logs[1].leader_epoch += 1
    data_dir.metadata.allocate_producer_ids(10)
    plan = plan_export(data_dir, directory_id=DIRECTORY_ID)
    assert list(plan.directories) == ["t-0", "t-1"]
    assert plan.meta.directory_id == DIRECTORY_ID
    assert plan.modified_ms["t-1", "00000000000000000000.log"] == NOW

    disk.make_directory("/kafka")
    write_cluster_metadata(f"/kafka/{METADATA_DIRECTORY}", plan.records, disk, now_ms=NOW)
    metadata = read_cluster_metadata(f"/kafka/{METADATA_DIRECTORY}", disk)
    assert metadata.topics["t"].topic_id == topic.topic_id
    epochs = [metadata.topics["t"].partitions[p].leader_epoch for p in range(2)]
    assert epochs == [log.leader_epoch for log in topic.logs]
    assert metadata.next_producer_id == data_dir.metadata.next_producer_id == 10


def test_run_time_settings_go_along_where_kafka_has_them() -> None:
    data_dir: DataDir = open_dir(SimulatedDisk())
    data_dir.set_broker_overrides({"log.retention.ms": "77"})
    plan = plan_export(data_dir, directory_id=DIRECTORY_ID)
    assert any(b"log.retention.ms" in value for value in plan.records)


def test_settings_of_groups_are_named_since_they_are_not_exported() -> None:
    data_dir: DataDir = open_dir(SimulatedDisk())
    data_dir.metadata.set_group_overrides("g", {"consumer.session.timeout.ms": "50000"})
    plan = plan_export(data_dir, directory_id=DIRECTORY_ID)
    assert any("consumer.session.timeout.ms=50000 of group g" in note for note in plan.notes)
