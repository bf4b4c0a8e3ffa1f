"""Lines of a form as records: ``produce --format`` reads what ``consume --format`` writes.

A template has fields in braces and text between them, as for `cli.record_format.line_format`. From
left to right each field ends where the text after it first occurs, and the last one with the line.
"""

from collections.abc import Callable
from string import Formatter
from typing import Final

from cli.record_format import FIELDS, Outgoing, read_time, unescape
from client.errors import InvalidUse
from client.types import Header
from values.dataclasses import dataclass

TAKEN: Final = ("key", "value", "time", "timestamp", "partition", "headers", "header.NAME")
"""What a record gets from a line."""

PASSED_OVER: Final = frozenset(FIELDS) - set(TAKEN) | {"size"}
"""What the broker gives a record, or what follows from it: read, and not used."""

_HEADER: Final = "header."
_NONE: Final = b"-"
_NO_TIME: Final = (_NONE, b"-1")

LineReader = Callable[[bytes], Outgoing]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a template, and the text that ends it; empty for the end of the line."""

    name: str
    end: bytes


def line_reader(template: str, null: bytes | None = None) -> LineReader:
    """The function that reads a line by a template such as ``{time}\\t{key}\\t{value}``.

    A key, value or header of exactly `null` is null. The function raises InvalidUse for a line that
    is not of the form; the message names the field.

    Raises:
        InvalidUse: an unknown field, one that is there twice or cannot be read, no key and no
            value, no text between two fields, a broken brace or escape.
    """
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidUse(f"the format {template!r} is broken: {error}") from None
    begin = b""
    fields: list[_Field] = []
    for text, name, width, conversion in parsed:
        literal = unescape(text, "the format")
        if not fields:
            begin += literal
        elif literal:
            fields[-1] = _Field(fields[-1].name, fields[-1].end + literal)
        if name is None:
            continue
        if fields and not fields[-1].end:
            raise InvalidUse(
                f"the format has no text between {{{fields[-1].name}}} and {{{name}}}, so that "
                "nothing says where the one ends: write for example '{key}\\t{value}'"
            )
        if width or conversion:
            raise InvalidUse(f"the format {{{name}}} has a width, which only consume has: drop it")
        fields.append(_Field(name, b""))
    _check([field.name for field in fields])
    return lambda line: _read(line, begin, fields, null)


def _check(names: list[str]) -> None:
    for place, name in enumerate(names):
        if name not in PASSED_OVER | set(TAKEN) and not _is_header(name):
            choice = ", ".join((*TAKEN, *sorted(PASSED_OVER)))
            raise InvalidUse(f"no record can be made from {{{name}}}: choose {choice}")
        if name in names[:place]:
            raise InvalidUse(f"the format has {{{name}}} twice: a record has one")
    if {"time", "timestamp"} <= set(names):
        raise InvalidUse("{time} and {timestamp} both say when: give one of them")
    if not {"key", "value"} & set(names):
        raise InvalidUse("the format has neither {key} nor {value}: write for example '{value}'")


def _is_header(name: str) -> bool:
    return name.startswith(_HEADER) and name != _HEADER


def _read(line: bytes, begin: bytes, fields: list[_Field], null: bytes | None) -> Outgoing:
    if not line.startswith(begin):
        raise InvalidUse(f"it does not begin with {_shown(begin)}")
    found: dict[str, bytes] = {}
    rest = line[len(begin) :]
    for field in fields[:-1]:
        found[field.name], end, rest = rest.partition(field.end)
        if not end:
            raise InvalidUse(f"there is no {_shown(field.end)} after {{{field.name}}} in it")
    last = fields[-1]
    if not rest.endswith(last.end):
        raise InvalidUse(f"it does not end with {_shown(last.end)}")
    found[last.name] = rest[: len(rest) - len(last.end)]

    def or_null(text: bytes | None) -> bytes | None:
        return None if text == null else text

    headers: list[Header] = _headers(found.get("headers", b""))
    headers += [
        (name.removeprefix(_HEADER), text) for name, text in found.items() if _is_header(name)
    ]
    return Outgoing(
        key=or_null(found.get("key")),
        value=or_null(found.get("value")),
        timestamp_ms=_time(found),
        partition=_partition(found.get("partition")),
        headers=tuple((name, or_null(text)) for name, text in headers),
    )


def _time(found: dict[str, bytes]) -> int | None:
    name = "time" if "time" in found else "timestamp"
    text = found.get(name, _NONE)
    if text in _NO_TIME:
        return None
    if name == "timestamp":
        if not text.isdigit():
            raise InvalidUse(f"{{timestamp}} is {_shown(text)}, not a number of milliseconds")
        return read_time(int(text))
    return read_time(text.decode("utf-8", "replace"))


def _partition(text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit():
        raise InvalidUse(f"{{partition}} is {_shown(text)}, not a number")
    return int(text)


def _headers(text: bytes) -> list[Header]:
    """The headers of ``a=1 b=2``; a value with a blank cannot be written so."""
    headers: list[Header] = []
    for word in text.split():
        name, equals, value = word.partition(b"=")
        if not name or not equals:
            raise InvalidUse(f"{{headers}} has {_shown(word)}: write NAME=VALUE NAME=VALUE")
        headers.append((name.decode("utf-8", "replace"), value))
    return headers


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
