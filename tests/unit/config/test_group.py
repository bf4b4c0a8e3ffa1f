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


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"min.session.timeout.ms": "70000"},
            "more than group.KIND.max.session.timeout.ms = 60000",
        ),
        ({"min.heartbeat.interval.ms": "16000"}, "group.KIND.max.heartbeat.interval.ms = 15000"),
        ({"max.assignment.interval.ms": "0", "min.assignment.interval.ms": "1"}, "interval.ms = 0"),
        (
            {"session.timeout.ms": "44999"},
            "min.session.timeout.ms = '45000': more than group.KIND.s",
        ),
        ({"session.timeout.ms": "60001"}, "more than group.KIND.max.session.timeout.ms = 60000"),
        ({"heartbeat.interval.ms": "4999"}, "more than group.KIND.heartbeat.interval.ms = 4999"),
        ({"assignment.interval.ms": "15000", "max.assignment.interval.ms": "14999"}, "= 14999"),
        (
            {"heartbeat.interval.ms": "45000", "max.heartbeat.interval.ms": "45000"},
            "group.KIND.session.timeout.ms = '45000': not above group.KIND.heartbeat.interval.ms",
        ),
    ],
)
def test_settings_of_a_kind_of_groups_that_do_not_fit_together_end_the_start(
    kind: str, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigErrors) as refusal:
        load(command_line={f"group.{kind}.{name}": text for name, text in settings.items()})
    assert says.replace("KIND", kind) in str(refusal.value)
    assert len(refusal.value.problems) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"group.share.record.lock.duration.ms": "14999"}, "group.share.min.record.lock.duration"),
        ({"group.share.record.lock.duration.ms": "60001"}, "group.share.max.record.lock.duration"),
        (
            {"group.share.max.delivery.count.limit": "5", "group.share.delivery.count.limit": "6"},
            "5",
        ),
        ({"group.share.partition.max.record.locks": "4001"}, "max.partition.max.record.locks"),
        ({"group.streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas = 2"),
        ({"group.share.max.share.sessions": "199"}, "group.share.max.size = '200': more than"),
    ],
)
def test_limits_of_share_and_streams_groups_fit_together(
    settings: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigErrors) as refusal:
        load(command_line=settings)
    assert says in str(refusal.value)
    assert len(refusal.value.problems) == 1
