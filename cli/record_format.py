"""Records as text: the JSON form that `produce` reads and `consume` writes, and line formats.

The JSON form, one object per line; a null or missing field gets its default when read::

    {"topic", "partition", "offset", "timestamp_ms", "time", "timestamp_type",
     "key", "value", "headers": [[name, value], ...], "delivery_count"}

``delivery_count`` is only in records of share groups.

Keys, values and header values are strings where they are UTF-8, else ``{"base64": "..."}``, so that
one command reads back another's output byte for byte.
"""

import base64
import json
from dataclasses import dataclass
from string import Formatter
from typing import Any

from cli.output import json_line, time_fields
from client.errors import InvalidUse
from client.times import format_time, parse_time
from client.types import ConsumerRecord, Header

FIELDS = (
    *("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers"),
    "deliveries",
)
"""The fields that a line format may name in braces."""

DEFAULT_FORMAT = "{time}  {partition}:{offset}  {key}  {value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to produce, as the input gives it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()


def check_format(template: str) -> None:
    """Refuse a line format that names fields that records do not have.

    Raises:
        InvalidUse: an unknown field, or braces that do not match.
    """
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise InvalidUse(f"the format {template!r} is broken: {error}") from None
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise InvalidUse(f"the format has no field {{{unknown[0]}}}: choose {', '.join(FIELDS)}")


def format_line(record: ConsumerRecord, template: str) -> str:
    """One record by a line format; bytes that are not UTF-8 show as replacement characters."""
    return template.format(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        time=format_time(record.timestamp_ms),
        key=text_of(record.key),
        value=text_of(record.value),
        headers=" ".join(f"{name}={text_of(content)}" for name, content in record.headers),
        deliveries=record.delivery_count,
    )


def to_json(record: ConsumerRecord) -> str:
    """One record in the JSON form."""
    return json_line(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            **time_fields(record.timestamp_ms),
            "timestamp_type": record.timestamp_type.name,
            "key": _to_json(record.key),
            "value": _to_json(record.value),
            "headers": [[name, _to_json(content)] for name, content in record.headers],
            **({"delivery_count": record.delivery_count} if record.delivery_count else {}),
        }
    )


def from_json(line: bytes, now_ms: int) -> Outgoing:
    """A record from the JSON form. Objects and numbers as value are taken as JSON text.

    Raises:
        InvalidUse: not that form; the message names the problem.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InvalidUse(f"not JSON: {error}") from None
    if not isinstance(fields, dict) or not {"key", "value"} & fields.keys():
        raise InvalidUse('not a record: write {"key": ..., "value": ...}, one on each line')
    partition = fields.get("partition")
    if partition is not None and not isinstance(partition, int):
        raise InvalidUse(f"partition {partition!r} is not a number")
    headers = fields.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    try:
        header_list = tuple((str(name), _from_json(content)) for name, content in pairs)
    except (TypeError, ValueError):
        raise InvalidUse("headers are not pairs: write [[name, value], ...]") from None
    timestamp = fields.get("timestamp_ms", fields.get("timestamp", fields.get("time")))
    return Outgoing(
        key=_from_json(fields.get("key")),
        value=_from_json(fields.get("value")),
        timestamp_ms=None if timestamp is None else read_time(timestamp, now_ms),
        partition=partition,
        headers=header_list,
    )


def read_time(value: object, now_ms: int) -> int:
    """The time in a JSON field: a number of milliseconds, or text.

    Raises:
        InvalidTime: no time, or in the wrong unit.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidUse(f"{value!r} is no time: write milliseconds or ISO 8601")
    return parse_time(str(value), now_ms=now_ms)


def field_of(line: bytes, path: str) -> Any:
    """The field at a dotted path of a JSON object, such as ``event.time``.

    Raises:
        InvalidUse: the line is not a JSON object, or lacks the field.
    """
    try:
        value = json.loads(line)
        for name in path.split("."):
            value = value[name]
    except ValueError as error:
        raise InvalidUse(f"not JSON: {error}") from None
    except (KeyError, TypeError, IndexError):
        raise InvalidUse(f"there is no field {path!r}") from None
    return value


def text_of(data: bytes | None) -> str:
    """Bytes for people: UTF-8 with replacement characters, ``-`` for null."""
    return "-" if data is None else data.decode("utf-8", "replace")


def _to_json(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, ValueError):
            raise InvalidUse("the base64 in a field is broken") from None
    return json_line(value).encode()
