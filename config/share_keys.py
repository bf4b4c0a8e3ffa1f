"""The broker's settings of share groups (KIP-932); names and bounds are Apache Kafka's (4.3).

A group's own settings are in `config.group`.
"""

from typing import Final

from config.rows import number
from config.values import Key

SHARE_KEYS: Final[tuple[Key, ...]] = (
    number(
        "group.share.session.timeout.ms",
        45_000,
        "Session timeout of members of share groups.",
        low=1,
    ),
    number(
        "group.share.min.session.timeout.ms",
        45_000,
        "The least that a group's own share.session.timeout.ms may be.",
        low=1,
    ),
    number(
        "group.share.max.session.timeout.ms",
        60_000,
        "The most that a group's own share.session.timeout.ms may be.",
        low=1,
    ),
    number(
        "group.share.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of share groups.",
        low=1,
    ),
    number(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        "The least that a group's own share.heartbeat.interval.ms may be.",
        low=1,
    ),
    number(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "The most that a group's own share.heartbeat.interval.ms may be.",
        low=1,
    ),
    number(
        "group.share.assignment.interval.ms",
        1_000,
        "The least time between two assignments of a share group.",
        low=0,
        high=15_000,
    ),
    number(
        "group.share.min.assignment.interval.ms",
        0,
        "The least that a group's own share.assignment.interval.ms may be.",
        low=0,
        high=15_000,
    ),
    number(
        "group.share.max.assignment.interval.ms",
        15_000,
        "The most that a group's own share.assignment.interval.ms may be.",
        low=0,
    ),
    number(
        "group.share.max.size",
        200,
        "Members that a share group may have.",
        low=1,
        high=1000,
    ),
    number(
        "group.share.max.share.sessions",
        2_000,
        "Share sessions that the broker keeps.",
        low=1,
    ),
    number(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a record is a member's before others may get it.",
        low=1_000,
        high=3_600_000,
    ),
    number(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The least that a group's own share.record.lock.duration.ms may be.",
        low=1_000,
        high=30_000,
    ),
    number(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The most that a group's own share.record.lock.duration.ms may be.",
        low=30_000,
        high=3_600_000,
    ),
    number(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered before it is archived.",
        low=2,
        high=10,
    ),
    number(
        "group.share.min.delivery.count.limit",
        2,
        "The least that a group's own share.delivery.count.limit may be.",
        low=2,
        high=5,
    ),
    number(
        "group.share.max.delivery.count.limit",
        10,
        "The most that a group's own share.delivery.count.limit may be.",
        low=5,
        high=25,
    ),
    number(
        "group.share.partition.max.record.locks",
        2_000,
        "Offsets between the first record that is not done and the last that was delivered, of one "
        "partition and group.",
        low=100,
        high=10_000,
    ),
    number(
        "group.share.min.partition.max.record.locks",
        100,
        "The least that a group's own share.partition.max.record.locks may be.",
        low=100,
        high=2_000,
    ),
    number(
        "group.share.max.partition.max.record.locks",
        4_000,
        "The most that a group's own share.partition.max.record.locks may be.",
        low=2_000,
        high=10_000,
    ),
    number(
        "share.coordinator.state.topic.num.partitions",
        1,
        "Partitions of __share_group_state when it is created.",
        low=1,
        high=1000,
    ),
    number(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "Segment size of __share_group_state.",
        low=1024,
    ),
    number(
        "share.coordinator.state.topic.replication.factor",
        1,
        "Accepted for compatibility.",
        low=1,
    ),
    number(
        "share.coordinator.state.topic.min.isr",
        1,
        "Accepted for compatibility.",
        low=1,
    ),
    number(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Changes of a share partition that are stored before its whole state is stored again.",
        low=0,
        high=500,
    ),
)
"""In the order of docs/configuration.md."""
