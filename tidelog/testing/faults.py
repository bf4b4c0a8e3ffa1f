"""Faults of single requests of a broker under test: errors, delays, lost connections.

The next Produce to a topic is answered NOT_LEADER_OR_FOLLOWER, the next three Fetch requests come
two seconds late, the answer to a commit is lost: what a client does then is what its user wants to
know. Everything else is served as always, by the broker that runs in production.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from tidelog.testing.clock import duration_ms

Send: TypeAlias = Callable[[Mapping[str, str]], dict[str, Any]]
"""Sends the parameters of a command, none to ask; the answer has the faults that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault:
    """A fault that requests may still meet.

    Attributes:
        request: the API of the requests, such as ``PRODUCE``.
        action: ``fail``, ``delay`` or ``drop``.
        error: of ``fail``, the error's name.
        delay_ms: of ``delay``, in milliseconds.
        served: of ``drop``, whether the request takes effect and only its answer is lost.
        topic, group, client_id: which requests it is about; None for all.
        left: how many requests are still to meet it; None for all until `RequestFaults.heal`.
        met: how many have met it.
    """

    request: str
    action: str
    error: str
    delay_ms: int
    served: bool
    topic: str | None
    group: str | None
    client_id: str | None
    left: int | None
    met: int


class RequestFaults:
    """Makes requests fail, come late, or lose their connection.

    `request` is the name of an API, such as ``PRODUCE``, ``Fetch`` or ``OffsetCommit``. With
    `topic`, `group` or `client_id` only requests of these meet the fault. `times` is how many of
    them do, from 1 to 1,000,000; None for all until `heal`. A request meets the first fault that is
    about it, and no other. A broker that stops forgets its faults.

    All raise ValueError for what is no API, error, duration, or number; the message names the cure.
    """

    def __init__(self, send: Send) -> None:
        """Send commands with `send`."""
        self._send = send

    def fail(
        self,
        request: str,
        error: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Answer with an error, such as ``NOT_LEADER_OR_FOLLOWER``, instead of serving.

        With a `topic` only its partitions get the error; other topics of the request are served. A
        Produce with acks=0 has no answer and loses its connection.
        """
        self._add(
            "fail", request, times, error=error, topic=topic, group=group, client_id=client_id
        )

    def delay(
        self,
        request: str,
        duration: int | str | timedelta,
        *,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Serve so much later: milliseconds, a timedelta, or text such as ``2s``; at most 10 min.

        The real time counts, also where the broker's clock is frozen. Later requests of the same
        connection wait, as answers come in order.
        """
        late_ms = str(duration_ms(duration))
        self._add(
            "delay", request, times, delay_ms=late_ms, topic=topic, group=group, client_id=client_id
        )

    def drop(
        self,
        request: str,
        *,
        served: bool = False,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> None:
        """End the connection in place of an answer.

        With `served` the request has taken effect, and only its answer is lost.
        """
        is_served = "true" if served else "false"
        self._add(
            "drop", request, times, served=is_served, topic=topic, group=group, client_id=client_id
        )

    def heal(self) -> None:
        """Forget all faults."""
        self._send({"heal": "all"})

    def left(self) -> list[RequestFault]:
        """The faults that requests may still meet, in the order in which they were asked for."""
        return [RequestFault(**fault) for fault in self._send({})["faults"]]

    def _add(self, action: str, request: str, times: int | None, **words: str | None) -> None:
        given = {name: word for name, word in words.items() if word is not None}
        self._send({action: request, "times": "all" if times is None else str(times), **given})
