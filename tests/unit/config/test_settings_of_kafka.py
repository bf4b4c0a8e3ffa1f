"""Every setting that a broker of Apache Kafka 4.3.1 names is served, means nothing, or is refused.

`settings_of_kafka.txt` has what its DescribeConfigs answers for a broker, a topic and a group.
"""

from pathlib import Path

import pytest

from config import ConfigErrors, load
from config.broker_keys import BROKER_ALIASES, BROKER_KEYS
from config.group import GROUP_KEYS
from config.not_applicable.reasons import reason_not_applicable
from config.topic_keys import TOPIC_KEYS

LINES = (Path(__file__).parent / "settings_of_kafka.txt").read_text().splitlines()
REFUSED = {
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "principal.builder.class",
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
    "ssl.engine.factory.class",
}
"""They name classes that would protect the broker, or have passwords of the JVM's own form."""


def names(kind: str) -> list[str]:
    return [line.split()[1] for line in LINES if line.startswith(f"{kind} ")]


def test_the_list_is_whole() -> None:
    assert [len(names(kind)) for kind in ("broker", "topic", "group")] == [340, 33, 17]


def test_settings_of_topics_and_groups_are_known() -> None:
    assert set(names("topic")) - set(TOPIC_KEYS) == set()
    assert set(names("group")) - set(GROUP_KEYS) == set()


def test_settings_of_brokers_are_known() -> None:
    unknown = {
        name
        for name in names("broker")
        if name not in BROKER_KEYS
        and name not in BROKER_ALIASES
        and reason_not_applicable(name) is None
    }
    assert unknown == REFUSED


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_has_a_cure(name: str) -> None:
    with pytest.raises(ConfigErrors, match="not served"):
        load(command_line={name: "x"})
