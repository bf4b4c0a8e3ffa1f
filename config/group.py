"""The settings of groups: a row for each, and their resolution.

A group's own value counts within the broker's bounds (`group.consumer.min...`,
`group.consumer.max...`), else the broker's. Names and defaults are Apache Kafka's (4.3). The bounds
are applied when a value is set. A value that was set under other bounds is kept, and each use
limits it to the current ones.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, cast

from config.errors import Problem, nearest
from config.model import BrokerConfig
from config.rows import flag, internal_topic, number, topic_number, word
from config.values import INT16_MAX, INT32_MAX, InvalidValue, Key, Value, ValueType

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"
SHARE_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT: Final = "share.delivery.count.limit"
SHARE_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_RENEW: Final = "share.renew.acknowledge.enable"

STREAMS_SESSION_TIMEOUT: Final = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL: Final = "streams.heartbeat.interval.ms"
STREAMS_ASSIGNMENT_INTERVAL: Final = "streams.assignment.interval.ms"
STREAMS_INITIAL_DELAY: Final = "streams.initial.rebalance.delay.ms"
STREAMS_STANDBYS: Final = "streams.num.standby.replicas"

BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?"
)

_SESSIONS: Final = (
    (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
    (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    (STREAMS_SESSION_TIMEOUT, STREAMS_HEARTBEAT_INTERVAL),
)
_BOUNDS: Final = {
    STREAMS_STANDBYS: (None, "group.streams.max.standby.replicas"),
    STREAMS_INITIAL_DELAY: (None, None),
}
"""Settings whose bounds have other names than `_bound_name` gives, or none."""


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
        ASSIGNMENT_INTERVAL,
        0,
        "The least time between two assignments of the group; in Kafka 1000.",
        low=0,
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
    word(
        SHARE_OFFSET_RESET,
        "latest",
        "Where the share group begins in a partition that it has not read: latest, earliest, "
        "or by_duration:P7D for the records of the last seven days (an ISO 8601 duration).",
        check=lambda value: _offset_reset_problem(str(value)),
        dynamic=True,
    ),
    word(
        SHARE_ISOLATION,
        "read_uncommitted",
        "Whether the share group gets the records of open and aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
        dynamic=True,
    ),
    flag(SHARE_RENEW, True, "Whether members may extend their locks on records.", dynamic=True),
    _number(
        STREAMS_HEARTBEAT_INTERVAL, 5_000, "How often members of the streams group send heartbeats."
    ),
    _number(
        STREAMS_SESSION_TIMEOUT,
        45_000,
        "A member that is silent for longer than this is removed from the streams group.",
    ),
    _number(
        STREAMS_ASSIGNMENT_INTERVAL,
        1_000,
        "The least time between two assignments of the streams group.",
        low=0,
    ),
    _number(
        STREAMS_INITIAL_DELAY,
        3_000,
        "How long the first assignment of an empty streams group waits for further members.",
        low=0,
    ),
    _number(
        STREAMS_STANDBYS,
        0,
        "Copies of the state of each task that members of the streams group keep.",
        low=0,
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


def broker_group_problems(
    values: Mapping[str, Value], shown: Callable[[str], str]
) -> list[Problem]:
    """What does not fit together in the broker's own settings of groups; `shown` names a value.

    Bounds leave room, a default lies within its bounds, and a session is longer than the time
    between two heartbeats. Source: Kafka's `GroupCoordinatorConfig`, `ShareGroupConfig`.
    """
    at_most = [("group.min.session.timeout.ms", "group.max.session.timeout.ms")]
    at_most += [
        (low, high)
        for key in _KEYS
        if key.type is ValueType.INT
        for low, high in _in_order(f"group.{key.name}", *bound_names(key))
    ]
    at_most.append(("group.share.max.size", "group.share.max.share.sessions"))
    problems = []
    named: set[str] = set()
    for low, high in at_most:
        if cast("int", values[low]) > cast("int", values[high]) and named.isdisjoint((low, high)):
            reason = f"more than {high} = {shown(high)}"
            problems.append(Problem(low, shown(low), reason, "lower it, or raise the other"))
            named |= {low, high}
    for session, heartbeat in ((f"group.{s}", f"group.{h}") for s, h in _SESSIONS):
        if cast("int", values[session]) <= cast("int", values[heartbeat]):
            reason = f"not above {heartbeat} = {shown(heartbeat)}"
            cure = "give several heartbeats to a session"
            problems.append(Problem(session, shown(session), reason, cure))
    return problems


def _in_order(default: str, low: str | None, high: str | None) -> list[tuple[str, str]]:
    """Pairs of settings of which the first is at most the second: the bounds come first."""
    if low is None:
        return [] if high is None else [(default, high)]
    assert high is not None
    return [(low, high), (low, default), (default, high)]


def group_value(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    """A number for a group whose own settings are `overrides`, within the broker's bounds."""
    key = GROUP_KEYS[name]
    if name not in overrides:
        return broker.group_numbers[f"group.{name}"]
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
        cure = nearest(name, list(GROUP_KEYS), "see tidelog docs configuration for the list")
        return Problem(name, text, "no such group setting", cure)
    try:
        value = cast("int", key.parse(text))
    except InvalidValue as error:
        return Problem(name, text, str(error), f"give {key.allowed()}")
    if key.type is not ValueType.INT:
        return None
    low, high = _bounds(key, broker)
    low_name, high_name = bound_names(key)
    if value < low:
        return Problem(name, text, "too small", f"{low_name} is {low}")
    if value > high:
        return Problem(name, text, "too large", f"{high_name} is {high}")
    return None


