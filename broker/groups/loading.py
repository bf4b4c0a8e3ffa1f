"""Loading of the offsets topic: the newest record of each key, transactions resolved.

Pure: batches in, a table and groups out. One pass keeps only the newest value per raw key, and
each of those is decoded once. So a log of a million commits by one group costs a dictionary of a
few entries and little decoding.

A transactional record counts from the position of its transaction's commit marker, unless a plain
record of the same key came in between. Open transactions stay pending.

Source: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from broker.groups.consumer.records import is_consumer_key
from broker.groups.consumer.values import StoredConsumerGroup
from broker.groups.internal_topic import StoredBatch
from broker.groups.later import Later
from broker.groups.offsets.records import (
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from broker.groups.offsets.store import OffsetTable
from protocol.stored.codec import UnknownRecord
from protocol.stored.group_log import GroupMetadataKey, GroupMetadataValue
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.groups import loading_later
    from broker.groups.share.group_values import StoredShareGroup
    from broker.groups.streams.values import StoredStreamsGroup
else:  # loaded with the first record of such a group
    loading_later = Later(".loading_later")

logger = logging.getLogger("tidelog.broker.groups.loading")

_Newest: TypeAlias = dict[bytes, bytes | None]


@dataclass(slots=True, kw_only=True)
class Loaded:
    """The coordinator's stored state: the groups of each protocol with their metadata."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, StoredConsumerGroup] = field(default_factory=dict)
    share_groups: "dict[str, StoredShareGroup]" = field(default_factory=dict)
    streams_groups: "dict[str, StoredStreamsGroup]" = field(default_factory=dict)
    skipped: int = 0


def load(batches: Iterable[StoredBatch], offsets: OffsetTable) -> Loaded:
    """Replay batches, oldest first, into `offsets` and the groups returned.

    Unknown records (of a newer broker) are skipped and counted; they stay in the log.
    """
    newest, pending = _resolve(batches)
    loaded = Loaded()
    for key, value in newest.items():
        if value is not None:
            _take(key, value, offsets, loaded, producer_id=None)
    for producer_id, records in pending.items():
        for key, value in records.items():
            if value is not None:
                _take(key, value, offsets, loaded, producer_id=producer_id)
    for group_id in [name for name, group in loaded.consumer_groups.items() if not group.epoch]:
        del loaded.consumer_groups[group_id]
    for group_id in [name for name, group in loaded.share_groups.items() if not group.epoch]:
        del loaded.share_groups[group_id]
    for group_id in [name for name, group in loaded.streams_groups.items() if group.group is None]:
        del loaded.streams_groups[group_id]
    if loaded.skipped:
        logger.warning("%d records in the offsets topic are not understood", loaded.skipped)
    return loaded


def follow(
    batches: Iterable[StoredBatch], offsets: OffsetTable, has_ended: Callable[[str], bool]
) -> set[str]:
    """Apply batches that came after those of `load` to `offsets`; returns the groups in them.

    The offsets of a transaction end with it for the groups that `has_ended` selects: those of the
    partition that the batches are from.
    """
    touched = set()
    for batch in batches:
        if batch.is_commit is not None:
            offsets.complete(batch.producer_id, is_commit=batch.is_commit, has_ended=has_ended)
            continue
        for key, value in batch.records:
            try:
                about = decode_key(key)
                committed = None if value is None else decode_offset_value(value)
            except UnknownRecord:
                continue
            if isinstance(about, GroupMetadataKey):
                continue
            tp = (about.topic, about.partition)
            touched.add(about.group)
            if committed is None:
                offsets.remove(about.group, tp)
            elif batch.is_transactional:
                offsets.prepare(batch.producer_id, about.group, tp, committed)
            else:
                offsets.commit(about.group, tp, committed)
    return touched


def _resolve(batches: Iterable[StoredBatch]) -> tuple[_Newest, dict[int, _Newest]]:
    newest: _Newest = {}
    pending: dict[int, _Newest] = {}
    for batch in batches:
        if batch.is_commit is not None:
            ended = pending.pop(batch.producer_id, {})
            if batch.is_commit:
                newest.update(ended)
        elif batch.is_transactional:
            pending.setdefault(batch.producer_id, {}).update(batch.records)
        else:
            records = dict(batch.records)
            newest.update(records)
            for waiting in pending.values():
                for key in waiting.keys() & records.keys():
                    del waiting[key]
    return newest, pending


def _take(
    key: bytes, value: bytes, offsets: OffsetTable, loaded: Loaded, *, producer_id: int | None
) -> None:
    try:
        if is_consumer_key(key):
            loading_later.take_later(
                key, value, loaded.consumer_groups, loaded.share_groups, loaded.streams_groups
            )
            return
        about = decode_key(key)
        if isinstance(about, GroupMetadataKey):
            loaded.groups[about.group] = decode_group_value(value)
            return
        committed = decode_offset_value(value)
    except UnknownRecord as error:
        logger.debug("skipped: %s", error)
        loaded.skipped += 1
        return
    tp = (about.topic, about.partition)
    if producer_id is None:
        offsets.commit(about.group, tp, committed)
    else:
        offsets.prepare(producer_id, about.group, tp, committed)
