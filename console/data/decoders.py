"""Bytes of keys and values as people read them: JSON, Avro, Protobuf, MessagePack, text, hex.

Sizes are bounded before anything is decoded, and so is nesting: any producer may have written the
record. Avro and Protobuf need a schema: `console.data.registry`. Each decoder answers None where
the bytes are not of its format, so that the first one that fits is the guess.
"""

import base64
import json
import re
from typing import Any, Final

from client.times import format_time
from client.types import ConsumerRecord

SHOWN_BYTES: Final = 256 * 1024
"""So much of a key or value is decoded and shown; a download has all of it."""
DEPTH_MAX: Final = 64
PREVIEW_CHARACTERS: Final = 300
FORMATS: Final = ("json", "avro", "protobuf", "msgpack", "text", "hex")

_INDENT: Final = "  "
_NEW_LINE: Final = "\n"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# Half of a pair: JSON may escape it, UTF-8 has no form for it.
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# A string, a mark, or what stands between them, in valid JSON.
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
# A string of JSON, also one that does not end, or a bracket.
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def text_of(data: bytes) -> str:
    """The text of bytes: UTF-8 where they are, else hexadecimal digits."""
    text = as_text(data[:SHOWN_BYTES], is_cut=len(data) > SHOWN_BYTES)
    return data[:SHOWN_BYTES].hex() if text is None else text


def as_text(data: bytes, *, is_cut: bool = False) -> str | None:
    """The bytes as UTF-8 without control characters; None where they are not that.

    With `is_cut` they are the start of more, and a character that is cut at their end is dropped.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")
    return None if _CONTROL.search(text) else text


def structure_of(data: bytes | None) -> Any:
    """What JSON or MessagePack bytes mean; None for others."""
    if data is None or len(data) > SHOWN_BYTES:
        return None
    is_json, tree = _parse_json(data)
    return tree if is_json else _parse_msgpack(data)


def _parse_json(data: bytes) -> tuple[bool, Any]:
    text = as_text(data)
    if text is None or _is_too_deep(text):
        return False, None
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def _is_too_deep(text: str) -> bool:
    """Whether brackets nest deeper than `DEPTH_MAX`, without recursion; strings do not count."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        character = text[match.start()]
        if character in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif character in "]}":
            depth -= 1
    return False


def _parse_msgpack(data: bytes) -> Any:
    """A map or a list that takes all the bytes, None for anything else."""
    # The first byte of maps and lists; most other bytes would "decode" to a number.
    if not data or not (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        return None
    try:
        import msgpack
    except ImportError:
        # The command line filters by these structures too, without the console's packages.
        return None
    try:
        tree = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError):
        return None
    return None if _depth(tree) > DEPTH_MAX else tree


def _depth(tree: Any) -> int:
    depth, level = 0, [tree]
    while level and depth <= DEPTH_MAX:
        depth += 1
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner += node.values()
            elif isinstance(node, list):
                inner += node
        level = inner
    return depth


def shown(data: bytes | None, wanted: str = "") -> dict[str, Any]:
    """A key or value as a document: its format, its text, how much of it there is.

    `wanted` is one of `FORMATS`, "" guesses. What needs a schema is decoded by `console.data.registry`.
    """
    if data is None:
        return {"format": "null", "text": "", "size": 0, "is_cut": False, "note": ""}
    part = data[:SHOWN_BYTES]
    is_cut = len(part) < len(data)
    for name in (wanted,) if wanted else FORMATS:
        text = _as(name, part, is_cut=is_cut)
        if text is not None:
            return _document(name, text, data, is_cut=is_cut)
    note = f"these bytes are not {wanted}" if wanted else ""
    return _document("hex", _hex_dump(part), data, is_cut=is_cut, note=note)


def _document(
    name: str, text: str, data: bytes, *, is_cut: bool = False, note: str = ""
) -> dict[str, Any]:
    return {"format": name, "text": text, "size": len(data), "is_cut": is_cut, "note": note}


def shown_structure(name: str, tree: Any, data: bytes, note: str = "") -> dict[str, Any]:
    """A decoded structure as a document."""
    return _document(name, to_json(tree), data, note=note)


def _as(name: str, part: bytes, *, is_cut: bool) -> str | None:
    if name == "text":
        return as_text(part, is_cut=is_cut)
    if name == "hex":
        return _hex_dump(part)
    if is_cut:
        return None
    if name == "json":
        return _indented(as_text(part) or "") if _parse_json(part)[0] else None
    tree = _parse_msgpack(part) if name == "msgpack" else None
    return None if tree is None else to_json(tree)


def _indented(text: str) -> str:
    """Valid JSON with a line for each part.

    Numbers keep their digits and names that occur twice stay, neither of which a tree of Python's
    has; of strings the escapes are resolved.
    """
    parts: list[str] = []
    depth, is_opened = 0, False
    for token in _JSON_TOKEN.findall(text):
        is_end = token in ("]", "}")
        depth -= is_end
        if is_opened != is_end:
            parts.append(_NEW_LINE + _INDENT * depth)
        is_opened = token in ("[", "{")
        depth += is_opened
        if token == ",":
            parts.append("," + _NEW_LINE + _INDENT * depth)
        elif token == ":":
            parts.append(": ")
        elif token[0] == '"':
            parts.append(json.dumps(json.loads(token), ensure_ascii=False))
        else:
            parts.append(token)
    return _without_halves("".join(parts))


def to_json(tree: Any) -> str:
    """Indented JSON; what JSON has no form for is given as text."""
    plain = json.dumps(_plain(tree), indent=len(_INDENT), ensure_ascii=False, default=str)
    return _without_halves(plain)


def _without_halves(text: str) -> str:
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {_key(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, bytes):
        return f"0x{tree.hex()}"
    return tree


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(_plain(key))


def _hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: place, digits, characters."""
    lines = []
    for place in range(0, min(len(data), SHOWN_BYTES // 4), 16):
        part = data[place : place + 16]
        digits = f"{part[:8].hex(' ')}  {part[8:].hex(' ')}"
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{place:08x}  {digits:<48}  {characters}")
    return "\n".join(lines)


def preview(data: bytes | None) -> str | None:
    """The start of a key or value on one line."""
    if data is None:
        return None
    part = data[: 2 * PREVIEW_CHARACTERS]
    text = as_text(part, is_cut=len(part) < len(data))
    if text is None:
        tree = _parse_msgpack(data) if len(data) <= SHOWN_BYTES else None
        if tree is None:
            return f"0x{part.hex()[:PREVIEW_CHARACTERS]}"
        text = json.dumps(_plain(tree), ensure_ascii=False, default=str)
    return " ".join(text.split())[:PREVIEW_CHARACTERS]


def portable(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes in the JSON form that ``tidelog produce --format json`` takes back."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def portable_record(record: ConsumerRecord) -> dict[str, Any]:
    """A record in that form."""
    has_time = record.timestamp_ms >= 0
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms if has_time else None,
        "time": format_time(record.timestamp_ms) if has_time else None,
        "timestamp_type": record.timestamp_type.name,
        "key": portable(record.key),
        "value": portable(record.value),
        "headers": [[name, portable(value)] for name, value in record.headers],
    }


def row_of(record: ConsumerRecord) -> dict[str, Any]:
    """A record as a line of a table."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time_ms": record.timestamp_ms,
        "key": preview(record.key),
        "value": preview(record.value),
        "headers": len(record.headers),
        "size": len(record.key or b"") + len(record.value or b""),
    }
