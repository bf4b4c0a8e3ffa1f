"""The clock of a broker under test: freeze it, set it, let time pass.

The same commands as ``tidelog clock``, and the same rules: each returns when the jobs that fell due
have run and what they wrote is durable. docs/time.md lists what follows this clock.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Where the clock stands, and the effects of the command that moved it.

    Attributes:
        wall_ms: what it shows, in milliseconds since the epoch.
        elapsed_ms: elapsed time, advances included.
        rate: its speed as a multiple of real time; 0 is frozen.
        fired: how many jobs fell due and ran.
        segments_deleted: how many segments retention deleted.
        groups_expired: how many consumer groups were removed.
    """

    wall_ms: int
    elapsed_ms: int
    rate: float
    fired: int = 0
    segments_deleted: int = 0
    groups_expired: int = 0


class ClockCommands(ABC, Generic[_T]):
    """The commands; a subclass sends them and answers with a reading, or with an awaitable one.

    Times are milliseconds since the epoch, aware datetimes, or text as for ``tidelog consume
    --from``, where relative times count from the real present. Durations are milliseconds,
    timedeltas, or text such as ``8d`` and ``1h30m``.
    """

    @abstractmethod
    def _send(self, changes: dict[str, float]) -> _T:
        """Apply `changes`, none to read the clock."""

    def read(self) -> _T:
        """Where the clock stands."""
        return self._send({})

    def freeze(self, when: int | str | datetime | None = None) -> _T:
        """Stop the clock, where it stands or at `when`."""
        changes = {} if when is None else {"set_ms": _to_ms(when)}
        return self._send({"rate": 0, **changes})

    def set(self, when: int | str | datetime) -> _T:
        """Let time pass until `when`, or jump back to it; ``now`` is the real present."""
        return self._send({"set_ms": _to_ms(when)})

    def advance(self, duration: int | str | timedelta) -> _T:
        """Let `duration` pass."""
        return self._send({"advance_ms": duration_ms(duration)})

    def jump(self, duration: int | str | timedelta) -> _T:
        """Move the wall clock alone, also back, as a clock that is set wrong does."""
        return self._send({"jump_ms": duration_ms(duration)})

    def resume(self, rate: float = 1) -> _T:
        """Let the clock run again from where it stands, `rate` times as fast as real time."""
        return self._send({"rate": rate})


class BrokerClock(ClockCommands[ClockReading]):
    """The clock of a broker in another process."""

    def __init__(self, host: str, metrics_port: int) -> None:
        """Send commands to this metrics port."""
        self._address = (host, metrics_port)

    @property
    def now_ms(self) -> int:
        """What the clock shows, in milliseconds since the epoch."""
        return self.read().wall_ms

    @contextmanager
    def frozen(self, when: int | str | datetime | None = None) -> Iterator["BrokerClock"]:
        """Freeze the clock while the block runs; afterwards it runs on from where it stands."""
        self.freeze(when)
        try:
            yield self
        finally:
            self.resume()

    def _send(self, changes: dict[str, float]) -> ClockReading:
        refusal = "this broker follows the system's clock, which a test cannot set"
        return ClockReading(**command(self._address, "/clock", changes, refusal))


class AsyncBrokerClock(ClockCommands[Awaitable[ClockReading]]):
    """The clock of a broker in this event loop; each command is awaited."""

    def __init__(self, metrics_url: str) -> None:
        """Send commands to this metrics port."""
        self._metrics_url = metrics_url

    async def _send(self, changes: dict[str, float]) -> ClockReading:
        from client.aio.explain import MetricsPort

        return ClockReading(**await MetricsPort(self._metrics_url).clock(changes))


def command(
    address: tuple[str, int], path: str, words: Mapping[str, object], refusal: str
) -> dict[str, Any]:
    """The answer of a metrics port to a command of a test, to a question where there are no words.

    Raises:
        ValueError: the broker refused it; with `refusal` if its clock is not settable.
    """
    from http import HTTPStatus
    from http.client import HTTPConnection
    from urllib.parse import urlencode

    connection = HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        if words:
            headers = {"X-Tidelog-Clock": "set", "X-Tidelog-Command": "test"}
            connection.request("POST", f"{path}?{urlencode(words)}", headers=headers)
        else:
            connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        raise ValueError(f'{refusal}; start it with running_broker(clock="settable")')
    document: dict[str, Any] = json.loads(body)
    if answer.status != HTTPStatus.OK:
        raise ValueError(document["error"])
    return document


def _to_ms(when: int | str | datetime) -> int:
    from time import time_ns

    from client.times import to_ms

    return to_ms(when, now_ms=time_ns() // 1_000_000)


def duration_ms(duration: int | str | timedelta) -> int:
    """Milliseconds of a duration: they themselves, a timedelta, or text such as ``1h30m``."""
    if isinstance(duration, int):
        return duration
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    from client.times import parse_duration

    return parse_duration(duration)
