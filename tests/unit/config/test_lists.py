"""Lists in settings, as Kafka 4.3.1 takes them: a word counts once, and none is empty.

What Kafka does was seen with its `LogConfig.validate` and `KafkaConfig` (KIP-1161).
"""

import pytest

from config import ConfigErrors, check_topic_overrides, load, topic_config
from config.describe import describe_broker

BROKER = load(command_line={})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("delete,delete", {"delete"}),
        ("compact,delete,compact", {"compact", "delete"}),
        (" delete , compact ", {"delete", "compact"}),
        ("", set()),
    ],
)
def test_a_word_that_stands_twice_counts_once(text: str, words: set[str]) -> None:
    assert check_topic_overrides({"cleanup.policy": text}) == []
    assert topic_config({"cleanup.policy": text}, BROKER).cleanup_policy == words


def test_the_order_of_a_brokers_list_stays() -> None:
    text = "PLAIN,SCRAM-SHA-256,PLAIN"
    broker = load(command_line={"sasl.enabled.mechanisms": text})
    (shown,) = (
        each.value for each in describe_broker(broker) if each.key.name == "sasl.enabled.mechanisms"
    )
    assert shown == "PLAIN,SCRAM-SHA-256"


@pytest.mark.parametrize("text", ["delete,,compact", ",delete", "delete,", "delete, ,compact", ","])
def test_a_list_with_an_empty_word_is_refused(text: str) -> None:
    (problem,) = check_topic_overrides({"cleanup.policy": text})
    assert "a word between its commas is empty; give a list of: delete, compact" in str(problem)
    with pytest.raises(ConfigErrors, match="empty"):
        load(command_line={"log.cleanup.policy": text})


def test_one_that_is_stored_from_before_is_read() -> None:
    stored = {"cleanup.policy": "delete,"}
    assert topic_config(stored, BROKER, is_stored=True).cleanup_policy == {"delete"}
