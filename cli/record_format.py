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
import re
from collections.abc import Callable
from string import Formatter
from typing import Any, Final

from cli.output import json_line
from client.errors import InvalidUse
from client.times import format_time, parse_time, to_ms
from client.types import ConsumerRecord, Header
from console.data.decoders import portable_record
from protocol.records.layout import TimestampType
from values.dataclasses import dataclass

FIELDS: Final = (
    *("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers"),
    "deliveries",
)
"""The fields that a line format may name in braces, besides those of `console.data.conditions`."""

_MORE_FIELDS: Final = ("size", "value.PATH", "key.PATH", "header.NAME")

WIDTH_MAX: Final = 10_000
"""The largest width and precision in a format: each line takes as many bytes of memory."""

DEFAULT_FORMAT: Final = "{time}  {partition}:{offset}  {key}  {value}"
RAW_FORMAT: Final = "{value}"

_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.S)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Render = Callable[[ConsumerRecord], bytes]
"""A record as the bytes that are written for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to produce, as the input gives it."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()


def unescape(text: str, what: str) -> bytes:
    """The bytes that a text of the command line means: ``\\t`` is a tab, ``\\x00`` a byte.

    Raises:
        InvalidUse: another escape; `what` names the option.
    """

    def replaced(match: re.Match[bytes]) -> bytes:
        name = match[1].decode("utf-8", "replace")
        if name[:1] == "x" and len(name) == 3:
            return bytes.fromhex(name[1:])
        if name not in _ESCAPES:
            raise InvalidUse(
                f"{what}: there is no escape \\{name}: write one of \\n \\t \\r \\0 \\xNN, and "
                "\\\\ for a backslash"
            )
        return _ESCAPES[name]

    return _ESCAPE.sub(replaced, text.encode("utf-8", "surrogateescape"))


def line_format(template: str, *, is_raw: bool = False) -> Render:
    """The function that writes a record by a format such as ``{time} {value.user.id}``.

    Bytes that are not UTF-8 show as replacement characters, and null as ``-``; with `is_raw` a key,
    a value and a single header are written as they are stored, and null as nothing.

    Raises:
        InvalidUse: an unknown field, no field, a broken brace, escape or width.
    """
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidUse(f"the format {template!r} is broken: {error}") from None
    parts: list[Render] = []
    for text, name, width, conversion in parsed:
        if text:
            parts.append(_constant(unescape(text, "the format")))
        if name is not None:
            _check_field(name)
            _check_width(name, width or "")
            parts.append(_field(name, width or "", conversion, is_raw=is_raw))
    if all(name is None for _, name, _, _ in parsed):
        raise InvalidUse(
            f"the format {template!r} has no field, so that every line would be the same: write "
            "for example '{key} {value}'"
        )

    def render(record: ConsumerRecord) -> bytes:
        return b"".join([part(record) for part in parts])

    try:
        render(_SAMPLE)
    except ValueError as error:
        raise InvalidUse(f"the format {template!r} is broken: {error}") from None
    return render


_SAMPLE: Final = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, b"", b"", (), 0)


def _constant(text: bytes) -> Render:
    return lambda record: text


def _check_field(name: str) -> None:
    from console.data.conditions import is_field

    if name not in FIELDS and not is_field(name):
        choice = ", ".join(FIELDS + _MORE_FIELDS)
        raise InvalidUse(f"the format has no field {{{name}}}: choose {choice}")


def _check_width(name: str, width: str) -> None:
    largest = max(map(int, re.findall(r"\d{1,20}", width)), default=0)
    if largest > WIDTH_MAX:
        raise InvalidUse(
            f"the format {{{name}:{width}}} has the number {largest}: write a width of at most "
            f"{WIDTH_MAX}"
        )


def _field(name: str, width: str, conversion: str | None, *, is_raw: bool) -> Render:
    if is_raw and not width and conversion is None:
        if name in ("key", "value"):
            return lambda record: getattr(record, name) or b""
        if name.startswith("header."):
            header = name.removeprefix("header.")
            return lambda record: dict(reversed(record.headers)).get(header) or b""

    def write(record: ConsumerRecord) -> bytes:
        value = Formatter().convert_field(_value_of(name, record), conversion)
        # Text of records may hold half a surrogate pair, which has no bytes.
        return format(value, width).encode("utf-8", "replace")

    return write


def _value_of(name: str, record: ConsumerRecord) -> str | int:
    """A field for people."""
    if name == "timestamp":
        return record.timestamp_ms
    if name == "time":
        return format_time(record.timestamp_ms)
    if name == "headers":
        return " ".join(f"{header}={text_of(content)}" for header, content in record.headers)
    if name in ("key", "value"):
        return text_of(getattr(record, name))
    if name == "deliveries":
        return record.delivery_count
    if name in FIELDS:
        found: str | int = getattr(record, name)
        return found
    from console.data.conditions import field_of_record

    is_there, inner = field_of_record(name, record)
    if not is_there or inner is None:
        return "-"
    return inner if isinstance(inner, str) else json_line(inner)


def to_json(record: ConsumerRecord) -> str:
    """One record in the JSON form."""
    document = portable_record(record)
    if record.delivery_count:
        document["delivery_count"] = record.delivery_count
    return json_line(document)


def from_json(line: bytes) -> Outgoing:
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
        timestamp_ms=None if timestamp is None else read_time(timestamp),
        partition=partition,
        headers=header_list,
    )


def read_time(value: object) -> int:
    """The time in a JSON field: a number of milliseconds, or text that names an instant.

    Raises:
        InvalidTime: no time, in the wrong unit, or relative to the present.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidUse(f"{value!r} is no time: write milliseconds or ISO 8601")
    if isinstance(value, int):
        # Unlike text: the number 2000 is no year.
        return to_ms(value, now_ms=0)
    return parse_time(str(value), now_ms=None)


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
