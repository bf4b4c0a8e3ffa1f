"""The cluster at a glance, the list of topics, one topic, and its settings.

Names and sizes come from one request each; what costs lookups is asked for the rows that are shown.
"""

import asyncio
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

from client.descriptions import ConfigEntry
from client.errors import (
    AddressUnusable,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidUse,
)
from client.types import TopicPartition
from console.data.hub import Hub
from console.data.timeline import LOOKUPS_MAX, PARTITIONS_MAX, draw_day, find_ends, spread
from protocol.acl import Operation, PatternType, Permission, ResourceType
from protocol.error_codes import ErrorCode
from protocol.time_windows import NO_END_MS

DETAILS_MAX: Final = 50
"""Rows of the list that are asked for in detail at once."""
NEAR_MAX: Final = 5
ROWS_MAX: Final = 500
ACTIVITY_PARTITIONS_MAX: Final = 2000
"""With more partitions the metrics are megabytes, too much for a page that asks again and again."""

_TAG: Final = re.compile(r"</?[a-z][^<>]*>")
_SHOWN_SETTINGS: Final = (
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "message.timestamp.type",
)


async def describe_cluster(hub: Hub) -> dict[str, Any]:
    """Brokers, what they are, and how much they hold."""
    cluster = await hub.admin.cluster()
    topics, kind, now_ms = await asyncio.gather(hub.topics(), hub.kind(), hub.now_ms())
    sizes = await _sizes(hub)
    own = [info for info in topics.values() if not info.is_internal]
    partitions = sum(len(info.partitions) for info in topics.values())
    offline = sum(
        part.leader < 0 for info in topics.values() for part in info.partitions.values()
    )
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {"id": one.node_id, "address": one.address, "rack": one.rack}
            for one in await hub.admin.brokers()
        ],
        "kind": "Tidelog" if kind.is_tidelog else "Kafka",
        "has_metrics_port": kind.has_metrics_port,
        "why_not": kind.why_not,
        "has_settable_clock": kind.has_settable_clock,
        "topics": len(own),
        "internal_topics": len(topics) - len(own),
        "partitions": partitions,
        "has_activity": kind.has_metrics_port and partitions <= ACTIVITY_PARTITIONS_MAX,
        "offline": offline,
        "bytes": None if sizes is None else sum(sizes.values()),
        "now_ms": now_ms,
    }


async def _sizes(hub: Hub) -> dict[TopicPartition, int] | None:
    """Bytes on disk of every partition, None where that may not be asked."""
    try:
        return await hub.admin.sizes()
    except ClientError:
        return None


async def list_topics(hub: Hub, *, name: str, order: str, is_internal: bool) -> dict[str, Any]:
    """The topics whose name contains `name`, with partitions and bytes.

    Raises:
        InvalidUse: there is no such `order`.
    """
    topics = await hub.topics()
    of_topic: dict[str, int] = {}
    for partition, size in (await _sizes(hub) or {}).items():
        of_topic[partition.topic] = of_topic.get(partition.topic, 0) + size
    rows = [
        {
            "name": info.name,
            "partitions": len(info.partitions),
            "bytes": of_topic.get(info.name),
            "is_internal": info.is_internal,
            "offline": sum(part.leader < 0 for part in info.partitions.values()),
        }
        for info in topics.values()
        if name.lower() in info.name.lower() and (is_internal or not info.is_internal)
    ]
    orders: dict[str, Any] = {
        "name": lambda row: row["name"],
        "bytes": lambda row: -(row["bytes"] or 0),
        "partitions": lambda row: -row["partitions"],
    }
    if order not in orders:
        raise InvalidUse(f"order={order} does not exist: choose {', '.join(orders)}")
    rows.sort(key=orders[order])
    return {"topics": rows[:ROWS_MAX], "found": len(rows), "all": len(topics)}


async def topic_details(hub: Hub, names: Sequence[str]) -> dict[str, Any]:
    """What the visible rows of the list need besides: records, times, retention.

    Raises:
        InvalidUse: more than `DETAILS_MAX` topics.
    """
    if len(names) > DETAILS_MAX:
        raise InvalidUse(f"{len(names)} topics are too many at once: ask for {DETAILS_MAX} or less")
    rows = await asyncio.gather(*(_details(hub, name) for name in names))
    return {"topics": dict(zip(names, rows, strict=True))}


async def _details(hub: Hub, name: str) -> dict[str, Any]:
    try:
        partitions = await hub.partitions(name)
        drawn = spread(partitions, PARTITIONS_MAX)
        ends = await find_ends(hub, drawn)
        configs = await hub.admin.topic_configs(name)
    except ClientError as error:
        return {"error": str(error)}
    firsts = [one.first_ms for one in ends.values() if one.first_ms is not None]
    newest = [one.newest_ms for one in ends.values() if one.newest_ms is not None]
    return {
        "records": sum(one.end - one.start for one in ends.values()),
        "is_estimate": len(drawn) < len(partitions),
        "first_ms": min(firsts, default=None),
        "newest_ms": max(newest, default=None),
    } | {key: configs[key].value for key in _SHOWN_SETTINGS if key in configs}


