"""Kafka's DumpLogSegments as a judge of a data directory, and a broker seen from outside.

The tool prints what it finds and ends with 0 whatever that is, so the verdict is read from its
output: any line that is not one of the known good ones about a batch, a record or a passed check is
a finding. `test_judge` shows that it does find.
"""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from storage.disk.file_names import (
    AUXILIARY_SUFFIXES,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from storage.kafka.kraft_metadata import METADATA_DIRECTORY
from tests.roundtrip.workload import GROUP, TXN_GROUP, probe_times
from tests.support.kafka_peer import tool_command
from tests.support.wire import READ_COMMITTED, Found, Seen, Wire

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMP_TIMEOUT_S = 180
TIMES_SEED = 33

_GOOD = re.compile(
    r"Dumping .*"
    r"|Log starting offset: \d+"
    r"|baseOffset: .* isvalid: true"
    r"|\| offset: .*"
    r"|.* passed sanity check\."
    r"|.*index is empty\."
    r"|offset: \d+ position: \d+"
    r"|timestamp: -?\d+ offset: \d+"
    r"|producerId: .*"
    r"|version: 0 producerId: .*"
)
_FIRST_GAP = re.compile(r"-1 is followed by (\d+)")


def findings(directory: Path) -> list[str]:
    """What Kafka's tool has against the partitions below `directory`; empty when nothing."""
    files = [
        str(file)
        for partition in sorted(directory.iterdir())
        if parse_partition_directory_name(partition.name) and partition.is_dir()
        for file in sorted(partition.iterdir())
        if (parsed := parse_segment_file_name(file.name))
        and not parsed.stage
        # Of files that only Tidelog has it says that it ignores them.
        and parsed.kind not in AUXILIARY_SUFFIXES
    ]
    assert files, f"no segments below {directory}"
    indexes = [name for name in files if name.endswith("index")]
    return [
        *_dump(files, "--deep-iteration", "--verify-index-only"),
        *_dump(indexes, "--index-sanity-check"),
        *_dump(files, "--deep-iteration"),
    ]


def metadata_problems(directory: Path) -> list[str]:
    """What the tool has against an exported snapshot of the cluster's metadata."""
    (snapshot,) = (directory / METADATA_DIRECTORY).iterdir()
    command = tool_command(DUMP, "--cluster-metadata-decoder", "--files", str(snapshot))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S, check=False
    )
    lines = done.stdout.splitlines()
    assert any('"type":"TOPIC_RECORD"' in line for line in lines), done.stdout[:1000]
    marks = ("isvalid: false", "rror", "xception", "invalid", "unknown")
    return [line for line in lines if any(mark in line for mark in marks)]


def _dump(files: Iterable[str], *options: str) -> list[str]:
    command = tool_command(DUMP, *options, "--files", ",".join(files), heap="512m")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S, check=False
    )
    lines = [*done.stdout.splitlines(), *_without_warnings(done.stderr)]
    found = [
        line
        for line in _without_first_gaps(lines)
        if line.strip() and not _GOOD.fullmatch(line.strip())
    ]
    return found if done.returncode == 0 else [*found, f"ended with {done.returncode}"]


def _without_first_gaps(lines: Sequence[str]) -> list[str]:
    """Without what the tool says of every segment, Kafka's own too, but a log's first.

    It reports the step from -1, where it starts counting, to the segment's base offset.
    """
    kept: list[str] = []
    for line in lines:
        gap = _FIRST_GAP.fullmatch(line.strip())
        if gap and kept and kept[-1].endswith(f"/{int(gap[1]):020d}.log"):
            kept.pop()
        else:
            kept.append(line)
    return kept


def _without_warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(("SLF4J", "WARNING:"))]


@dataclass(frozen=True)
class View:
    """What a broker tells clients of everything it has; two views are equal or differ somewhere."""

    cluster_id: str
    topics: dict[str, tuple[bytes, int]]
    settings: dict[str, dict[str, str]]
    records: dict[tuple[str, int], list[Seen]]
    ends: dict[tuple[str, int], tuple[int, int, int]]
    lookups: dict[tuple[str, int, int, int], Found]
    committed: dict[str, dict[tuple[str, int], tuple[int, str]]]


def view(wire: Wire) -> View:
    """Look at everything that `tests.roundtrip.workload` writes."""
    topics = {name: found for name, found in wire.topics().items() if not name.startswith("__")}
    partitions = [(name, p) for name, (_, count) in sorted(topics.items()) for p in range(count)]
    records, ends, lookups = {}, {}, {}
    times = list(probe_times(Random(TIMES_SEED)))
    for name, partition in partitions:
        start = wire.offset_at(name, -2, partition=partition).offset
        got = wire.fetch(name, start, partition=partition)
        ends[name, partition] = (start, got.last_stable_offset, got.high_watermark)
        records[name, partition] = wire.fetch_all(name, start, partition=partition)
        for isolation in (0, READ_COMMITTED) if name == "transactions" else (0,):
            for time_ms in times:
                lookups[name, partition, time_ms, isolation] = _found(
                    wire, name, partition, time_ms, isolation, is_empty=not records[name, partition]
                )
    return View(
        cluster_id=wire.cluster_id(),
        topics=topics,
        settings={name: wire.topic_settings(name) for name in topics},
        records=records,
        ends=ends,
        lookups=lookups,
        committed={group: wire.committed(group) for group in (GROUP, TXN_GROUP)},
    )


def _found(
    wire: Wire, name: str, partition: int, time_ms: int, isolation: int, *, is_empty: bool
) -> Found:
    found = wire.offset_at(name, time_ms, partition=partition, version=7, isolation=isolation)
    # The end's epoch is the leader's, which a new leader begins: it differs after every move. So
    # does the start's while there is no record yet.
    is_leaders = time_ms == -1 or (time_ms == -2 and is_empty)
    return found._replace(leader_epoch=-1) if is_leaders else found


def differences(before: View, after: View) -> list[object]:
    """Each fact in which the second view is not the first, in words; lookups once per topic."""
    found: list[object] = []
    if before.cluster_id != after.cluster_id:
        found.append(f"cluster id {before.cluster_id}, then {after.cluster_id}")
    for name in ("topics", "settings", "records", "ends", "committed"):
        old, new = getattr(before, name), getattr(after, name)
        found += [
            f"{name} {key}: {_short(old.get(key))}, then {_short(new.get(key))}"
            for key in [*old, *(key for key in new if key not in old)]
            if old.get(key) != new.get(key)
        ]
    other = {key for key, found in before.lookups.items() if after.lookups.get(key) != found}
    other |= {key for key in after.lookups if key not in before.lookups}
    return [*found, *sorted({("lookups", topic, time_ms) for topic, _, time_ms, _ in other})]


def _short(fact: object) -> str:
    text = repr(fact)
    return text if len(text) < 200 else f"{text[:200]}... ({len(text)} characters)"
