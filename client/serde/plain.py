"""Keys and values as text or JSON, without a schema and without a registry.

Each function raises ValueError or TypeError for what it cannot convert; producers and consumers
make it a `BadValue` that names the record.
"""

import json
from typing import Any


def text_serializer(value: str) -> bytes:
    """Text in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is {type(value).__name__}, and a str is wanted")
    return value.encode()


def text_deserializer(data: bytes) -> str:
    """UTF-8 as text; raises UnicodeDecodeError."""
    return data.decode()


def json_serializer(value: Any) -> bytes:
    """A value as JSON in UTF-8, without spaces; NaN and infinities are refused."""
    document = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return document.encode()


def json_deserializer(data: bytes) -> Any:
    """The value of a JSON document in UTF-8; raises ValueError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None
