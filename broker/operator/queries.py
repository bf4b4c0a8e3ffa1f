"""The query strings of the metrics port: numbers with bounds, refusals that say what is allowed.

Owns the checks that several paths share. A refusal names the parameter, its value and its range.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from broker.errors import BrokerError
from protocol.errors import RecordsError
from protocol.records.layout import INT32_MAX
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.operator.port_access import Viewer

TIME_MS_MAX: Final = 10**15 - 1
"""The largest time that a parameter may have: the year 33658."""

PARTITION_MAX: Final = INT32_MAX

_SHOWN: Final = 40


Document = dict[str, Any]
Asked = Mapping[str, str]
"""The parameters of a question, by name."""


class Refused(Exception):
    """The question is not answered; the message gives the reason, `status` is HTTP's."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class BadQuery(Refused):
    """The query cannot be answered; the message says what to give."""


class Busy(Refused):
    """The query cannot be answered now; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, 429)


class TopicQuery(ABC):
    """A question about a topic that every worker answers for the partitions that it keeps.

    Attributes:
        parameters: the names that are allowed; None allows all.
        is_of_disk: whether the answer also needs workers that keep nothing of the topic.
    """

    parameters: Collection[str] | None
    is_of_disk = False

    @abstractmethod
    async def part(self, asked: Asked) -> Document:
        """What is known here. Raises what `attempt` expects."""

    def again(self, asked: Asked, parts: Sequence[Document]) -> Asked | None:
        """What to ask instead so that the parts fit together; None when they do."""
        return None

    @abstractmethod
    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        """The answer, from the parts of the workers that answered, at least one.

        `unanswered` has the others, with the reason; it is shown as it is.
        """


async def answer(
    query: str,
    parameters: Collection[str] | None,
    viewer: "Viewer",
    make: Callable[[Asked], Awaitable[Document]],
) -> tuple[int, bytes]:
    """HTTP status and JSON for a question about a topic; `make` makes the document.

    `parameters` are those of the path, as of a `TopicQuery`. `make` gets those of the query once
    they are known to be allowed, and `viewer` to have the right.
    """
    try:
        asked = parse(query, parameters)
    except BadQuery as error:
        return error.status, encode({"error": str(error)})
    refusal = viewer.refusal_of_topic(asked["topic"])
    if refusal is not None:
        return 403, encode({"error": refusal})
    status, document = await attempt(make(asked))
    return status, encode(document)


async def answer_alone(topic_query: TopicQuery, query: str, viewer: "Viewer") -> tuple[int, bytes]:
    """`answer` by the only worker."""

    async def make(asked: Asked) -> Document:
        return topic_query.whole(asked, [await topic_query.part(asked)], [])

    return await answer(query, topic_query.parameters, viewer, make)


async def attempt(making: Awaitable[Document]) -> tuple[int, Document]:
    """HTTP status and document; a refusal is a document with the reason."""
    try:
        return 200, await making
    except Refused as error:
        return error.status, {"error": str(error)}
    except BrokerError as error:
        return 404, {"error": str(error)}
    except (RecordsError, StorageError) as error:
        return 503, {"error": str(error)}


def parse(query: str, allowed: Collection[str] | None) -> dict[str, str]:
    """The parameters of a query string, all of them `allowed`, the topic among them.

    Raises:
        BadQuery: one is not known, or there is no topic.
    """
    asked = dict(parse_qsl(query, keep_blank_values=allowed is not None))
    unknown = [] if allowed is None else sorted(set(asked) - set(allowed))
    names = "partition, at and topic settings" if allowed is None else ", ".join(allowed)
    if unknown:
        raise BadQuery(f"{unknown[0][:_SHOWN]} is no parameter of this path; there are {names}")
    if not asked.get("topic"):
        raise BadQuery(f"topic=NAME is needed; there are {names}")
    return asked


def number(asked: Mapping[str, str], name: str, most: int, *, least: int = 0) -> int | None:
    """The number that a parameter has; None when it is not given.

    Raises:
        BadQuery: it is no whole number from `least` to `most`.
    """
    text = asked.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise BadQuery(f"{name}={text[:_SHOWN]} is not a whole number from {least} to {most}")
    return int(text)


def by_partition(parts: Sequence[Document]) -> list[Document]:
    """The documents of all partitions, in order, from the parts of workers."""
    found = (one for part in parts for one in part["partitions"])
    return sorted(found, key=itemgetter("partition"))


def flag(asked: Mapping[str, str], name: str) -> bool:
    """Whether a parameter is true; false when it is not given.

    Raises:
        BadQuery: it is neither true nor false.
    """
    text = asked.get(name, "false")
    if text not in ("true", "false"):
        raise BadQuery(f"{name}={text[:_SHOWN]} is neither true nor false")
    return text == "true"


def encode(value: Mapping[str, object]) -> bytes:
    """A document as JSON, for the body of an answer."""
    return json.dumps(value).encode() + b"\n"