async def topic_days(hub: Hub, names: Sequence[str]) -> dict[str, Any]:
    """Records by hour of the last day, of the visible rows; [] where there is no answer.

    Raises:
        InvalidUse: more than `DETAILS_MAX` topics.
    """
    if len(names) > DETAILS_MAX:
        raise InvalidUse(f"{len(names)} topics are too many at once: ask for {DETAILS_MAX} or less")
    now_ms = await hub.now_ms()
    each = LOOKUPS_MAX // max(1, len(names))

    async def of(name: str) -> list[int]:
        try:
            return await draw_day(hub, name, now_ms, each)
        except ClientError:
            return []

    bars = await asyncio.gather(*(of(name) for name in names))
    return {"topics": dict(zip(names, bars, strict=True)), "now_ms": now_ms}


async def describe_topic(hub: Hub, name: str) -> dict[str, Any]:
    """A topic's partitions with their ends.

    Raises:
        BrokerRefused: it does not exist; `near_names` has what may have been meant.
    """
    info = (await hub.topics()).get(name) or await hub.admin.describe_topic(name)
    partitions = await hub.partitions(name)
    shown = partitions[:ROWS_MAX]
    ends = await find_ends(hub, shown)
    sizes = await _sizes(hub) or {}
    # A window of a topic has no files of its own.
    window = await hub.window_of(name)
    own = [size for tp, size in sizes.items() if tp.topic == name]
    return {
        "name": name,
        "id": info.topic_id.hex(),
        "is_internal": info.is_internal,
        "window": window
        and {
            "topic": window.topic,
            "start_ms": window.start_ms,
            "end_ms": None if window.end_ms == NO_END_MS else window.end_ms,
        },
        "now_ms": await hub.now_ms(),
        "count": len(partitions),
        "partitions": [
            {
                "partition": tp.partition,
                "leader": info.partitions[tp.partition].leader,
                "in_sync": list(info.partitions[tp.partition].in_sync),
                "replicas": list(info.partitions[tp.partition].replicas),
                "start": ends[tp].start,
                "end": ends[tp].end,
                "first_ms": ends[tp].first_ms,
                "newest_ms": ends[tp].newest_ms,
                "bytes": sizes.get(tp),
            }
            for tp in shown
        ],
        "bytes": sum(own) if own else None,
    }


async def near_names(hub: Hub, name: str) -> list[str]:
    """Existing topics that a wrong name may have meant."""
    try:
        return get_close_matches(name, await hub.topics(), n=NEAR_MAX, cutoff=0.5)
    except ClientError:
        return []


async def topic_settings(hub: Hub, name: str) -> dict[str, Any]:
    """Every setting of a topic, with its source and what it means; secrets stay null."""
    configs = await hub.admin.topic_configs(name)
    return {"topic": name, "settings": [_setting(entry) for _, entry in sorted(configs.items())]}


def _setting(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower().replace("_", " "),
        "is_set_here": entry.source.name == "TOPIC",
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        # Apache Kafka's has tags for its own web site.
        "documentation": _TAG.sub("", entry.documentation or ""),
    }


async def security_of(hub: Hub) -> dict[str, Any]:
    """Users, rules and quotas, each with the reason where the brokers refuse to name them.

    Raises:
        AddressUnusable, BrokerUnreachable: none answers.
    """

    async def ask(question: Any) -> dict[str, Any]:
        try:
            return {"found": await question, "error": None}
        except (AddressUnusable, BrokerUnreachable):
            raise
        except ClientError as error:
            reason = str(error)
            if isinstance(error, BrokerRefused) and error.code == ErrorCode.SECURITY_DISABLED:
                reason = "The brokers have no authorizer, so there are no access rules."
            return {"found": [], "error": reason}

    users, rules, quotas = await asyncio.gather(
        ask(hub.admin.users()), ask(hub.admin.rules()), ask(hub.admin.quotas())
    )
    if users["error"] is None:
        users["found"] = [
            {"name": name, "mechanisms": [f"{kind} ({count})" for kind, count in found]}
            for name, found in sorted(users["found"].items())
        ]
    rules["found"] = [
        {
            "principal": rule.principal,
            "permission": Permission(rule.permission).name.lower(),
            "operation": Operation(rule.operation).name.lower(),
            "resource": ResourceType(rule.resource_type).name.lower(),
            "name": rule.name,
            "pattern": PatternType(rule.pattern).name.lower(),
            "host": rule.host,
        }
        for rule in rules["found"]
    ]
    quotas["found"] = [
        {"entity": dict(one.entity), "limits": dict(one.limits)} for one in quotas["found"]
    ]
    return {"users": users, "rules": rules, "quotas": quotas}
