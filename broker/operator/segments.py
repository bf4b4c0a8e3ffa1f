"""Facts about a topic's segments, as JSON on the operators' port: mainly their time ranges.

    GET /segments?topic=flights&partition=0        without partition: all of them

A reader of a time range skips the segments that cannot hold any of it: those whose
`data_max_timestamp` is below its start, or whose `min_timestamp` is at or above its end. Readers
with access to the files have the same numbers in `segment-manifest`; this is for readers over the
network. Kafka's protocol has no request for it (docs/adr/0014).

    {"topic": "flights", "partitions": [{"partition": 0, "segments": [
        {"base_offset": 0, "next_offset": 9000, "size_bytes": 1048301, "records": 9000,
         "min_timestamp": 1372636800000, "max_timestamp": 1372723199000,
         "data_max_timestamp": 1372723199000, "active": false}, ...]}]}

With `partition` the segments are at the top level, next to "topic" and "partition". Timestamps are
ms. `min_timestamp` is -1 when a record has no time, `max_timestamp` when none has. `max_timestamp`
includes the markers of transactions, as lookups by time do. `data_max_timestamp` does not: it
bounds the records that readers see. `min_timestamp`, `data_max_timestamp` and `records` are null
while they are not known. The last segment is the active one and may grow: its numbers hold for the
records below `next_offset`.

Read next: `storage.segment.manifest`, `broker.operator.http`.
"""

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from broker.errors import BrokerError
from storage.segment.manifest import UNKNOWN, UNKNOWN_MAXIMUM, UNKNOWN_MINIMUM

if TYPE_CHECKING:
    from broker.operator.port_access import Viewer
    from broker.topics.registry import TopicRegistry
    from storage.log.log import Log
    from storage.segment.segment import Segment

Document = dict[str, object]


def list_segments(topics: "TopicRegistry", query: str, viewer: "Viewer") -> tuple[int, bytes]:
    """HTTP status and JSON for the query string of the request of `viewer` to /segments."""
    try:
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        topic = asked["topic"]
        partition = int(asked["partition"]) if "partition" in asked else None
    except (KeyError, ValueError):
        return 400, _encode({"error": "topic=NAME is needed, and partition=NUMBER is allowed"})
    refusal = viewer.refusal_of_topic(topic)
    if refusal is not None:
        return 403, _encode({"error": refusal})
    try:
        if partition is not None:
            log = topics.led_log(topic, partition)
            return 200, _encode({"topic": topic, **_document(log)})
        logs = [log for log in topics.logs() if log.topic == topic]
        if not logs:
            topics.led_log(topic, 0)
    except BrokerError as error:
        return 404, _encode({"error": str(error)})
    return 200, _encode({"topic": topic, "partitions": [_document(log) for log in logs]})


def _document(log: "Log") -> Document:
    segments = list(log.segments)
    return {
        "partition": log.partition,
        "segments": [_segment(segment, segment is segments[-1]) for segment in segments],
    }


def _segment(segment: "Segment", is_active: bool) -> Document:
    is_known = segment.min_timestamp != UNKNOWN_MINIMUM and not segment.is_empty
    is_unbounded = segment.data_max_timestamp == UNKNOWN_MAXIMUM
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size,
        "records": None if segment.records == UNKNOWN else segment.records,
        "min_timestamp": segment.min_timestamp if is_known else None,
        "max_timestamp": segment.max_timestamp,
        "data_max_timestamp": None if is_unbounded else segment.data_max_timestamp,
        "active": is_active,
    }


def _encode(value: Document) -> bytes:
    return json.dumps(value).encode() + b"\n"
