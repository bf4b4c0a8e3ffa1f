"""lag: how far groups are behind, in records and in seconds.

Seconds are event time: the youngest record of the partition less the record the group would read
next. A Spark query commits no group, so its checkpoint can be given instead: the last file below
`offsets/` says where it is, for our source and for Spark's own.

Needs no Spark: a few questions for each partition. `output` appends a Parquet file, so that runs
on a timer make a history.

Read next: `pipeline.marks`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.batches import DecodeRules
from pipeline.by_time import youngest_ms
from pipeline.cluster import LATEST, Cluster
from pipeline.errors import BadOptions, DataLoss
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.marks import MARK_PREFIX, committed, groups
from pipeline.option_reader import OptionReader, local_path
from pipeline.options import ConnectionOptions, TopicPartition, parse_connection
from pipeline.reading import RangeReader
from pipeline.splits import OffsetRange
from protocol.records.layout import NO_TIMESTAMP

_FETCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSettings:
    """Whose lag; no groups and no checkpoints means all groups."""

    options: Mapping[str, str]
    groups: Sequence[str] = ()
    checkpoints: Sequence[str] = ()
    output: str = ""
    dry_run: bool = False


def lag(settings: LagSettings, progress: Progress = silent) -> Outcome:
    """One row for each group and partition.

    Raises:
        BadOptions: no bootstrap address, or a directory that is no checkpoint.
        BrokerRefused: a group is denied.
    """
    with Cluster(connection_of(settings.options)) as cluster:
        progress("ask")
        names = settings.groups or ([] if settings.checkpoints else groups(cluster))
        places: dict[str, dict[TopicPartition, int]] = {
            name: {
                tp: found.offset
                for tp, found in committed(cluster, name).items()
                if settings.groups or not found.metadata.startswith(MARK_PREFIX)
            }
            for name in names
        }
        places = {name: offsets for name, offsets in places.items() if offsets}
        places |= {path: checkpoint_offsets(path) for path in settings.checkpoints}
        rows = [row for name, offsets in places.items() for row in _rows(cluster, name, offsets)]
    if not rows:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no group has committed anything")
    if settings.output and not settings.dry_run:
        folder = local_path(settings.output)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / f"lag-{time.time_ns()}.parquet")
    records = sum(row["lag_records"] for row in rows)
    seconds = max(row["lag_seconds"] or 0.0 for row in rows)
    return Outcome(
        sentence=f"{len(places)} groups, {records:,} records behind, at most {seconds:,.1f} s",
        report={"records": records, "seconds": seconds, "rows": rows},
        rows=tuple(rows),
    )


def _rows(
    cluster: Cluster, name: str, offsets: Mapping[TopicPartition, int]
) -> list[dict[str, Any]]:
    ends = cluster.list_offsets(dict.fromkeys(offsets, LATEST))
    rows = []
    for tp, offset in sorted(offsets.items()):
        behind = max(ends[tp].offset - offset, 0)
        when = timestamp_at(cluster, tp, offset, ends[tp].offset) if behind else None
        seconds = 0.0 if not behind else None
        if when is not None and when != NO_TIMESTAMP:
            youngest = youngest_ms(cluster, tp, offset, ends[tp].offset)
            seconds = None if youngest is None else max(youngest - when, 0) / 1000
        rows.append(
            {
                "at_ms": time.time_ns() // 1_000_000,
                "group": name,
                "topic": tp[0],
                "partition": tp[1],
                "offset": offset,
                "end_offset": ends[tp].offset,
                "lag_records": behind,
                "lag_seconds": seconds,
            }
        )
    return rows


def timestamp_at(cluster: Cluster, tp: TopicPartition, offset: int, end: int) -> int | None:
    """The time (ms) of the first record at or after `offset`, None if there is none below `end`."""
    rules = DecodeRules(columns=("offset", "timestamp"), on_malformed="clamp")
    reader = RangeReader(
        cluster, OffsetRange(*tp, offset, end), rules, fetch_bytes=_FETCH_BYTES,
        fail_on_data_loss=True,
    )  # fmt: skip
    try:
        for batch in reader.batches():
            cluster.close()
            return int(batch.column("timestamp").cast(pa.int64())[0].as_py()) // 1000
    except DataLoss:
        return None
    return None


def checkpoint_offsets(path: str) -> dict[TopicPartition, int]:
    """Where the Spark query with the checkpoint directory `path` is.

    Raises:
        BadOptions: it is no checkpoint of a query on topics.
    """
    folder = local_path(path) / "offsets"
    batches = [int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()]
    if not batches:
        raise BadOptions([f"checkpoint {path!r}: there is no offsets/ with batches in it"])
    lines = (folder / str(max(batches))).read_text(encoding="utf-8").splitlines()
    places: dict[TopicPartition, int] = {}
    # A version, the batch's metadata, then one line for each source.
    for line in lines[2:]:
        document = json.loads(line)
        for topic, partitions in document.get("offsets", document).items():
            if isinstance(partitions, dict):
                places |= {(topic, int(index)): end for index, end in partitions.items()}
    return places


def connection_of(options: Mapping[str, str]) -> ConnectionOptions:
    """The `kafka.*` options of a job that needs no topics; raises BadOptions."""
    reader = OptionReader(options)
    connection = parse_connection(reader)
    reader.raise_problems()
    return connection
