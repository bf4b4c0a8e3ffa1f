"""Topic settings: precedence, units, aliases, and the timestamp bounds of KIP-937."""

import pytest

from config import ConfigErrors, load, topic_config
from config.values import INT64_MAX


def test_the_most_specific_synonym_wins() -> None:
    broker = load(command_line={"log.retention.hours": "1", "log.retention.minutes": "2"})
    assert topic_config({}, broker).retention_ms == 120_000
    assert topic_config({"retention.ms": "5"}, broker).retention_ms == 5


def test_no_limit_is_no_limit_in_any_unit() -> None:
    assert topic_config({}, load(command_line={"log.retention.hours": "-1"})).retention_ms == -1


def test_future_timestamps_are_bounded_by_default() -> None:
    config = topic_config({}, load())
    assert config.message_timestamp_before_max_ms == INT64_MAX
    assert config.message_timestamp_after_max_ms == 3_600_000


@pytest.mark.parametrize(
    "name", ["message.timestamp.difference.max.ms", "max.message.time.difference.ms"]
)
def test_the_first_name_of_the_bound_covers_both_sides(name: str) -> None:
    config = topic_config({name: "7"}, load())
    assert config.message_timestamp_before_max_ms == 7
    assert config.message_timestamp_after_max_ms == 7


def test_a_topic_bound_beats_the_difference_and_the_topic_beats_the_broker() -> None:
    broker = load(
        command_line={
            "log.message.timestamp.difference.max.ms": "10",
            "log.message.timestamp.before.max.ms": "20",
        }
    )
    config = topic_config({"message.timestamp.after.max.ms": "30"}, broker)
    assert config.message_timestamp_before_max_ms == 20
    assert config.message_timestamp_after_max_ms == 30
    assert topic_config({}, broker).message_timestamp_after_max_ms == 10
    own = topic_config({"message.timestamp.difference.max.ms": "1"}, broker)
    assert own.message_timestamp_before_max_ms == 1


def test_cleanup_policies_combine() -> None:
    config = topic_config({"cleanup.policy": "compact, delete"}, load())
    assert config.is_compacted
    assert config.is_deleted_by_retention


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"retention.mss": "1"}, "did you mean retention.ms?"),
        ({"message.timestamp.type": "createtime"}, "one of: CreateTime, LogAppendTime"),
        ({"segment.bytes": "13"}, "from 14 to 2147483647"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "more than max.compaction"),
        ({"retention.ms": "-2"}, "at least -1"),
    ],
)
def test_a_bad_override_is_explained(overrides: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigErrors, match=complaint.replace("?", r"\?")):
        topic_config(overrides, load())


def test_every_problem_is_reported() -> None:
    with pytest.raises(ConfigErrors) as caught:
        topic_config({"a": "1", "retention.ms": "x"}, load())
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "version",
    ["0.8.0", "0.9.0.1", "0.10.0-IV1", "0.10.2.2", "1.0", "2.8", "2.8.2", "2.8-IV1", "3.9-IV0"],
)
def test_the_format_version_of_a_release_is_accepted_and_changes_nothing(version: str) -> None:
    broker = load(command_line={"log.message.format.version": version})
    assert topic_config({}, broker) == topic_config({}, load())
    assert topic_config({"message.format.version": version}, load()) == topic_config({}, load())


@pytest.mark.parametrize("version", ["", "3", "0.10", "0.7.0", "2.9", "2.8-IV2", "4.0", "bogus"])
def test_the_format_version_of_no_release_is_refused(version: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        topic_config({"message.format.version": version}, load())
    assert "no release of Kafka" in str(caught.value)
