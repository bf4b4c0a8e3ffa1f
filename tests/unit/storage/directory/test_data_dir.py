"""The data directory: what is refused, what survives, what a start puts right."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from config import BrokerConfig, ConfigErrors, load
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.audit.fsck import audit_directory
from storage.directory.data_dir import DataDir
from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    format_partition_metadata,
    read_offsets,
)
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.errors import (
    DataDirLocked,
    DataDirNotWritable,
    ForeignDataDir,
    HalfWrittenDataDir,
    StorageFailed,
)
from storage.log.log import Log
from storage.log.retention import delete_expired
from tests.support.power_loss import Survival
from tests.support.simulated_disk import CHANGES, Fault, Operation, SimulatedDisk

ROOT = "/data"
NOW = 1_700_000_000_000
DAY = 86_400_000


def config(**settings: str) -> BrokerConfig:
    return load(command_line={name.replace("_", "."): value for name, value in settings.items()})


def open_dir(
    disk: SimulatedDisk, broker_config: BrokerConfig | None = None, now_ms: int = NOW
) -> DataDir:
    return DataDir.open(ROOT, files=disk, broker_config=broker_config or config(), now_ms=now_ms)


def produce(log: Log, count: int = 1) -> None:
    for number in range(count):
        batch = build_batch([Record(0, NOW + number, b"key", b"value" * 10)])
        log.append(memoryview(bytearray(batch)), now_ms=NOW)


def after_cut(disk: SimulatedDisk, survival: Survival = Survival.LOST) -> SimulatedDisk:
    return disk.power_cut(0, survival)


def test_topic_that_has_the_name_of_the_metadata_log_does_not_stop_the_start() -> None:
    """Releases up to 0.1.0 let clients make one; the next start then failed for all topics."""
    disk = SimulatedDisk()
    first = open_dir(disk)
    for name in ("__cluster_metadata", "t"):
        produce(run_steps(first.create_topic(name, 1, {}, NOW)).logs[0])
    first.close(NOW)
    second = open_dir(disk)
    assert {name: topic.logs[0].log_end_offset for name, topic in second.topics.items()} == {
        "__cluster_metadata": 1,
        "t": 1,
    }


# --- identity and lock --------------------------------------------------------------------------


def test_new_directory_gets_an_identity_that_it_keeps() -> None:
    disk = SimulatedDisk()
    first = open_dir(disk)
    assert first.node_id == 1
    assert len(first.cluster_id) == 22
    second = open_dir(after_cut(disk))
    assert (second.node_id, second.cluster_id) == (first.node_id, first.cluster_id)


def test_configured_cluster_id_is_for_new_directories() -> None:
    disk = SimulatedDisk()
    assert open_dir(disk, config(cluster_id="mine")).cluster_id == "mine"
    assert open_dir(after_cut(disk), config(cluster_id="yours")).cluster_id == "mine"


def test_directory_of_another_node_is_refused_when_the_node_was_named() -> None:
    disk = SimulatedDisk()
    open_dir(disk, config(node_id="5"))
    assert open_dir(after_cut(disk)).node_id == 5
    with pytest.raises(ForeignDataDir, match=r"node.id 5, configured is 6\); set node.id=5"):
        open_dir(after_cut(disk), config(node_id="6"))


def test_second_broker_is_refused_with_the_process_id(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    first = DataDir.open(path, files=RealFiles(), broker_config=config(), now_ms=NOW)
    with pytest.raises(DataDirLocked, match=rf"{path} \(process \d+\); stop that broker"):
        DataDir.open(path, files=RealFiles(), broker_config=config(), now_ms=NOW)
    first.close(NOW)
    DataDir.open(path, files=RealFiles(), broker_config=config(), now_ms=NOW).close(NOW)


def test_lock_without_process_id_is_still_a_lock() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.lock(f"{ROOT}/.lock")
    with pytest.raises(DataDirLocked, match="process id is not known"):
        open_dir(disk)


def test_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DataDirNotWritable, match="check that it is a directory"):
        DataDir.open(str(tmp_path / "data"), files=RealFiles(), broker_config=config(), now_ms=NOW)


def test_directory_with_other_peoples_files_is_refused() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.create(f"{ROOT}/thesis.tex")
    with pytest.raises(ForeignDataDir, match=r"no meta.properties, but thesis.tex"):
        open_dir(disk)
    assert set(disk.list_directory(ROOT)) == {".lock", "thesis.tex"}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"version=7\nnode.id=1\ncluster.id=x\n", ForeignDataDir),
        (b"version=1\ncluster.id=x\n", HalfWrittenDataDir),
        (b"", HalfWrittenDataDir),
    ],
)
def test_identity_that_is_not_understood_is_refused(content: bytes, error: type[Exception]) -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.replace_atomically(f"{ROOT}/{META_PROPERTIES_FILE}", content)
    with pytest.raises(error):
        open_dir(disk)
    assert disk.read_all(f"{ROOT}/{META_PROPERTIES_FILE}") == content


def test_refused_directory_is_unlocked_again() -> None:
    disk = SimulatedDisk()
    disk.make_directory(ROOT)
    disk.create(f"{ROOT}/metadata.journal")
    with pytest.raises(ForeignDataDir):
        open_dir(disk)
    disk.replace_atomically(
        f"{ROOT}/{META_PROPERTIES_FILE}", b"version=1\nnode.id=1\ncluster.id=c\n"
    )
    with pytest.raises(HalfWrittenDataDir):
        open_dir(disk)
    disk.lock(f"{ROOT}/.lock").release()


def test_failing_disk_is_reported_in_one_sentence() -> None:
    disk = SimulatedDisk()
    open_dir(disk).close(NOW)
    disk.fault = Fault(at=0, errno=errno.EROFS, for_ever=True)
    with pytest.raises(DataDirNotWritable, match="Read-only file system"):
        open_dir(disk)


# --- topics -------------------------------------------------------------------------------------


def test_created_topic_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    created = run_steps(open_dir(disk).create_topic("flights", 3, {"retention.ms": "5000"}, NOW))
    found = open_dir(after_cut(disk)).topics["flights"]
    assert found.topic_id == created.topic_id
    assert found.overrides == {"retention.ms": "5000"}
    assert found.config.retention_ms == 5000
    assert [log.partition for log in found.logs] == [0, 1, 2]


def test_topic_is_made_in_steps_and_appears_when_it_is_whole() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    steps = data_dir.create_topic("t", 3, {}, NOW)
    for _ in range(3):
        assert next(steps) is None
        assert data_dir.topics == {}
    assert len(run_steps(steps).partitions) == 3
    growing = data_dir.add_partitions("t", 5, NOW)
    next(growing)
    assert len(data_dir.topics["t"].logs) == 3
    run_steps(growing)
    assert len(open_dir(after_cut(disk)).topics["t"].logs) == 5


def test_power_cut_between_two_steps_leaves_a_whole_topic() -> None:
    disk = SimulatedDisk()
    steps = open_dir(disk).create_topic("t", 3, {}, NOW)
    next(steps)
    assert len(open_dir(after_cut(disk)).topics["t"].logs) == 3


def test_partitions_that_were_never_written_to_close_and_open_without_a_write() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 3, {}, NOW))
    touched: list[str] = []
    disk.before_operation = lambda kind, path: touched.append(f"{kind.name} {path}")
    data_dir.close(NOW)
    open_dir(disk).close(NOW)
    changes = ("CREATE", "APPEND", "SYNC", "RENAME", "TRUNCATE")
    inside = [each for each in touched if "/t-" in each and each.startswith(changes)]
    assert inside == []


def test_topic_with_bad_overrides_is_not_created() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    with pytest.raises(ConfigErrors):
        run_steps(data_dir.create_topic("t", 1, {"retention.ms": "soon"}, NOW))
    assert data_dir.topics == {}
    assert open_dir(after_cut(disk, Survival.KEPT)).topics == {}


def test_topic_that_could_not_be_made_does_not_exist() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    disk.fault = Fault(at=1, errno=errno.ENOSPC, kinds=frozenset({Operation.MAKE_DIRECTORY}))
    with pytest.raises(StorageFailed):
        run_steps(data_dir.create_topic("t", 3, {}, NOW))
    assert data_dir.topics == {}
    run_steps(data_dir.create_topic("t", 3, {}, NOW))
    assert list(open_dir(after_cut(disk)).topics) == ["t"]


def test_added_partitions_survive() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    run_steps(data_dir.add_partitions("t", 4, NOW))
    assert len(data_dir.topics["t"].logs) == 4
    assert len(open_dir(after_cut(disk)).topics["t"].logs) == 4


@pytest.mark.parametrize("made_before", [0, 1, 2])
def test_partitions_that_could_not_be_added_are_not_there(made_before: int) -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    disk.fault = Fault(at=made_before, kinds=frozenset({Operation.MAKE_DIRECTORY}))
    with pytest.raises(StorageFailed, match="error"):
        run_steps(data_dir.add_partitions("t", 4, NOW))
    assert len(data_dir.topics["t"].logs) == 1
    assert len(open_dir(after_cut(disk)).topics["t"].logs) == 1
    run_steps(data_dir.add_partitions("t", 4, NOW))
    assert len(open_dir(after_cut(disk)).topics["t"].logs) == 4


def test_what_cannot_be_removed_holds_up_nothing_else() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    for name in ("a", "b", "c"):
        log = run_steps(data_dir.create_topic(name, 1, {"segment.bytes": "150"}, NOW)).logs[0]
        for _ in range(3):
            produce(log)
    data_dir.delete_topic("a", NOW)
    for name in ("b", "c"):
        log = data_dir.topics[name].logs[0]
        log.flush()
        log.delete_before(2)
        delete_expired(log, NOW)
    due = NOW + 60_000
    disk.fault = Fault(at=0, kinds=frozenset({Operation.UNLINK}))
    with pytest.raises(StorageFailed):
        run_steps(data_dir.delete_pending_files(due))
    assert len([name for name in disk.tree() if name.endswith(".deleted")]) <= 1
    disk.fault = None
    run_steps(data_dir.delete_pending_files(due))
    assert not [name for name in disk.tree() if "delete" in name]


def test_files_deleted_while_the_clock_was_ahead_are_removed_once_it_is_corrected() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    ahead = NOW + 3650 * DAY
    run_steps(data_dir.create_topic("a", 1, {}, NOW))
    log = run_steps(data_dir.create_topic("b", 1, {"segment.bytes": "150"}, NOW)).logs[0]
    for _ in range(3):
        produce(log)
    log.flush()
    log.delete_before(2)
    delete_expired(log, ahead)
    data_dir.delete_topic("a", ahead)
    assert run_steps(data_dir.delete_pending_files(ahead + 59_999)) == 0
    assert run_steps(data_dir.delete_pending_files(ahead - 59_999)) == 0
    assert run_steps(data_dir.delete_pending_files(NOW)) > 1
    assert not [name for name in disk.tree() if "delete" in name]


def test_deleted_topic_stays_deleted_and_its_files_go_later() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    topic = run_steps(data_dir.create_topic("t", 2, {}, NOW))
    produce(topic.logs[0])
    data_dir.delete_topic("t", NOW)
    assert data_dir.topics == {}
    assert [name[-7:] for name in disk.list_directory(ROOT) if name.startswith("t-")] == [
        "-delete",
        "-delete",
    ]
    assert run_steps(data_dir.delete_pending_files(NOW + 59_999)) == 0
    assert run_steps(data_dir.delete_pending_files(NOW + 60_000)) == 2
    assert not [name for name in disk.list_directory(ROOT) if name.startswith("t-")]


def test_case_56_what_waits_for_its_removal_is_removed_after_a_crash() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 2, {}, NOW))
    data_dir.delete_topic("t", NOW)
    survivor = after_cut(disk)
    again = open_dir(survivor)
    assert again.topics == {}
    assert run_steps(again.delete_pending_files(NOW)) == 2


def test_topic_can_be_created_again_at_once_and_is_empty() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    first = run_steps(data_dir.create_topic("t", 1, {}, NOW))
    produce(first.logs[0], 5)
    data_dir.delete_topic("t", NOW)
    second = run_steps(data_dir.create_topic("t", 1, {}, NOW))
    assert second.topic_id != first.topic_id
    assert second.logs[0].log_end_offset == 0
    assert open_dir(after_cut(disk)).topics["t"].logs[0].log_end_offset == 0


def each_crash_state(
    prepare: Callable[[DataDir], None],
    change: Callable[[DataDir], None],
    check: Callable[[SimulatedDisk, bool], None],
) -> None:
    """`check` every crash state of `change`; it gets whether the change had returned."""
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    prepare(data_dir)

    def look(operation: Operation, path: str) -> None:
        if operation in CHANGES:
            for survival in Survival:
                check(disk.power_cut(disk.operations, survival), False)

    disk.before_operation = look
    change(data_dir)
    disk.before_operation = None
    for survival in Survival:
        check(disk.power_cut(0, survival), True)


def test_creation_is_all_or_nothing_at_every_crash() -> None:
    def check(disk: SimulatedDisk, done: bool) -> None:
        topics = open_dir(disk).topics
        assert len(topics["t"].logs) == 3 if done or topics else not topics

    each_crash_state(
        lambda _: None, lambda d: void(run_steps(d.create_topic("t", 3, {}, NOW))), check
    )


def test_deletion_is_all_or_nothing_at_every_crash() -> None:
    def prepare(data_dir: DataDir) -> None:
        for log in run_steps(data_dir.create_topic("t", 3, {}, NOW)).logs:
            produce(log, 4)
            log.flush()

    def check(disk: SimulatedDisk, done: bool) -> None:
        data_dir = open_dir(disk)
        if done:
            assert not data_dir.topics
        for topic in data_dir.topics.values():
            assert [log.log_end_offset for log in topic.logs] == [4, 4, 4]
        data_dir.close(NOW)
        assert audit_directory(ROOT, disk).findings == []

    each_crash_state(prepare, lambda d: d.delete_topic("t", NOW), check)


def grow(directory: DataDir) -> None:
    run_steps(directory.add_partitions("t", 3, NOW))


def test_growth_is_all_or_nothing_at_every_crash() -> None:
    def check(disk: SimulatedDisk, done: bool) -> None:
        count = len(open_dir(disk).topics["t"].logs)
        assert count == 3 if done else count in (1, 3)

    each_crash_state(
        lambda d: void(run_steps(d.create_topic("t", 1, {}, NOW))),
        grow,
        check,
    )


def void(_: object) -> None:
    """For lambdas whose value does not matter."""


# --- settings -----------------------------------------------------------------------------------


def test_topic_overrides_are_replaced_and_reach_the_logs() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    topic = run_steps(data_dir.create_topic("t", 2, {"retention.ms": "1"}, NOW))
    data_dir.set_topic_overrides("t", {"segment.bytes": "2000"})
    assert [log.config.segment_bytes for log in topic.logs] == [2000, 2000]
    assert topic.config.retention_ms == 7 * DAY
    assert open_dir(after_cut(disk)).topics["t"].overrides == {"segment.bytes": "2000"}
    with pytest.raises(ConfigErrors):
        data_dir.set_topic_overrides("t", {"no.such": "key"})
    assert topic.overrides == {"segment.bytes": "2000"}


def test_broker_overrides_survive_and_reach_the_topics_that_inherit_them() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    inherits = run_steps(data_dir.create_topic("a", 1, {}, NOW))
    own = run_steps(data_dir.create_topic("b", 1, {"retention.ms": "7"}, NOW))
    data_dir.set_broker_overrides({"log.retention.ms": "99"})
    assert inherits.logs[0].config.retention_ms == 99
    assert own.logs[0].config.retention_ms == 7
    again = open_dir(after_cut(disk))
    assert again.metadata.broker_overrides == {"log.retention.ms": "99"}
    assert again.topics["a"].config.retention_ms == 99
    with pytest.raises(ConfigErrors):
        data_dir.set_broker_overrides({"no.such": "key"})


def test_producer_ids_are_never_given_twice() -> None:
    disk = SimulatedDisk()
    assert open_dir(disk).metadata.allocate_producer_ids(10) == range(10)
    assert open_dir(after_cut(disk)).metadata.allocate_producer_ids(10) == range(10, 20)


# --- stop and start -----------------------------------------------------------------------------


def test_clean_stop_leaves_nothing_to_recover() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    produce(run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0], 9)
    data_dir.close(NOW)
    data_dir.close(NOW)
    assert audit_directory(ROOT, disk).findings == []
    survivor = after_cut(disk)
    again = open_dir(survivor)
    assert again.stopped_cleanly
    assert again.notices == []
    log = again.topics["t"].logs[0]
    assert (log.log_end_offset, log.recovery_report.scanned_bytes) == (9, 0)


def test_case_82_crash_during_loading_after_a_clean_stop_is_a_crash() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    produce(run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0], 9)
    data_dir.close(NOW)
    states = []

    def look(operation: Operation, path: str) -> None:
        gone = not disk.exists(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
        if gone and path.startswith(f"{ROOT}/t-0"):
            states.append(disk.power_cut(0, Survival.LOST))

    disk.before_operation = look
    open_dir(disk)
    assert states
    for state in states:
        assert not open_dir(state).stopped_cleanly


def test_marker_is_gone_before_any_log_is_touched() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    data_dir.close(NOW)
    touched_with_marker = []

    def look(operation: Operation, path: str) -> None:
        if path.startswith(f"{ROOT}/t-0"):
            marked = disk.power_cut(0, Survival.LOST).exists(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
            touched_with_marker.append(marked)

    disk.before_operation = look
    open_dir(disk)
    assert touched_with_marker
    assert not any(touched_with_marker)


def test_log_that_cannot_be_closed_keeps_the_marker_away() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    produce(log)
    disk.fault = Fault(at=0, kinds=frozenset({Operation.SYNC}))
    with pytest.raises(StorageFailed):
        data_dir.close(NOW)
    assert not disk.exists(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}")
    disk.lock(f"{ROOT}/.lock").release()


def test_case_54_and_79_corrupt_recovery_points_are_taken_for_none() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    produce(log, 3)
    log.flush()
    run_steps(data_dir.checkpoint())
    disk.replace_atomically(f"{ROOT}/{RECOVERY_POINT_FILE}", b"0\n9\nt 0")
    unclean = open_dir(disk.power_cut(0, Survival.KEPT))
    assert any("taken for empty" in notice for notice in unclean.notices)
    assert unclean.topics["t"].logs[0].recovery_report.scanned_bytes > 0
    data_dir.close(NOW)
    disk.replace_atomically(f"{ROOT}/{RECOVERY_POINT_FILE}", b"junk")
    clean = open_dir(disk)
    assert clean.topics["t"].logs[0].recovery_report.scanned_bytes == 0


def test_checkpoints_hold_what_the_logs_say() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    log = run_steps(data_dir.create_topic("t", 1, {}, NOW)).logs[0]
    produce(log, 5)
    log.flush()
    produce(log, 2)
    log.delete_before(3)
    run_steps(data_dir.checkpoint())
    assert read_offsets(ROOT, RECOVERY_POINT_FILE, disk) == {("t", 0): 5}
    assert read_offsets(ROOT, HIGH_WATERMARK_FILE, disk) == {("t", 0): 5}
    assert read_offsets(ROOT, LOG_START_FILE, disk) == {("t", 0): 3}


def test_failing_checkpoint_is_reported_and_harmless() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    disk.fault = Fault(at=0)
    with pytest.raises(StorageFailed, match="checkpoint"):
        run_steps(data_dir.checkpoint())
    run_steps(data_dir.checkpoint())


def test_unclean_start_raises_the_epoch_of_topics_that_are_not_flushed() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    lazy = run_steps(data_dir.create_topic("lazy", 1, {"flush.policy": "os"}, NOW)).logs[0]
    strict = run_steps(data_dir.create_topic("strict", 1, {}, NOW)).logs[0]
    produce(lazy, 3)
    produce(strict, 3)
    before = (lazy.leader_epoch, strict.leader_epoch)
    survivor = after_cut(disk, Survival.KEPT)
    again = open_dir(survivor)
    logs = (again.topics["lazy"].logs[0], again.topics["strict"].logs[0])
    assert (logs[0].leader_epoch, logs[1].leader_epoch) == (before[0] + 1, before[1])
    third = open_dir(after_cut(survivor))
    assert third.topics["lazy"].logs[0].leader_epoch == before[0] + 2


# --- what else lies in the directory ------------------------------------------------------------


def test_a_missing_partition_directory_that_had_records_is_not_made_again() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    produce(run_steps(data_dir.create_topic("t", 3, {}, NOW)).logs[1], 4)
    data_dir.close(NOW)
    for partition in (1, 2):
        disk.remove_tree(f"{ROOT}/t-{partition}")
    again = open_dir(disk)
    first, second, third = again.topics["t"].logs
    assert (first.offline_reason, third.offline_reason) == (None, None)
    assert second.offline_reason is not None
    assert "/t-1 is missing; offsets up to 3 were durable in it" in second.offline_reason
    assert not disk.exists(f"{ROOT}/t-1")
    produce(third, 1)


def test_partition_of_no_topic_is_kept_aside_and_never_served() -> None:
    disk = SimulatedDisk()
    open_dir(disk).close(NOW)
    disk.make_directory(f"{ROOT}/old-0")
    disk.replace_atomically(f"{ROOT}/old-0/00000000000000000000.log", b"precious")
    again = open_dir(disk)
    assert again.topics == {}
    kept = [name for name in disk.list_directory(ROOT) if name.startswith("old-0")]
    assert [name[-6:] for name in kept] == ["-stray"]
    assert disk.read_all(f"{ROOT}/{kept[0]}/00000000000000000000.log") == b"precious"
    assert run_steps(again.create_topic("old", 1, {}, NOW)).logs[0].log_end_offset == 0
    again.close(NOW)
    open_dir(disk)
    assert disk.exists(f"{ROOT}/{kept[0]}")


def test_directory_of_another_topic_id_is_kept_aside() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    data_dir.close(NOW)
    disk.replace_atomically(f"{ROOT}/t-0/partition.metadata", format_partition_metadata(b"x" * 16))
    again = open_dir(disk)
    assert any("kept as t-0." in notice for notice in again.notices)
    assert again.topics["t"].logs[0].log_end_offset == 0


def test_broken_partition_metadata_is_written_again() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    topic = run_steps(data_dir.create_topic("t", 1, {}, NOW))
    data_dir.close(NOW)
    disk.replace_atomically(f"{ROOT}/t-0/partition.metadata", b"")
    open_dir(disk)
    assert disk.read_all(f"{ROOT}/t-0/partition.metadata") == format_partition_metadata(
        topic.topic_id
    )


def test_unknown_files_and_directories_are_left_alone() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    data_dir.close(NOW)
    disk.make_directory(f"{ROOT}/backup")
    disk.replace_atomically(f"{ROOT}/backup/x", b"1")
    disk.replace_atomically(f"{ROOT}/notes.txt", b"2")
    again = open_dir(disk)
    assert any("unknown directories: backup" in notice for notice in again.notices)
    again.close(NOW)
    assert disk.read_all(f"{ROOT}/backup/x") == b"1"
    assert disk.read_all(f"{ROOT}/notes.txt") == b"2"


def test_directory_of_apache_kafka_is_adopted() -> None:
    disk = SimulatedDisk()
    source = open_dir(disk)
    topic = run_steps(source.create_topic("flights", 2, {}, NOW))
    produce(topic.logs[1], 6)
    source.close(NOW)
    # What distinguishes a directory of Kafka's: no journal; other topics only in part.
    disk.unlink(f"{ROOT}/metadata.journal")
    disk.make_directory(f"{ROOT}/partial-3")
    adopted = open_dir(disk)
    found = adopted.topics["flights"]
    assert found.topic_id == topic.topic_id
    assert [log.log_end_offset for log in found.logs] == [0, 6]
    assert list(adopted.topics) == ["flights"]
    assert any("adopted 1 topic by" in notice for notice in adopted.notices)
    assert any("other brokers hold the rest" in notice for notice in adopted.notices)
    assert found.config.retention_ms == -1, "what was set is not known, so nothing is deleted"


def test_directory_with_a_metadata_log_of_kafka_is_left_to_import() -> None:
    disk = SimulatedDisk()
    open_dir(disk).close(NOW)
    disk.unlink(f"{ROOT}/metadata.journal")
    disk.make_directory(f"{ROOT}/__cluster_metadata-0")
    with pytest.raises(ForeignDataDir, match="tidelog import"):
        open_dir(disk)
    assert not disk.exists(f"{ROOT}/metadata.journal")


def test_progress_is_reported_per_partition() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 3, {}, NOW))
    data_dir.close(NOW)
    steps: list[tuple[int, int]] = []
    DataDir.open(
        ROOT,
        files=disk,
        broker_config=config(),
        now_ms=NOW,
        progress=lambda loaded, total: steps.append((loaded, total)),
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_journal_tail_that_was_cut_is_reported() -> None:
    disk = SimulatedDisk()
    open_dir(disk)
    disk.open(f"{ROOT}/metadata.journal").append(b"1234abcd {")
    again = open_dir(disk.power_cut(0, Survival.KEPT))
    assert any("cut 10 bytes" in notice for notice in again.notices)


def test_settings_that_are_no_longer_known_are_left_out_and_reported() -> None:
    disk = SimulatedDisk()
    data_dir = open_dir(disk)
    run_steps(data_dir.create_topic("t", 1, {}, NOW))
    data_dir.metadata.set_broker_overrides({"no.such": "1"})
    metadata = data_dir.metadata.topics()["t"]
    data_dir.metadata.put_topic(
        type(metadata)(
            name="t", topic_id=metadata.topic_id, partitions=1, overrides={"none.such": "2"}
        )
    )
    again = open_dir(after_cut(disk))
    assert sum("left out" in notice for notice in again.notices) == 2
    assert again.topics["t"].overrides == {}
