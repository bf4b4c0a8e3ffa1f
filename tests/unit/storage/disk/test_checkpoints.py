"""The small text files: their bytes are Kafka's, and what is broken is reported as broken."""

from pathlib import Path

import pytest

from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    MetaProperties,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    format_uuid,
    parse_checkpoint,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
    parse_uuid,
    read_offsets,
    read_unclean,
    take_clean_shutdown,
    write_clean_shutdown,
    write_offsets,
)
from storage.disk.files import RealFiles

TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def test_offset_checkpoint_bytes_are_kafkas() -> None:
    content = format_offsets({("flights", 1): 1622, ("flights", 0): 1500})
    assert content == b"0\n2\nflights 0 1500\nflights 1 1622\n"
    assert parse_offsets(content) == {("flights", 0): 1500, ("flights", 1): 1622}


def test_empty_file_has_no_entries() -> None:
    assert parse_checkpoint(b"") == []
    assert parse_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"0",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 -1\n",
        b"0\n2\na 0 1\na 0 2\n",
        b"\xff\n0\n",
        b"\0" * 64,
    ],
)
def test_broken_offset_checkpoint_is_reported(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_offsets(content)


def test_every_truncation_of_a_checkpoint_is_reported_or_empty() -> None:
    content = format_offsets({("a", 0): 15, ("b", 12): 7})
    for size in range(1, len(content) - 2):
        with pytest.raises(CorruptCheckpoint):
            parse_offsets(content[:size])


def test_offsets_are_written_and_read_back(tmp_path: Path) -> None:
    files = RealFiles()
    assert read_offsets(str(tmp_path), RECOVERY_POINT_FILE, files) == {}
    write_offsets(str(tmp_path), RECOVERY_POINT_FILE, {("a", 3): 9}, files)
    assert read_offsets(str(tmp_path), RECOVERY_POINT_FILE, files) == {("a", 3): 9}
    assert [path.name for path in tmp_path.iterdir()] == [RECOVERY_POINT_FILE]


def test_uuid_text_is_url_safe_base64_without_padding() -> None:
    assert format_uuid(TOPIC_ID) == TOPIC_ID_TEXT
    assert parse_uuid(TOPIC_ID_TEXT) == TOPIC_ID
    assert parse_uuid(format_uuid(b"\xff" * 16)) == b"\xff" * 16


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "!" * 22, "é" * 22])
def test_uuid_text_of_another_shape_is_reported(text: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_uuid(text)


def test_partition_metadata_bytes_are_kafkas() -> None:
    content = format_partition_metadata(TOPIC_ID)
    assert content == b"version: 0\ntopic_id: " + TOPIC_ID_TEXT.encode()
    assert parse_partition_metadata(content) == TOPIC_ID
    assert parse_partition_metadata(content.replace(b"version: 0", b"version: 3")) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: " + TOPIC_ID_TEXT.encode(),
        b"version: 0\ntopic: " + TOPIC_ID_TEXT.encode(),
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"\0" * 40,
    ],
)
def test_broken_partition_metadata_is_reported(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        parse_partition_metadata(content)


def test_meta_properties_are_what_kafka_reads() -> None:
    meta = MetaProperties(node_id=3, cluster_id="kl-1=x", directory_id=TOPIC_ID)
    content = format_meta_properties(meta)
    assert content == (
        b"#\ncluster.id=kl-1\\=x\ndirectory.id="
        + TOPIC_ID_TEXT.encode()
        + b"\nnode.id=3\nversion=1\n"
    )
    assert parse_meta_properties(content) == meta


def test_meta_properties_of_kafka_are_read() -> None:
    content = b"#\n#Sat Nov 21 2026\nnode.id=1\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    assert parse_meta_properties(content) == MetaProperties(
        node_id=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg"
    )


def test_meta_properties_version_0_name_the_node_broker() -> None:
    assert parse_meta_properties(b"broker.id=7\ncluster.id=c\n").node_id == 7


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"version=2\nnode.id=1\ncluster.id=c\n", "version '2', known are 0 and 1"),
        (b"version=1\nbroker.id=1\ncluster.id=c\n", "node.id"),
        (b"version=1\nnode.id=one\ncluster.id=c\n", "found 'one'"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=x\n", "found 'x'"),
        (b"\0\0\0", "key=value"),
        (b"", "broker.id"),
    ],
)
def test_broken_meta_properties_are_reported(content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=complaint):
        parse_meta_properties(content)


def test_clean_shutdown_marker_is_taken_once(tmp_path: Path) -> None:
    files = RealFiles()
    assert not take_clean_shutdown(str(tmp_path), files)
    write_clean_shutdown(str(tmp_path), files)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert take_clean_shutdown(str(tmp_path), files)
    assert not take_clean_shutdown(str(tmp_path), files)


def test_clean_shutdown_marker_names_partitions_that_did_not_stop_cleanly(tmp_path: Path) -> None:
    files = RealFiles()
    assert read_unclean(str(tmp_path), files) == frozenset()
    write_clean_shutdown(str(tmp_path), files, ["t-1", "a-0"])
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes() == (
        b'{"version":0,"brokerEpoch":-1,"unclean":["a-0","t-1"]}'
    )
    assert read_unclean(str(tmp_path), files) == {"t-1", "a-0"}
    assert take_clean_shutdown(str(tmp_path), files)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version":0,"brokerEpoch":-1}', b"\xff"])
def test_any_other_marker_names_no_partition(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_bytes(content)
    assert read_unclean(str(tmp_path), RealFiles()) == frozenset()


def test_empty_marker_of_an_old_kafka_counts(tmp_path: Path) -> None:
    (tmp_path / CLEAN_SHUTDOWN_FILE).touch()
    assert take_clean_shutdown(str(tmp_path), RealFiles())
