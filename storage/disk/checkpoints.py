"""The small text files of a data directory: offsets, identities, and the clean-stop marker.

Owns the formats below, both directions, byte for byte as Apache Kafka has them. Refuses to decide
the effect of a missing or broken one. Reading raises `CorruptCheckpoint`, and the callers differ: a
broken offset checkpoint is a lost hint, a broken `meta.properties` stops the start.

Every file is replaced atomically and is durable when the writing function returns.

| file                             | where         | content                                    |
|----------------------------------|---------------|--------------------------------------------|
| recovery-point-offset-checkpoint | root          | below it, the log is known to be on disk   |
| log-start-offset-checkpoint      | root          | log start, where it is not a segment base  |
| replication-offset-checkpoint    | root          | high watermarks                            |
| cleaner-offset-checkpoint        | root          | first dirty offset of compacted logs       |
| meta.properties                  | root          | the directory's owner: cluster and node    |
| .kafka_cleanshutdown             | root          | exists only after a clean stop             |
| partition.metadata               | partition dir | the topic's id                             |

The four offset checkpoints and `leader-epoch-checkpoint` share one frame: a line with the format
version, a line with the number of entries, one line per entry:

    0
    2
    flights 0 1500
    flights 1 1622

An empty file has no entries.

Source: Kafka `CheckpointFile`, `OffsetCheckpointFile`, `PartitionMetadataFile`,
`MetaProperties`, `CleanShutdownFileHandler`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from protocol.records.layout import INT64_MAX
from storage.disk.files import Files
from storage.errors import StorageError
from values.dataclasses import dataclass

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
META_PROPERTIES_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE: Final = "partition.metadata"

CHECKPOINT_VERSION: Final = 0
META_PROPERTIES_VERSION: Final = 1
ZERO_UUID: Final = bytes(16)

_INT64_DIGITS: Final = 19
_UUID_BYTES: Final = 16
_UUID_TEXT_LENGTH: Final = 22

OffsetsByPartition = Mapping[tuple[str, int], int]
RandomBytes = Callable[[int], bytes]


class CorruptCheckpoint(StorageError):
    """The content of a small file breaks its format; the message says where."""


class UnknownVersion(CorruptCheckpoint):
    """The file is of a version that this program does not know, and probably newer."""


# --- the frame of all checkpoints ---------------------------------------------------------------


def format_checkpoint(lines: Iterable[str]) -> bytes:
    """The file for these entry lines."""
    entries = list(lines)
    return "".join(
        f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(entries)), *entries)
    ).encode()


def parse_checkpoint(content: bytes) -> list[str]:
    """The entry lines; none when the file is empty.

    Raises:
        CorruptCheckpoint: wrong version, or the number of lines differs from the count.
    """
    if not content:
        return []
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"not text: {error.reason} at byte {error.start}") from None
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise CorruptCheckpoint("expected a version and a count, found one line")
    if lines[0] != str(CHECKPOINT_VERSION):
        raise CorruptCheckpoint(f"expected version {CHECKPOINT_VERSION}, found {lines[0]!r}")
    entries = lines[2:]
    if lines[1] != str(len(entries)):
        raise CorruptCheckpoint(f"expected {lines[1]!r} entries, found {len(entries)}")
    return entries


def is_number(text: str) -> bool:
    """Whether `text` is a number from 0 to 2^63-1 in plain digits."""
    return (
        0 < len(text) <= _INT64_DIGITS
        and text.isascii()
        and text.isdigit()
        and int(text) <= INT64_MAX
    )


# --- offsets per partition ----------------------------------------------------------------------


def format_offsets(offsets: OffsetsByPartition) -> bytes:
    """The checkpoint file for these offsets, ordered by topic and partition."""
    return format_checkpoint(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def parse_offsets(content: bytes) -> dict[tuple[str, int], int]:
    """The offsets by (topic, partition).

    Raises:
        CorruptCheckpoint: as `parse_checkpoint`, or a line is not `topic partition offset`.
    """
    offsets: dict[tuple[str, int], int] = {}
    for line in parse_checkpoint(content):
        fields = line.split(" ")
        if len(fields) != 3 or not (is_number(fields[1]) and is_number(fields[2])):
            raise CorruptCheckpoint(f"expected topic, partition and offset, found {line!r}")
        key = (fields[0], int(fields[1]))
        if key in offsets:
            raise CorruptCheckpoint(f"{fields[0]}-{fields[1]} is listed twice")
        offsets[key] = int(fields[2])
    return offsets


def read_offsets(directory: str, name: str, files: Files) -> dict[tuple[str, int], int]:
    """The offsets in one of the root's checkpoint files; none when there is no such file.

    Raises:
        CorruptCheckpoint: see `parse_offsets`.
    """
    try:
        return parse_offsets(files.read_all(f"{directory}/{name}"))
    except FileNotFoundError:
        return {}


def known_offsets(directory: str, name: str, files: Files) -> dict[tuple[str, int], int]:
    """As `read_offsets`; none in a corrupt file, which a start treats as empty."""
    try:
        return read_offsets(directory, name, files)
    except CorruptCheckpoint:
        return {}


def write_offsets(directory: str, name: str, offsets: OffsetsByPartition, files: Files) -> None:
    """Replace one of the root's checkpoint files."""
    files.replace_atomically(f"{directory}/{name}", format_offsets(offsets))


