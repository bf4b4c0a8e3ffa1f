"""Which errors pass, and the pauses between attempts: longer each time, within a deadline.

The only place that decides whether a request is sent again. It knows neither requests nor brokers;
the clock is the caller's.

Source: KIP-580 (exponential back-off with jitter).
"""

import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from client.errors import BrokerRefused, BrokerUnreachable, ClientError

_T = TypeVar("_T")

_JITTER = 0.2


class Clock(Protocol):
    """The time of the caller: an event loop's, or a thread's."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class Backoff:
    """The pauses of one series of attempts; `reset` starts a new series."""

    def __init__(self, *, first_ms: int = 50, limit_ms: int = 1000) -> None:
        """Begin with `first_ms`; each pause doubles up to `limit_ms`, give or take a fifth."""
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._next_ms = first_ms

    def reset(self) -> None:
        """The next pause is the first one again."""
        self._next_ms = self._first_ms

    def next_s(self) -> float:
        """The seconds of this attempt's pause."""
        delay_ms = self._next_ms * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._next_ms = min(self._next_ms * 2, self._limit_ms)
        return delay_ms / 1000


def is_retriable(error: Exception) -> bool:
    """Whether another attempt may succeed: lost connections, and codes that Kafka calls so."""
    if isinstance(error, BrokerRefused):
        return error.retriable
    return isinstance(error, BrokerUnreachable)


async def retrying(
    clock: Clock,
    attempt: Callable[[], Awaitable[_T]],
    *,
    timeout_ms: int,
    on_failure: Callable[[ClientError], None] | None = None,
) -> _T:
    """The result of the first attempt that succeeds within `timeout_ms`.

    `on_failure` gets each error before the pause, to drop stale cache entries.

    Raises:
        ClientError: the last error when time is up, or the first one that is not retriable.
    """
    deadline = clock.now() + timeout_ms / 1000
    backoff = Backoff()
    while True:
        try:
            return await attempt()
        except (BrokerRefused, BrokerUnreachable) as error:
            if on_failure is not None:
                on_failure(error)
            if not is_retriable(error) or clock.now() >= deadline:
                raise
        await clock.sleep(backoff.next_s())
