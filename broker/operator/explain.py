"""The steps of a lookup by time and the reason for its answer, as JSON on the operators' port.

    GET /explain?topic=flights&partition=0&at=1372953600000

Kafka's protocol has no request for it, and a tagged field in ListOffsets would make our answers
differ from Kafka's where a client might look. So it is next to /metrics, where operators look
(docs/adr/0014). It explains the lookup of ListOffsets, on the same log. `segment_steps`,
`time_steps` and `offset_steps` are what its three binary searches looked at, in order.

Read next: `storage.log.lookup`, `broker.operator.http`.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from broker.operator import queries
from broker.remote.reads import repeated
from protocol.records.layout import INT64_MAX

if TYPE_CHECKING:
    from broker.operator.port_access import Viewer
    from broker.remote.reads import RemoteReads
    from broker.topics.registry import TopicRegistry
    from storage.log.lookup import LookupExplanation, TimestampOffset

_PARAMETERS: Final = ("topic", "partition", "at")


async def explain(
    topics: "TopicRegistry", reads: "RemoteReads | None", query: str, viewer: "Viewer"
) -> tuple[int, bytes]:
    """HTTP status and JSON for the query string of the request of `viewer` to /explain."""

    async def make(asked: queries.Asked) -> queries.Document:
        partition = queries.number(asked, "partition", queries.PARTITION_MAX) or 0
        timestamp = queries.number(asked, "at", INT64_MAX)
        if timestamp is None:
            raise queries.BadQuery("at=MILLISECONDS is needed: a time in ms since 1970")
        log = topics.led_log(asked["topic"], partition)
        explanation = await repeated(reads, lambda: log.explain_offset_for_timestamp(timestamp))
        return {"topic": asked["topic"], "partition": partition, **document(explanation)}

    return await queries.answer(query, _PARAMETERS, viewer, make)


def document(explanation: "LookupExplanation") -> dict[str, object]:
    """The explanation as JSON's types."""
    return {
        "timestamp": explanation.timestamp,
        "found": _named(explanation.found),
        "visible": explanation.visible,
        "before": _named(explanation.before),
        "after": _named(explanation.after),
        "segments": explanation.segments,
        "segment_steps": [
            {"base_offset": base_offset, "newest_so_far": newest}
            for base_offset, newest in explanation.segment_steps
        ],
        "bytes_read": explanation.bytes_read,
        "searched": [
            {
                **asdict(search),
                "time_entry": search.time_entry._asdict(),
                "offset_entry": search.offset_entry._asdict(),
                "time_steps": [
                    {"slot": slot, **entry._asdict()} for slot, entry in search.time_steps
                ],
                "offset_steps": [
                    {"slot": slot, **entry._asdict()} for slot, entry in search.offset_steps
                ],
            }
            for search in explanation.searched
        ],
    }


def _named(found: "TimestampOffset | None") -> dict[str, int] | None:
    return None if found is None else found._asdict()
