"""How to be a member of a group whose coordinator assigns: values with their checks."""

from dataclasses import dataclass

from client.checks import check_choice, check_numbers, check_texts
from client.errors import InvalidUse

CLASSIC, CONSUMER = "classic", "consumer"

GROUP_PROTOCOLS = (CLASSIC, CONSUMER)
"""The names by which users choose a protocol, as in Kafka's ``group.protocol``."""

_BROKER_DECIDES = {
    "assignors": "give group_remote_assignor instead",
    "session_timeout_ms": "set group.consumer.session.timeout.ms of the broker or the group",
    "heartbeat_interval_ms": "set group.consumer.heartbeat.interval.ms of the broker or the group",
}
"""What a member of the consumer protocol cannot choose, and who does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupOptions:
    """How to be a member; times in milliseconds.

    `instance_id` makes the member static. `remote_assignor` is the broker's assignor that this
    member votes for; None leaves it to the broker. A consumer that is not polled for
    `max_poll_interval_ms` leaves; this is also how long it may take to give partitions back.
    """

    group_id: str
    instance_id: str | None = None
    remote_assignor: str | None = None
    max_poll_interval_ms: int = 300_000

    def __post_init__(self) -> None:
        """Refuse invalid values, by the names that users give; raises InvalidUse."""
        check_texts(group_remote_assignor=self.remote_assignor)
        check_numbers(1, max_poll_interval_ms=self.max_poll_interval_ms)


def check_protocol(
    protocol: object, group_id: object, remote_assignor: object, **of_classic: object
) -> None:
    """Refuse a protocol that does not exist, and options that the chosen one does not have.

    `of_classic` are the options of classic members that were given, None where they were not.

    Raises:
        InvalidUse: the option, and what to do instead.
    """
    check_choice("group_protocol", protocol, GROUP_PROTOCOLS)
    if protocol == CLASSIC:
        if remote_assignor is not None:
            raise InvalidUse(
                f"group_remote_assignor={remote_assignor!r} needs group_protocol='consumer': with "
                "the classic protocol the members assign, give assignors"
            )
        return
    if group_id is None:
        raise InvalidUse("group_protocol='consumer' needs a group_id")
    for name, value in of_classic.items():
        if value is not None:
            raise InvalidUse(
                f"{name}={value!r} has no effect with group_protocol='consumer', where the broker "
                f"decides: {_BROKER_DECIDES[name]}"
            )
