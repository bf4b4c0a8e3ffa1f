"""Every setting of a group: one row each.

Names and defaults are Apache Kafka's (4.3). A group's value lies between bounds that the broker
sets (`group.consumer.min...`, `group.consumer.max...`); without one the broker's counts. Resolution
is in `config.group`.
"""

from types import MappingProxyType
from typing import Final

from config.values import INT32_MAX, Key, ValueType

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


def _time(name: str, default: int, doc: str) -> Key:
    return Key(
        name=name,
        type=ValueType.INT,
        default=default,
        low=1,
        high=INT32_MAX,
        doc=doc,
        dynamic=True,
        synonyms=((f"group.{name}", 1),),
    )


_KEYS = (
    _time(HEARTBEAT_INTERVAL, 5_000, "How often members of the group send heartbeats."),
    _time(
        SESSION_TIMEOUT,
        45_000,
        "A member that is silent for longer than this is removed from the group.",
    ),
)

GROUP_KEYS: MappingProxyType[str, Key] = MappingProxyType({key.name: key for key in _KEYS})
"""The settings of groups by name, in the order in which they are shown."""
