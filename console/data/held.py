"""The partitions of a wide topic by what retention cannot delete, and by the time that they span.

A map of segments shows one partition; this is the list that says which one to look at. A Tidelog is
asked for the segments of many partitions at once, up to a budget; the answer says where the next
part begins.
"""

from collections.abc import Mapping
from typing import Any, Final

from console.data.hub import Hub

SEGMENTS_MAX: Final = 10_000
"""Segments of one part: some 4 MB from the broker."""
ROWS_MAX: Final = 50

_HELD_BY: Final = frozenset({"FUTURE", "OLDER", "HIGH_WATERMARK"})
"""What keeps a segment although its own records are past the limits, or may be."""


async def held_partitions(hub: Hub, topic: str, after: str | None) -> dict[str, Any]:
    """The partitions that hold the most, of those after `after`; `next` begins the next part."""
    asked: dict[str, object] = {"topic": topic, "limit": SEGMENTS_MAX}
    if after:
        asked["after"] = after
    document = await hub.ask_tidelog("/segments", asked)
    rows = [_row(one) for one in document["partitions"]]
    rows.sort(key=lambda row: (-row["held_bytes"], -row["width_ms"], row["partition"]))
    return {
        "rows": rows[:ROWS_MAX],
        "partitions": len(rows),
        "held": sum(row["held_segments"] > 0 for row in rows),
        "held_bytes": sum(row["held_bytes"] for row in rows),
        "next": document["next"],
        "unanswered": document["unanswered"],
    }


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    segments = one["segments"]
    held = [segment for segment in segments if segment["kept_by"] in _HELD_BY]
    lows = [
        segment["min_timestamp"]
        for segment in segments
        if segment["min_timestamp"] is not None and segment["min_timestamp"] >= 0
    ]
    high = max((segment["max_timestamp"] for segment in segments), default=-1)
    return {
        "partition": one["partition"],
        "segments": len(segments),
        "bytes": sum(segment["size_bytes"] for segment in segments),
        "held_segments": len(held),
        "held_bytes": sum(segment["size_bytes"] for segment in held),
        "future": next((segment["future"] for segment in held if segment["future"]), None),
        "oldest_ms": min(lows, default=-1),
        "newest_ms": high,
        "width_ms": max(0, high - min(lows)) if lows else 0,
    }
