"""The settings of groups: a row for each, and their resolution.

A group's own value counts within the broker's bounds (`group.consumer.min...`,
`group.consumer.max...`), else the broker's. Names and defaults are Apache Kafka's (4.3). The bounds
are applied when a value is set. A value that was set under other bounds is kept, and each use
limits it to the current ones.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast

from config.errors import Problem
from config.model import BrokerConfig
from config.rows import topic_number
from config.suggest import nearest
from config.values import InvalidValue, Key

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


_KEYS = (
    topic_number(
        HEARTBEAT_INTERVAL,
        5_000,
        "How often members of the group send heartbeats.",
        (f"group.{HEARTBEAT_INTERVAL}", 1),
        low=1,
        wide=False,
    ),
    topic_number(
        SESSION_TIMEOUT,
        45_000,
        "A member that is silent for longer than this is removed from the group.",
        (f"group.{SESSION_TIMEOUT}", 1),
        low=1,
        wide=False,
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
    if not problems and group_value(SESSION_TIMEOUT, overrides, broker) <= group_value(
        HEARTBEAT_INTERVAL, overrides, broker
    ):
        problems.append(
            Problem(
                SESSION_TIMEOUT,
                str(group_value(SESSION_TIMEOUT, overrides, broker)),
                f"not above {HEARTBEAT_INTERVAL}",
                "give several heartbeats to a session",
            )
        )
    return problems


def group_value(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> int:
    """A setting in ms for a group whose own settings are `overrides`."""
    key = GROUP_KEYS[name]
    if name not in overrides:
        return broker_value(key, broker)
    low, high = _bounds(key, broker)
    return min(max(cast("int", key.parse(overrides[name])), low), high)


def broker_value(key: Key, broker: BrokerConfig) -> int:
    """The value in ms for a group without its own."""
    return _broker_number(broker, f"group.{key.name}")


def _check(name: str, text: str, broker: BrokerConfig) -> Problem | None:
    key = GROUP_KEYS.get(name)
    if key is None:
        cure = nearest(name, list(GROUP_KEYS), "see docs/configuration.md for the list")
        return Problem(name, text, "no such group setting", cure)
    try:
        value = cast("int", key.parse(text))
    except InvalidValue as error:
        return Problem(name, text, str(error), f"give {key.allowed()}")
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
