"""Local retention: the local copies of segments that an object store has are removed.

Owns one decision and its order. `local.retention.ms` and `local.retention.bytes` are applied by the
rules of `storage.log.retention` to the segments that are here; -2 stands for the topic's
`retention.ms` and `retention.bytes`. Segments go oldest first, up to the first one whose object is
not recorded durably, here and in the bucket's journal: a round of shipping may need its records
until then (`storage.bucket.shipping`). Indexes, facts and producer snapshots stay.

A topic that is only compacted has no such settings that apply, so -2 stands for no limit there.

Source: KIP-405; Kafka `UnifiedLog.deleteOldSegments` for tiered logs.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Final

from config import TopicConfig
from storage.errors import storage_failure
from storage.log.log import Log
from storage.log.retention import RetentionRules, ages_of, plan_retention, rules_of
from storage.segment.facts import RemoteObject
from storage.segment.segment import Segment

NO_LIMIT: Final = -1
AS_THE_WHOLE: Final = -2
"""Value of a local limit that stands for the limit of the whole log."""


def each_is_named(_: RemoteObject) -> bool:
    """A standby has no other objects than those of the bucket's journal."""
    return True


def drop_expired_locally(
    log: Log,
    now_ms: int,
    *,
    is_named: Callable[[RemoteObject], bool] = each_is_named,
    is_pressed: bool = False,
) -> list[Segment]:
    """Remove the local files that local retention selects; returns their segments.

    `is_named` says whether the bucket's journal has an object. With `is_pressed` the disk is nearly
    full: all go that have one, without delay. Raises StorageFailed.
    """
    end = log.segments.remote_end
    if end is None or log.offline_reason is not None or log.changes.swap is not None:
        return []
    here = [
        (segment, age)
        for segment, age in zip(log.segments, ages_of(log), strict=True)
        if not segment.is_remote
    ]
    rules = local_rules(log, log.config)
    being_read = log.changes.being_read
    if being_read:
        end = min(end, being_read[0].base_offset)
    plan = plan_retention(
        [age for _, age in here],
        replace(rules, retention_bytes=0) if is_pressed else rules,
        log_start_offset=0,
        high_watermark=min(end, log.high_watermark),
        now_ms=now_ms,
    )
    due_ms = now_ms if is_pressed else now_ms + log.config.file_delete_delay_ms
    selected = (segment for segment, _ in here[: len(plan.reasons)])
    dropped = list(takewhile(lambda one: one.remote is not None and is_named(one.remote), selected))
    assert not dropped or dropped[-1].next_offset <= end, "a segment without an object would go"
    try:
        for segment in dropped:
            log.changes.drop_local(segment, due_ms=due_ms)
    except OSError as error:
        raise storage_failure("delete", log.path, error) from error
    return dropped


def local_rules(log: Log, config: TopicConfig) -> RetentionRules:
    """The rules for the local copies of `log` as if `config` were its topic's."""
    rules = replace(rules_of(log, config), is_read_only=False)
    if not rules.deletes:
        rules = replace(rules, deletes=True, retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT)
    if config.local_retention_ms != AS_THE_WHOLE:
        rules = replace(rules, retention_ms=config.local_retention_ms)
    if config.local_retention_bytes != AS_THE_WHOLE:
        rules = replace(rules, retention_bytes=config.local_retention_bytes)
    return rules
