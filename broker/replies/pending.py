"""A response that is not ready yet: the result of a synchronous handler that has to wait.

A handler that cannot answer at once (a long-poll Fetch, an acks=all Produce, a JoinGroup) returns a
`Pending` and keeps a reference to it for the event. Resolving it runs the subscriber in the same
call, without a task, a future or a trip through the event loop. One fsync may complete hundreds of
produce requests, and each costs one method call.

A `Pending` is settled at most once (resolved, failed or abandoned) and is only touched from the
event-loop thread. The connection abandons it when the peer has gone, which runs `on_abandon`, so
that the code that parked it can drop it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """One value or error that arrives later, delivered to one subscriber."""

    __slots__ = ("_subscriber", "_value", "error", "on_abandon", "settled")

    is_begun = True
    """Whether every change of the request is made, so that only the wait is left."""

    def __init__(self, on_abandon: Callable[[], object] | None = None) -> None:
        """Create it unsettled; `on_abandon` runs if the requester goes away first."""
        self.settled = False
        self.on_abandon = on_abandon
        self._value: T | None = None
        self.error: BaseException | None = None
        """The error it failed with, or None."""
        self._subscriber: Callable[[Pending[T]], object] | None = None

    def resolve(self, value: T) -> None:
        """Deliver `value`; ignored when already settled (a late event after a timeout)."""
        if self.settled:
            return
        self.settled = True
        self._value = value
        self._deliver()

    def fail(self, error: BaseException) -> None:
        """Deliver `error` in place of a value; ignored when already settled."""
        if self.settled:
            return
        self.settled = True
        self.error = error
        self._deliver()

    def abandon(self) -> None:
        """The value has no recipient any more: drop the subscriber and run `on_abandon`."""
        if self.settled:
            return
        self.settled = True
        self._subscriber = None
        on_abandon, self.on_abandon = self.on_abandon, None
        if on_abandon is not None:
            on_abandon()

    def subscribe(self, subscriber: Callable[["Pending[T]"], object]) -> None:
        """Call `subscriber(self)` once settled, at once if it already is."""
        assert self._subscriber is None, "a pending response has one subscriber"
        self._subscriber = subscriber
        if self.settled:
            self._deliver()

    def result(self) -> T:
        """The delivered value.

        Raises:
            BaseException: the error handed to `fail`.
        """
        assert self.settled, "result() before the pending response was settled"
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def _deliver(self) -> None:
        self.on_abandon = None
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber(self)
