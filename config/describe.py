"""Settings as `DescribeConfigs` shows them: value, source and synonyms.

Source numbers are Kafka's (`DescribeConfigsResponse.ConfigSource`). A level that is unset does not
appear among the synonyms, except the default, which always closes the list.
"""

import enum
from collections.abc import Mapping
from dataclasses import replace

from config.broker_keys import BROKER_KEYS
from config.group import GROUP_KEYS
from config.model import BrokerConfig
from config.security.keys import scoped_key
from config.topic import canonical_topic_key, inherit
from config.topic_keys import TOPIC_KEYS
from config.values import Key, ValueType, format_value, list_words
from values.dataclasses import dataclass

_WITHOUT_DEFAULT = frozenset(
    {
        "log.flush.interval.ms",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
    }
)
"""Broker settings that are unset by default, so that the one with the next unit counts.

In Kafka they have no default that could be a synonym of the topic's setting.
"""


_SET_WHEN_FORMATTED = "min.insync.replicas"
"""Set cluster-wide by Kafka 4.1 and later when they format a directory, so reported as set."""


class ConfigSource(enum.IntEnum):
    """The source of a value, as numbered on the wire."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """One level at which a setting has a value."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSetting:
    """One setting: the winning level first in `synonyms`, the default last."""

    key: Key
    synonyms: tuple[Synonym, ...]

    @property
    def value(self) -> str:
        """The text of the value in force; of a list, each word once."""
        text = self.synonyms[0].value
        return format_value(list_words(text)) if self.key.type is ValueType.LIST else text

    @property
    def visible_synonyms(self) -> tuple[Synonym, ...]:
        """The levels that clients see: without a default that Kafka does not have."""
        inherits = bool(self.key.synonyms) and self.synonyms[-1].name not in _WITHOUT_DEFAULT
        if self.key.name in TOPIC_KEYS and not inherits:
            return self.synonyms[:-1]
        return self.synonyms

    @property
    def source(self) -> ConfigSource:
        """The source of the value in force."""
        return self.synonyms[0].source


class TopicDescriptions:
    """The settings of a broker's topics; what a topic inherits is one object for all of them."""

    def __init__(self, broker: BrokerConfig) -> None:
        """Topics inherit from `broker`."""
        self.broker = broker
        self._inherited = [_describe_topic_key(key, {}, broker) for key in TOPIC_KEYS.values()]

    def of(self, overrides: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic whose own settings are `overrides`, in the table's order."""
        own = {canonical_topic_key(name): text for name, text in overrides.items()}
        return [
            _describe_topic_key(entry.key, own, self.broker) if entry.key.name in own else entry
            for entry in self._inherited
        ]


def describe_broker(broker: BrokerConfig) -> list[DescribedSetting]:
    """Every broker setting, in the table's order, then those that listeners have of their own."""
    keys = list(BROKER_KEYS.values())
    own = sorted({*broker.settings, *broker.dynamic} - BROKER_KEYS.keys())
    keys += [replace(key, name=name) for name in own if (key := scoped_key(name.lower()))]
    return [
        DescribedSetting(
            key=key,
            synonyms=(*_broker_levels(key.name, broker), default_level(key.name, key)),
        )
        for key in keys
    ]


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedSetting]:
    """Every setting of a group whose own settings are `overrides`, in the table's order."""
    entries = []
    for key in GROUP_KEYS.values():
        levels = [default_level(key.name, key)]
        if key.synonyms:
            ((broker_name, _),) = key.synonyms
            levels = [*_broker_levels(broker_name, broker), default_level(broker_name, key)]
        if key.name in overrides:
            own = Synonym(name=key.name, value=overrides[key.name], source=ConfigSource.GROUP)
            levels.insert(0, own)
        entries.append(DescribedSetting(key=key, synonyms=tuple(levels)))
    return entries


def _describe_topic_key(key: Key, own: Mapping[str, str], broker: BrokerConfig) -> DescribedSetting:
    levels: list[Synonym] = []
    if key.name in own:
        levels.append(Synonym(name=key.name, value=own[key.name], source=ConfigSource.TOPIC))
    inherited = inherit(key, broker)
    for name, _ in key.synonyms:
        for level in _broker_levels(name, broker):
            value = format_value(inherited) if inherited is not None and not levels else level.value
            levels.append(Synonym(name=name, value=value, source=level.source))
    levels.append(default_level(key.synonyms[0][0] if key.synonyms else key.name, key))
    return DescribedSetting(key=key, synonyms=tuple(levels))


def _broker_levels(name: str, broker: BrokerConfig) -> list[Synonym]:
    levels = []
    if name in broker.dynamic:
        text = broker.dynamic_references.get(name, broker.dynamic[name])
        levels.append(Synonym(name=name, value=text, source=ConfigSource.DYNAMIC_BROKER))
    if name == _SET_WHEN_FORMATTED:
        given = broker.shown_text_of(name) if name not in broker.dynamic else None
        value = given or format_value(BROKER_KEYS[name].default)
        levels.append(Synonym(name=name, value=value, source=ConfigSource.DYNAMIC_DEFAULT_BROKER))
    if name in broker.settings:
        text = broker.settings[name].shown
        levels.append(Synonym(name=name, value=text, source=ConfigSource.STATIC_BROKER))
    return levels


def default_level(name: str, key: Key) -> Synonym:
    """The level of the default of `key`, under this name."""
    return Synonym(name=name, value=format_value(key.default), source=ConfigSource.DEFAULT)
