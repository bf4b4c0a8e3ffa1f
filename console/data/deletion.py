"""Deleting the records of a topic that are older than a time: a preview, then exactly that.

Each partition is cut at its first record at or after the time. So no newer record goes, and older
ones that arrived after a newer one stay: the preview says both, and which groups have not read what
would go.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from client.core.offsets import EARLIEST
from client.errors import ClientError, InvalidUse
from client.types import TopicPartition
from console.data.groups import PREVIEWS_MAX, add_neighbours, readers_of
from console.data.hub import Hub


async def preview_deletion(
    hub: Hub, topic: str, time_ms: int, chosen: frozenset[int] | None
) -> dict[str, Any]:
    """What would go from each partition, and the record that would be its first one then.

    Raises:
        InvalidUse: `topic` has none of the partitions `chosen`.
    """
    partitions = await hub.partitions(topic, chosen)
    if not partitions:
        raise InvalidUse(f"{topic} has none of the chosen partitions")
    plan = await hub.admin.records_before(partitions, time_ms)
    rows: list[dict[str, Any]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "now": one.start,
            "then": one.stop,
            "end": one.end,
            "is_end": one.next_ms is None,
        }
        for tp, one in plan.items()
    ]
    cut = [row for row in rows if row["now"] < row["then"]]
    await asyncio.gather(*(add_neighbours(hub, row) for row in cut[:PREVIEWS_MAX]))
    readers: dict[str, Any] = {"readers": [], "groups_unknown": None}
    with suppress(ClientError):
        readers = await readers_of(hub, topic)
    then = {row["partition"]: row["then"] for row in rows}
    losers = [
        {**one, "lost": then[one["partition"]] - one["position"]}
        for one in readers["readers"]
        if one["position"] < then.get(one["partition"], 0)
    ]
    return {
        "topic": topic,
        "time_ms": time_ms,
        "positions": rows,
        "losers": losers,
        "groups_unknown": readers["groups_unknown"],
    }


async def delete_previewed(
    hub: Hub, positions: Mapping[TopicPartition, tuple[int | None, int]]
) -> dict[str, Any]:
    """Delete what the preview named: (first offset now, first offset then) of each partition.

    Raises:
        InvalidUse: a partition does not start where the preview saw it.
        BrokerRefused: the topic's policy does not allow it, or an offset is out of range.
    """
    starts = await hub.admin.list_offsets(dict.fromkeys(positions, EARLIEST))
    for tp, (now, _) in positions.items():
        start = hit.offset if (hit := starts[tp]) else 0
        if start != now:
            raise InvalidUse(f"{tp} starts at {start}, not at {now} as in the preview; look again")
    cut = {tp: then for tp, (now, then) in positions.items() if now is None or then > now}
    await hub.admin.delete_records(cut)
    deleted = sum(then - (positions[tp][0] or 0) for tp, then in cut.items())
    return {"partitions": len(cut), "deleted": deleted}
