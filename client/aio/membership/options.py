"""How to be a member, by either protocol; the options of the consumer protocol are in the core."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from client.assignors import ASSIGNORS, Assignor
from client.checks import check_choice, check_numbers
from client.core.membership.options import CONSUMER, ConsumerGroupOptions, check_protocol
from client.errors import InvalidType, InvalidUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicOptions:
    """How to be a member; times in milliseconds.

    `instance_id` makes the member static: it keeps its share over a restart. A consumer that
    is not polled for `max_poll_interval_ms` leaves, so that others can take over.
    """

    group_id: str
    instance_id: str | None = None
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    max_poll_interval_ms: int = 300_000

    def __post_init__(self) -> None:
        """Refuse invalid values; raises InvalidUse."""
        check_numbers(
            1,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
        )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidUse(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} is not below "
                f"session_timeout_ms={self.session_timeout_ms}, so the group would lose this "
                "member: give a third of it"
            )
        assignors_named(self.assignors)


def group_options(
    group_id: str | None,
    *,
    protocol: str,
    instance_id: str | None,
    remote_assignor: str | None,
    assignors: Iterable[str] | None,
    session_timeout_ms: int | None,
    heartbeat_interval_ms: int | None,
    max_poll_interval_ms: int,
) -> ClassicOptions | ConsumerGroupOptions:
    """The options of the protocol that was chosen; None is its default.

    Raises:
        InvalidType: the assignors are neither text nor several.
        InvalidUse: values that are out of range, or that the protocol does not have.
    """
    of_classic: dict[str, Any] = {
        "assignors": _names_of(assignors),
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_interval_ms": heartbeat_interval_ms,
    }
    check_protocol(protocol, group_id, remote_assignor, **of_classic)
    common: dict[str, Any] = {
        "group_id": group_id or "",
        "instance_id": instance_id,
        "max_poll_interval_ms": max_poll_interval_ms,
    }
    if protocol == CONSUMER:
        return ConsumerGroupOptions(remote_assignor=remote_assignor, **common)
    given = {name: value for name, value in of_classic.items() if value is not None}
    return ClassicOptions(**common, **given)


def _names_of(assignors: object) -> tuple[Any, ...] | None:
    """The names as a tuple; one name may be given alone."""
    if assignors is None:
        return None
    if isinstance(assignors, str):
        return (assignors,)
    if not isinstance(assignors, Iterable):
        known = ", ".join(ASSIGNORS)
        raise InvalidType(f"assignors={assignors!r} are no names: choose from {known}")
    return tuple(assignors)


def assignors_named(names: Iterable[str]) -> dict[str, Assignor]:
    """The assignors of these names, in this order.

    Raises:
        InvalidUse: one does not exist, or none is named.
    """
    chosen = {}
    for name in names:
        check_choice("assignor", name, ASSIGNORS)
        chosen[name] = ASSIGNORS[name]
    if not chosen:
        raise InvalidUse(f"no assignor is given: choose from {', '.join(ASSIGNORS)}")
    return chosen
