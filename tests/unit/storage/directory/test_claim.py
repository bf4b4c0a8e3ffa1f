"""The first steps of a start: names sorted, topics counted, ids drawn."""

from storage.directory.claim import complete_topics, plan_adoption, stray_directory_name, survey
from storage.directory.data_dir import DataDir
from storage.disk.checkpoints import format_partition_metadata, random_uuid
from storage.disk.steps import run_steps
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.storage.directory.test_data_dir import NOW, ROOT, config, open_dir

TOPIC_ID = bytes(range(16))


def test_names_are_sorted_by_what_they_are() -> None:
    disk = SimulatedDisk()
    for name in (
        "flights-0",
        "a-b.c_d-17",
        f"gone-1.{'0' * 32}-delete",
        f"odd-2.{'0' * 32}-stray",
        "__cluster_metadata-0",
        "lost+found",
        "backup",
    ):
        disk.make_directory(f"/d/{name}")
    disk.create("/d/notes-3")
    disk.replace_atomically("/d/flights-0/partition.metadata", format_partition_metadata(TOPIC_ID))
    found = survey("/d", disk)
    assert found.partitions == {("flights", 0): TOPIC_ID, ("a-b.c_d", 17): None}
    assert found.deleted == [f"gone-1.{'0' * 32}-delete"]
    assert found.stray == [f"odd-2.{'0' * 32}-stray"]
    assert found.unknown == ["__cluster_metadata-0", "backup"]


def test_topics_are_whole_when_no_partition_is_missing() -> None:
    whole, others = complete_topics([("a", 1), ("a", 0), ("b", 0), ("b", 2), ("c", 3)])
    assert whole == {"a": 2}
    assert others == [("b", 0), ("b", 2), ("c", 3)]


def test_adopted_topic_keeps_its_id_when_all_partitions_agree() -> None:
    disk = SimulatedDisk()
    for name, topic_id in (
        ("agree-0", TOPIC_ID),
        ("agree-1", TOPIC_ID),
        ("differ-0", TOPIC_ID),
        ("differ-1", b"y" * 16),
        ("old-0", None),
    ):
        disk.make_directory(f"/d/{name}")
        if topic_id is not None:
            content = format_partition_metadata(topic_id)
            disk.replace_atomically(f"/d/{name}/partition.metadata", content)
    topics, notices = plan_adoption("/d", disk, lambda size: b"z" * size)
    assert [(t.name, t.partitions, t.topic_id) for t in topics] == [
        ("agree", 2, TOPIC_ID),
        ("differ", 2, b"z" * 16),
        ("old", 1, b"z" * 16),
    ]
    assert len(notices) == 1
    disk.create("/d/metadata.journal")
    assert plan_adoption("/d", disk, lambda size: b"z" * size) == ([], [])


def test_empty_directory_has_nothing_to_adopt() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    assert plan_adoption("/d", disk, lambda size: b"z" * size) == ([], [])


def test_adoption_is_all_or_nothing_at_every_crash() -> None:
    disk = SimulatedDisk()
    source = open_dir(disk)
    for name in ("a", "b", "c"):
        run_steps(source.create_topic(name, 2, {}, NOW))
    source.close(NOW)
    disk.unlink(f"{ROOT}/metadata.journal")
    disk.sync_directory(ROOT)
    states: list[SimulatedDisk] = []
    disk.before_operation = lambda operation, path: states.extend(
        disk.power_cut(seed, survival) for survival in Survival for seed in range(2)
    )
    open_dir(disk)
    for state in states:
        assert list(open_dir(state).topics) == ["a", "b", "c"]


def test_drawn_id_is_not_zero_and_does_not_begin_with_a_dash() -> None:
    draws = iter([bytes(16), b"\xf8" + bytes(15), b"\x01" * 16])
    assert random_uuid(lambda size: next(draws)) == b"\x01" * 16


def test_stray_name_keeps_topic_and_partition() -> None:
    assert stray_directory_name("a-b-3", "f" * 32) == f"a-b-3.{'f' * 32}-stray"


def test_missing_parents_are_made_and_durable() -> None:
    disk = SimulatedDisk()
    DataDir.open("/srv/kafka/data", files=disk, broker_config=config(), now_ms=NOW)
    assert disk.power_cut(0, Survival.LOST).exists("/srv/kafka/data/meta.properties")


def test_start_that_was_cut_off_in_a_new_directory_begins_again() -> None:
    disk = SimulatedDisk()
    states: list[SimulatedDisk] = []
    disk.before_operation = lambda operation, path: states.extend(
        disk.power_cut(seed, survival) for survival in Survival for seed in range(2)
    )
    open_dir(disk)
    for state in states:
        open_dir(state).close(NOW)