def _bounds(key: Key, broker: BrokerConfig) -> tuple[int, int]:
    low_name, high_name = bound_names(key)
    low, high = cast("int", key.low), cast("int", key.high)
    return (
        low if low_name is None else broker.group_numbers[low_name],
        high if high_name is None else broker.group_numbers[high_name],
    )


def bound_names(key: Key) -> tuple[str | None, str | None]:
    """The broker's settings that bound a group's own value; None is the bound of the key itself."""
    if key.name in _BOUNDS:
        return _BOUNDS[key.name]
    kind, _, rest = key.name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


NAMES_IN_BROKER: Final = frozenset(
    name
    for key in _KEYS
    if key.type is ValueType.INT
    for name in (f"group.{key.name}", *bound_names(key))
    if name is not None
)
"""The broker's settings that groups' numbers are resolved from: defaults and bounds."""


def _default(name: str, high: int = INT32_MAX) -> Key:
    """The broker's setting that groups without their own `name` have."""
    key = GROUP_KEYS[name]
    doc = f"Default of the group setting {name}. {key.doc}"
    return number(
        f"group.{name}", cast("int", key.default), doc, low=cast("int", key.low), high=high
    )


def _bounded(
    name: str, least: tuple[int, int, int], most: tuple[int, int, int], high: int = INT32_MAX
) -> Iterator[Key]:
    """As `_default`, and the bounds of a group's own value: low, default and high of each."""
    yield _default(name, high)
    bounds = zip(bound_names(GROUP_KEYS[name]), ("least", "most"), (least, most), strict=True)
    for bound, extreme, (low, default, highest) in bounds:
        doc = f"The {extreme} that a group's own {name} may be."
        yield number(str(bound), default, doc, low=low, high=highest)


CONSUMER_KEYS: Final[tuple[Key, ...]] = (
    *_bounded(SESSION_TIMEOUT, (1, 45_000, INT32_MAX), (1, 60_000, INT32_MAX)),
    *_bounded(HEARTBEAT_INTERVAL, (1, 5_000, INT32_MAX), (1, 15_000, INT32_MAX)),
    *_bounded(ASSIGNMENT_INTERVAL, (0, 0, INT32_MAX), (0, 15_000, INT32_MAX)),
)

SHARE_KEYS: Final[tuple[Key, ...]] = (
    *_bounded(SHARE_SESSION_TIMEOUT, (1, 45_000, INT32_MAX), (1, 60_000, INT32_MAX)),
    *_bounded(SHARE_HEARTBEAT_INTERVAL, (1, 5_000, INT32_MAX), (1, 15_000, INT32_MAX)),
    *_bounded(SHARE_ASSIGNMENT_INTERVAL, (0, 0, 15_000), (0, 15_000, INT32_MAX), 15_000),
    number("group.share.max.size", 200, "Members that a share group may have.", high=1000),
    number("group.share.max.share.sessions", 2_000, "Share sessions that the broker keeps."),
    *_bounded(SHARE_LOCK_DURATION, (1_000, 15_000, 30_000), (30_000, 60_000, 3_600_000), 3_600_000),
    *_bounded(SHARE_DELIVERY_LIMIT, (2, 2, 5), (5, 10, 25), 10),
    *_bounded(SHARE_RECORD_LOCKS, (100, 100, 2_000), (2_000, 4_000, 10_000), 10_000),
    *internal_topic("share.coordinator.state.topic", "__share_group_state"),
    number(
        "share.coordinator.state.topic.min.isr", 1, "Accepted for compatibility.", high=INT16_MAX
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

STREAMS_KEYS: Final[tuple[Key, ...]] = (
    *_bounded(STREAMS_SESSION_TIMEOUT, (1, 45_000, INT32_MAX), (1, 60_000, INT32_MAX)),
    *_bounded(STREAMS_HEARTBEAT_INTERVAL, (1, 5_000, INT32_MAX), (1, 15_000, INT32_MAX)),
    *_bounded(STREAMS_ASSIGNMENT_INTERVAL, (0, 0, INT32_MAX), (0, 15_000, INT32_MAX)),
    _default(STREAMS_INITIAL_DELAY),
    _default(STREAMS_STANDBYS),
    number(
        "group.streams.max.standby.replicas",
        2,
        "The most that a group's own streams.num.standby.replicas may be.",
        low=0,
    ),
    number("group.streams.max.size", INT32_MAX, "Members that a streams group may have."),
)
"""In the order of docs/configuration.md."""
