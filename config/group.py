"""The settings of groups: a row for each, and their resolution.

A group's own value counts within the broker's bounds (`group.consumer.min...`,
`group.consumer.max...`), else the broker's. Names and defaults are Apache Kafka's (4.3). The bounds
are applied when a value is set. A value that was set under other bounds is kept, and each use
limits it to the current ones.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from config.errors import Problem
from config.model import BrokerConfig
from config.rows import topic_number
from config.suggest import nearest
from config.values import InvalidValue, Key, Value, ValueType

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT: Final = "share.delivery.count.limit"
SHARE_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"

BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?"
)

_SESSIONS: Final = (
    (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
    (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
)


def _number(name: str, default: int, doc: str, low: int = 1) -> Key:
    return topic_number(name, default, doc, (f"group.{name}", 1), low=low, wide=False)


_KEYS = (
    _number(HEARTBEAT_INTERVAL, 5_000, "How often members of the group send heartbeats."),
    _number(
        SESSION_TIMEOUT,
        45_000,
        "A member that is silent for longer than this is removed from the group.",
    ),
    _number(
        SHARE_HEARTBEAT_INTERVAL, 5_000, "How often members of the share group send heartbeats."
    ),
    _number(
        SHARE_SESSION_TIMEOUT,
        45_000,
        "A member that is silent for longer than this is removed from the share group.",
    ),
    _number(
        SHARE_ASSIGNMENT_INTERVAL,
        1_000,
        "The least time between two assignments of the share group.",
        low=0,
    ),
    _number(
        SHARE_LOCK_DURATION,
        30_000,
        "How long a record is a member's before others may get it.",
        low=1_000,
    ),
    _number(
        SHARE_DELIVERY_LIMIT, 5, "How often a record is delivered before it is archived.", low=2
    ),
    _number(
        SHARE_RECORD_LOCKS,
        2_000,
        "Offsets between the first record that is not done and the last one that was delivered, "
        "of one partition.",
        low=100,
    ),
    Key(
        name=SHARE_OFFSET_RESET,
        type=ValueType.STRING,
        default="latest",
        check=lambda value: _offset_reset_problem(str(value)),
        doc="Where the share group begins in a partition that it has not read: latest, earliest, "
        "or by_duration:P7D for the records of the last seven days (an ISO 8601 duration).",
        dynamic=True,
    ),
    Key(
        name=SHARE_ISOLATION,
        type=ValueType.STRING,
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether the share group gets the records of open and aborted transactions.",
        dynamic=True,
    ),
    Key(
        name=SHARE_RENEW,
        type=ValueType.BOOLEAN,
        default=True,
        doc="Whether members may extend their locks on records.",
        dynamic=True,
    ),
)

GROUP_KEYS: MappingProxyType[str, Key] = MappingProxyType({key.name: key for key in _KEYS})
"""The settings of groups by name, in the order in which they are shown."""


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> list[Problem]:
    """All problems of a group's own settings; empty when there is none."""
    problems = [
        problem
        for name, text in overrides.items()
        if (problem := _check(name, text, broker)) is not None
    ]
    for session, heartbeat in () if problems else _SESSIONS:
        timeout_ms = group_value(session, overrides, broker)
        if timeout_ms <= group_value(heartbeat, overrides, broker):
            cure = "give several heartbeats to a session"
            problems.append(Problem(session, str(timeout_ms), f"not above {heartbeat}", cure))
    return problems


def group_value(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    """A number for a group whose own settings are `overrides`, within the broker's bounds."""
    key = GROUP_KEYS[name]
    if name not in overrides:
        return _broker_number(broker, f"group.{name}")
    low, high = _bounds(key, broker)
    return min(max(cast("int", key.parse(overrides[name])), low), high)


def group_choice(name: str, overrides: Mapping[str, str]) -> Value:
    """A setting that only groups have, not the broker."""
    key = GROUP_KEYS[name]
    return key.parse(overrides[name]) if name in overrides else key.default


def share_duration_ms(text: str) -> int | None:
    """The duration of a `by_duration:` value in ms; None if it is none, or negative."""
    match = _DURATION.fullmatch(text.removeprefix(BY_DURATION).upper())
    if match is None or not text.startswith(BY_DURATION):
        return None
    if not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def _offset_reset_problem(text: str) -> str | None:
    if text in ("latest", "earliest") or share_duration_ms(text) is not None:
        return None
    return "not latest, earliest or by_duration:DURATION with an ISO 8601 duration such as PT1H"


def _check(name: str, text: str, broker: BrokerConfig) -> Problem | None:
    key = GROUP_KEYS.get(name)
    if key is None:
        cure = nearest(name, list(GROUP_KEYS), "see docs/configuration.md for the list")
        return Problem(name, text, "no such group setting", cure)
    try:
        value = cast("int", key.parse(text))
    except InvalidValue as error:
        return Problem(name, text, str(error), f"give {key.allowed()}")
    if key.type is not ValueType.INT:
        return None
    low, high = _bounds(key, broker)
    if value < low:
        return Problem(name, text, "too small", f"{_bound_name(key, 'min')} is {low}")
    if value > high:
        return Problem(name, text, "too large", f"{_bound_name(key, 'max')} is {high}")
    return None


def _bounds(key: Key, broker: BrokerConfig) -> tuple[int, int]:
    low = _broker_number(broker, _bound_name(key, "min"))
    return low, _broker_number(broker, _bound_name(key, "max"))


def _bound_name(key: Key, which: str) -> str:
    kind, _, rest = key.name.partition(".")
    return f"group.{kind}.{which}.{rest}"


def _broker_number(broker: BrokerConfig, name: str) -> int:
    return cast("int", getattr(broker, name.replace(".", "_")))
