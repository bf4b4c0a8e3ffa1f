"""A group's own settings: within the broker's bounds, and brought there when the bounds change."""

import pytest

from config import check_group_overrides, load
from config.describe import ConfigSource, describe_group
from config.errors import ConfigErrors
from config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_value

BROKER = load(command_line={"group.consumer.session.timeout.ms": "50000"})


def test_a_group_without_a_value_has_the_brokers() -> None:
    assert group_value(SESSION_TIMEOUT, {}, BROKER) == 50_000
    assert group_value(HEARTBEAT_INTERVAL, {}, BROKER) == 5_000


def test_a_value_that_was_set_under_other_bounds_is_brought_within_these() -> None:
    assert group_value(SESSION_TIMEOUT, {SESSION_TIMEOUT: "100"}, BROKER) == 45_000
    assert group_value(SESSION_TIMEOUT, {SESSION_TIMEOUT: "99000"}, BROKER) == 60_000


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (SESSION_TIMEOUT, "1", "group.consumer.min.session.timeout.ms is 45000"),
        (HEARTBEAT_INTERVAL, "15001", "group.consumer.max.heartbeat.interval.ms is 15000"),
        (HEARTBEAT_INTERVAL, "often", "a whole number"),
        ("consumer.sessions.timeout.ms", "1", SESSION_TIMEOUT),
    ],
)
def test_a_refusal_says_what_to_give(name: str, text: str, says: str) -> None:
    (problem,) = check_group_overrides({name: text}, BROKER)
    assert says in str(problem)


def test_every_level_of_a_value_is_shown() -> None:
    entries = describe_group({SESSION_TIMEOUT: "55000"}, BROKER)
    session = next(entry for entry in entries if entry.key.name == SESSION_TIMEOUT)
    assert [(level.value, level.source) for level in session.synonyms] == [
        ("55000", ConfigSource.GROUP),
        ("50000", ConfigSource.STATIC_BROKER),
        ("45000", ConfigSource.DEFAULT),
    ]


def test_bounds_that_leave_no_room_end_the_start() -> None:
    with pytest.raises(ConfigErrors, match=r"more than group\.consumer\.max\.session"):
        load(command_line={"group.consumer.min.session.timeout.ms": "70000"})
