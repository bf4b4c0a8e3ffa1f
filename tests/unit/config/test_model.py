"""The tables and the models state the same settings, and descriptions show every level."""

import dataclasses

import pytest

from config import ConfigErrors, load, with_dynamic
from config.broker_keys import BROKER_KEYS
from config.describe import ConfigSource, TopicDescriptions, describe_broker
from config.group import NAMES_IN_BROKER
from config.model import BrokerConfig, TopicConfig
from config.not_applicable.reasons import NOT_APPLICABLE
from config.security.keys import LISTENER_KEYS, STORE_KEYS
from config.topic_keys import TOPIC_KEYS
from config.values import ValueType, format_value

_RESOLVED_AWAY = {"message_timestamp_difference_max_ms"}
_RENAMED = {
    "log_dirs": "data_dir",
    "listener_security_protocol_map": "listeners",
    "metrics_listener_security": "metrics_listener",
    "config_providers": "providers",
}
_DERIVED = {
    "group_numbers",
    "settings",
    "secrets",
    "dynamic",
    "dynamic_secrets",
    "dynamic_references",
    "notices",
}
_NO_CHANGE = "Accepted for compatibility"
"""How the description of a setting begins that changes nothing, and has no field."""


def test_every_topic_key_is_a_field_and_every_field_a_key() -> None:
    fields = {field.name for field in dataclasses.fields(TopicConfig)}
    changing = {key.field for key in TOPIC_KEYS.values() if not key.doc.startswith(_NO_CHANGE)}
    assert fields == changing - _RESOLVED_AWAY


def test_every_broker_key_is_a_field_or_a_topic_default() -> None:
    fields = {field.name for field in dataclasses.fields(BrokerConfig)} - _DERIVED
    synonyms = {name for key in TOPIC_KEYS.values() for name, _ in key.synonyms}
    own = {
        _RENAMED.get(key.field, key.field)
        for key in BROKER_KEYS.values()
        if key.name not in synonyms
        and (key.name not in LISTENER_KEYS or key.dynamic)
        and key.name not in STORE_KEYS
        and key.type is not ValueType.PASSWORD
        and key.name not in NAMES_IN_BROKER
        and not key.doc.startswith(_NO_CHANGE)
    }
    assert own == fields


def test_every_default_is_within_its_own_range() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        assert key.parse(format_value(key.default)) == key.default, key.name
        assert key.doc.endswith("."), key.name
        assert key.allowed(), key.name


def test_no_setting_is_both_served_and_not_applicable() -> None:
    assert not set(BROKER_KEYS) & set(NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("create.topic.policy.class.name=a.B", "rights say who may create topics"),
        ("alter.config.policy.class.name=a.B", "rights say who may change settings"),
        ("client.quota.callback.class=a.B", "quotas are set for users and clients"),
    ],
)
def test_a_class_that_would_protect_the_broker_is_refused(line: str, cure: str) -> None:
    name, value = line.split("=")
    with pytest.raises(ConfigErrors, match=cure):
        load(command_line={name: value})


@pytest.mark.parametrize("name", ["group.consumer.assignors", "max.request.partition.size.limit"])
def test_a_setting_without_a_meaning_here_is_accepted_with_a_notice(name: str) -> None:
    (notice,) = load(command_line={name: "1"}).notices
    assert name in notice


def test_a_topic_description_shows_every_level_most_specific_first() -> None:
    broker = with_dynamic(
        load(command_line={"log.retention.hours": "1", "log.retention.ms": "5"}),
        {"log.retention.ms": "6"},
    )
    entries = {
        entry.key.name: entry for entry in TopicDescriptions(broker).of({"retention.ms": "7"})
    }
    entry = entries["retention.ms"]
    assert (entry.value, entry.source) == ("7", ConfigSource.TOPIC)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "7", ConfigSource.TOPIC),
        ("log.retention.ms", "6", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "5", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
    ]


def test_an_inherited_value_is_shown_in_the_topics_unit() -> None:
    entries = {
        entry.key.name: entry
        for entry in TopicDescriptions(load(command_line={"log.retention.hours": "2"})).of({})
    }
    assert entries["retention.ms"].value == "7200000"
    assert entries["retention.ms"].source is ConfigSource.STATIC_BROKER


def test_an_untouched_setting_is_a_default() -> None:
    entries = {entry.key.name: entry for entry in describe_broker(load())}
    assert entries["num.partitions"].source is ConfigSource.DEFAULT
    assert entries["num.partitions"].value == "1"
    assert entries["listeners"].key.type is ValueType.LIST
