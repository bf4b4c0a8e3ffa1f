"""Waiting between attempts: longer each time, never in step with others, never past a deadline.

Used wherever a request may succeed later. It knows neither requests nor brokers.

Source: KIP-580 (exponential back-off with jitter).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from client.errors import BrokerRefused, BrokerUnreachable, ClientError
from protocol.error_codes import ErrorCode

_T = TypeVar("_T")

_JITTER = 0.2


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

    async def pause(self) -> None:
        """Sleep for this attempt's pause."""
        spread = random.uniform(1 - _JITTER, 1 + _JITTER)
        delay_ms = self._next_ms * spread
        self._next_ms = min(self._next_ms * 2, self._limit_ms)
        await asyncio.sleep(delay_ms / 1000)


def is_retriable(error: ClientError) -> bool:
    """Whether another attempt may succeed: lost connections, and codes that Kafka calls so."""
    if isinstance(error, BrokerRefused):
        return error.retriable
    return isinstance(error, BrokerUnreachable)


async def retrying(
    attempt: Callable[[], Awaitable[_T]],
    *,
    timeout_ms: int,
    on_failure: Callable[[ClientError], None] | None = None,
    except_for: frozenset[ErrorCode] = frozenset(),
) -> _T:
    """The result of the first attempt that succeeds within `timeout_ms`.

    `on_failure` gets each error before the pause, to drop stale cache entries. The codes in
    `except_for` end it at once although Kafka calls them retriable.

    Raises:
        ClientError: the last error when time is up, or the first one that is not retriable.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    backoff = Backoff()
    while True:
        try:
            return await attempt()
        except (BrokerRefused, BrokerUnreachable) as error:
            if on_failure is not None:
                on_failure(error)
            if isinstance(error, BrokerRefused) and error.code in except_for:
                raise
            if not is_retriable(error) or loop.time() >= deadline:
                raise
        await backoff.pause()