# --- identities ---------------------------------------------------------------------------------


def random_uuid(random_bytes: RandomBytes) -> bytes:
    """A new id. Its text never begins with a dash, which command lines would read as an option."""
    while True:
        uuid = random_bytes(_UUID_BYTES)
        if uuid != ZERO_UUID and not format_uuid(uuid).startswith("-"):
            return uuid


def format_uuid(uuid: bytes) -> str:
    """Kafka's text form of a 16-byte id: 22 characters of URL-safe base64, no padding."""
    assert len(uuid) == _UUID_BYTES
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's text form.

    Raises:
        CorruptCheckpoint: it is not 22 characters of URL-safe base64.
    """
    if len(text) == _UUID_TEXT_LENGTH and text.isascii():
        try:
            return base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except binascii.Error:
            pass
    raise CorruptCheckpoint(f"expected an id of {_UUID_TEXT_LENGTH} base64 letters, found {text!r}")


def format_partition_metadata(topic_id: bytes) -> bytes:
    """The content of `partition.metadata`; no newline at its end, as in Kafka."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


def parse_partition_metadata(content: bytes) -> bytes:
    """The topic id in `partition.metadata`.

    Raises:
        CorruptCheckpoint: another layout, a negative version, or the all-zero id.
    """
    lines = content.decode(errors="replace").split("\n")
    if len(lines) < 2 or not lines[0].startswith("version: ") or not is_number(lines[0][9:]):
        raise CorruptCheckpoint(f"expected a version line, found {lines[0]!r}")
    if not lines[1].startswith("topic_id: "):
        raise CorruptCheckpoint(f"expected a topic_id line, found {lines[1]!r}")
    topic_id = parse_uuid(lines[1][10:])
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint("the topic id is all zero")
    return topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a data directory; `directory_id` is None in directories of old Kafkas."""

    node_id: int
    cluster_id: str
    directory_id: bytes | None = None


def format_meta_properties(meta: MetaProperties) -> bytes:
    """The content of `meta.properties`, version 1, in the order Kafka sorts it."""
    lines = ["#", f"cluster.id={_escape(meta.cluster_id)}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={format_uuid(meta.directory_id)}")
    lines += [f"node.id={meta.node_id}", f"version={META_PROPERTIES_VERSION}"]
    return "".join(f"{line}\n" for line in lines).encode()


def parse_meta_properties(content: bytes) -> MetaProperties:
    """The owner of the directory, from version 1 or the older version 0 (`broker.id`).

    Raises:
        UnknownVersion: neither 0 nor 1.
        CorruptCheckpoint: a key is missing, or a value is no number or id.
    """
    properties = _parse_properties(content.decode(errors="replace"))
    version = properties.get("version", "0")
    if version not in ("0", "1"):
        raise UnknownVersion(f"version {version!r}, known are 0 and 1")
    id_key = "node.id" if version == "1" else "broker.id"
    node_id = properties.get(id_key, "")
    if not is_number(node_id):
        raise CorruptCheckpoint(f"expected {id_key} to be a number, found {node_id!r}")
    cluster_id = properties.get("cluster.id", "")
    if not cluster_id:
        raise CorruptCheckpoint("cluster.id is missing")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        node_id=int(node_id),
        cluster_id=cluster_id,
        directory_id=None if directory_id is None else parse_uuid(directory_id),
    )


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("=", "\\=").replace(":", "\\:")


def _parse_properties(text: str) -> dict[str, str]:
    """Java properties without line continuation and `\\uXXXX`, which are never written here."""
    properties = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator:
            raise CorruptCheckpoint(f"expected key=value, found {stripped!r}")
        properties[key.strip()] = _unescape(value.strip())
    return properties


def _unescape(value: str) -> str:
    characters = iter(value)
    return "".join(
        next(characters, "") if character == "\\" else character for character in characters
    )


# --- the clean-stop marker ----------------------------------------------------------------------


def write_clean_shutdown(directory: str, files: Files, unclean: Iterable[str] = ()) -> None:
    """Store that everything in the directory is durable. The last write of a clean stop.

    `unclean` names the partitions of which this is not known, as `read_unclean` returns them.
    """
    content: dict[str, Any] = {"version": 0, "brokerEpoch": -1}
    names = sorted(unclean)
    if names:
        content["unclean"] = names
    text = json.dumps(content, separators=(",", ":")).encode()
    files.replace_atomically(f"{directory}/{CLEAN_SHUTDOWN_FILE}", text)


def read_unclean(directory: str, files: Files) -> frozenset[str]:
    """The names of the partitions that a clean stop left as it had found them: in quarantine."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not files.exists(path):
        return frozenset()
    try:
        content = json.loads(files.read_all(path))
    except ValueError:  # Kafka has written it empty
        return frozenset()
    names = content.get("unclean", []) if isinstance(content, dict) else []
    return frozenset(map(str, names))


def take_clean_shutdown(directory: str, files: Files) -> bool:
    """Whether the last stop was clean; the marker is durably removed on return.

    Only its existence counts, as in Kafka (older ones wrote it empty). It is removed before any log
    is opened: a start after a crash during loading must not find it again (KAFKA-10471).
    """
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not files.exists(path):
        return False
    files.unlink(path)
    files.sync_directory(directory)
    return True
