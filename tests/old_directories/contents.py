"""Everything that clients can learn of a data directory, as JSON that two commits can compare."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from tests.roundtrip.judge import view
from tests.support.wire import Wire

CLASSIC_GROUP = "classic-members"
CONSUMER_GROUP = "consumer-members"
GROUPS = (CLASSIC_GROUP, CONSUMER_GROUP)
TIMEOUT_S = 30


def contents(bootstrap: str) -> dict[str, Any]:
    """Topics, settings, records, ends, lookups, committed offsets, groups and broker settings."""
    with Wire(bootstrap) as wire:
        seen = asdict(view(wire))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    seen["groups"] = {group: _committed(admin, group) for group in GROUPS}
    seen["group_settings"] = {
        group: _changed(admin, ConfigResource.Type.GROUP, group) for group in GROUPS
    }
    broker = str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))
    seen["broker_settings"] = _changed(admin, ConfigResource.Type.BROKER, broker)
    return dict(json.loads(json.dumps(_plain(seen))))


def _committed(admin: AdminClient, group: str) -> dict[str, int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(timeout=TIMEOUT_S).topic_partitions
    return {f"{p.topic}-{p.partition}": p.offset for p in found}


def _changed(admin: AdminClient, kind: Any, name: str) -> dict[str, str]:
    """The settings that were set at run time."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(timeout=TIMEOUT_S)
    dynamic = {1, 2, 8}  # topic, broker, group
    return {entry.name: entry.value for entry in found.values() if entry.source in dynamic}


def _plain(value: Any) -> Any:
    """`value` in JSON's types: keys as text, bytes in base64, tuples as lists."""
    if isinstance(value, Mapping):
        return {_name(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _name(key: object) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
