"""The query strings of the metrics port: numbers with bounds, refusals that say what is allowed.

Owns the checks that several paths share. A refusal names the parameter, its value and its range.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final
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


class BadQuery(Exception):
    """The query cannot be answered; the message says what to give."""


class Busy(Exception):
    """The query cannot be answered now; the message says why."""


async def answer(
    query: str,
    allowed: Collection[str],
    viewer: "Viewer",
    make: Callable[[dict[str, str]], Awaitable[Mapping[str, object]]],
) -> tuple[int, bytes]:
    """HTTP status and JSON for a question about a topic; `make` makes the document.

    `make` gets the parameters once they are known to be allowed, and `viewer` to have the right.
    """
    try:
        asked = parse(query, allowed)
        refusal = viewer.refusal_of_topic(asked["topic"])
        if refusal is not None:
            return 403, encode({"error": refusal})
        return 200, encode(await make(asked))
    except BadQuery as error:
        return 400, encode({"error": str(error)})
    except Busy as error:
        return 429, encode({"error": str(error)})
    except BrokerError as error:
        return 404, encode({"error": str(error)})
    except (RecordsError, StorageError) as error:
        return 503, encode({"error": str(error)})


def parse(query: str, allowed: Collection[str]) -> dict[str, str]:
    """The parameters of a query string, all of them `allowed`, the topic among them.

    Raises:
        BadQuery: one is not known, or there is no topic.
    """
    asked = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(asked) - set(allowed))
    names = ", ".join(allowed)
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
