"""The names of files and directories, both directions.

Owns the rule for the names of a segment's files: the base offset, written with 20 digits so that
sorting names sorts offsets, followed by one suffix for the kind of content and at most one for the
stage in the file's life:

| stage suffix | meaning                                            | at start-up            |
|--------------|----------------------------------------------------|------------------------|
| (none)       | in use                                             | loaded                 |
| `.deleted`   | renamed away, to be unlinked later                 | unlinked               |
| `.cleaned`   | output of a rewrite that did not get to its end    | unlinked               |
| `.swap`      | output of a finished rewrite, about to replace     | replaces what it covers|

Directories of partitions are `<topic>-<partition>`. A directory waiting for its removal has been
renamed to end in `-delete`, with random digits so that the topic can be created again at once.

Source: Kafka `LogFileUtils`, `LocalLog`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.records.layout import INT32_MAX, INT64_MAX

OFFSET_DIGITS: Final = 20

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
DENSITY_SUFFIX: Final = ".density"
TIME_COUNTS_SUFFIX: Final = ".counts"
SNAPSHOT_SUFFIX: Final = ".snapshot"
AUXILIARY_SUFFIXES: Final = (DENSITY_SUFFIX, TIME_COUNTS_SUFFIX)
"""Of optional indexes that Kafka does not have; see `storage.segment.auxiliary_index`."""

INDEX_SUFFIXES: Final = (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    *AUXILIARY_SUFFIXES,
)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

MANIFEST_NAME: Final = "segment-manifest"

DELETED_DIRECTORY_SUFFIX: Final = "-delete"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
LOST_AND_FOUND: Final = "lost+found"
DIRECTORY_NAME_MAX: Final = 255

OFFSET_MAX: Final = INT64_MAX - INT32_MAX
"""No segment can begin above it: offsets up to 2^31 above its base have to fit into 63 bits."""

_SUFFIX_PATTERN: Final = "|".join(map(re.escape, (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)))
_RESEMBLES_SEGMENT = re.compile(
    rf"-?\w*\d\w*({_SUFFIX_PATTERN})(\.(deleted|cleaned|swap))?", re.IGNORECASE
)
_PARTITION_DIRECTORY = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
)


class SegmentFileName(NamedTuple):
    """The parts of the name of a segment's file; `stage` is empty for a file in use."""

    base_offset: int
    kind: str
    stage: str = ""

    @property
    def is_log(self) -> bool:
        """Whether it is the `.log` of a segment in use."""
        return self.kind == LOG_SUFFIX and not self.stage

    def format(self) -> str:
        """The name, without directory."""
        return f"{self.base_offset:020d}{self.kind}{self.stage}"


_ENDINGS: Final = {
    kind + stage: (kind, stage)
    for kind in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
    for stage in ("", DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
}


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """The parts of `name`, or None when it is not the name of a segment's file.

    >>> parse_segment_file_name("00000000000000000042.timeindex").base_offset
    42
    """
    # A start calls this for tens of thousands of names.
    ending = _ENDINGS.get(name[OFFSET_DIGITS:])
    digits = name[:OFFSET_DIGITS]
    if ending is None or not (digits.isascii() and digits.isdigit()):
        return None
    base_offset = int(digits)
    return SegmentFileName(base_offset, *ending) if base_offset <= OFFSET_MAX else None


def parsed_names(names: Iterable[str]) -> list[SegmentFileName]:
    """Those of `names` that are names of segment files."""
    parsed = (parse_segment_file_name(name) for name in names)
    return [name for name in parsed if name is not None]


def resembles_segment_file(name: str) -> bool:
    """Whether `name` could be mistaken for the name of a segment's file, but is none.

    >>> resembles_segment_file("42.log"), resembles_segment_file("notes.txt")
    (True, False)
    """
    return parse_segment_file_name(name) is None and _RESEMBLES_SEGMENT.fullmatch(name) is not None


def segment_file_path(directory: str, base_offset: int, kind: str) -> str:
    """The path of one file of a segment; `kind` is one of the suffixes above.

    >>> segment_file_path("d", 7, LOG_SUFFIX)
    'd/00000000000000000007.log'
    """
    return f"{directory}/{base_offset:020d}{kind}"


def offset_file_name(offset: int, suffix: str) -> str:
    """The name of a file that consists of an offset and a suffix.

    >>> offset_file_name(7, SNAPSHOT_SUFFIX)
    '00000000000000000007.snapshot'
    """
    return f"{offset:020d}{suffix}"


def partition_directory_name(topic: str, partition: int) -> str:
    """The directory of a partition, relative to the data directory."""
    return f"{topic}-{partition}"


def parse_partition_directory_name(name: str) -> tuple[str, int] | None:
    """Topic and partition, or None when `name` is not the directory of a partition in use."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > INT32_MAX:
        return None
    return match["topic"], int(match["partition"])


def deleted_directory_name(topic: str, partition: int, unique: str) -> str:
    """The name under which a partition's directory waits for its removal.

    `unique` is 32 hexadecimal digits; the topic is cut where the name would be too long.
    """
    ending = f"-{partition}.{unique}{DELETED_DIRECTORY_SUFFIX}"
    return topic[: DIRECTORY_NAME_MAX - len(ending)] + ending


def is_removal_due(due_ms: int, now_ms: int, delay_ms: int) -> bool:
    """Whether a deleted file or directory may be removed; it was due `delay_ms` after its deletion.

    One that is due much later than that was deleted when the clock was ahead: it is due as well,
    or it would use the disk until the next start. A small step backward shortens no delay.
    """
    return not now_ms < due_ms <= now_ms + 2 * delay_ms
