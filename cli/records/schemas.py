"""``tidelog consume --schema-registry``: keys and values as JSON, by the schemas that they name.

A key or value that begins with a schema's id is replaced by its JSON before it is filtered and
shown. What no schema can read stays as it is stored, with one warning for each schema.
"""

import base64
import json
import math
from datetime import date, time
from typing import Any, Final

from cli.failures import complain
from client.errors import ClientError
from client.serde.documents import Documents
from client.serde.errors import BadValue, RegistryUnreachable
from client.serde.frame import FRAME_BYTES, schema_id
from client.serde.registry import JSON, Registry, RegistryAddress
from client.types import ConsumerRecord

_WARNINGS_MAX: Final = 20
_UNREADABLE_MAX: Final = 10_000


class Schemas:
    """Asks one registry for the schemas of a run's records."""

    def __init__(self, address: RegistryAddress) -> None:
        """Ask `address`; nothing is sent yet."""
        self._documents = Documents(Registry(address))
        self._unreadable: set[int] = set()
        self._warned: set[int] = set()

    def applied(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records with JSON in place of bytes that name a schema; blocks.

        Raises:
            RegistryUnreachable: the registry gave no answer.
        """
        return [
            record._replace(key=self._text(record.key), value=self._text(record.value))
            for record in records
        ]

    def _text(self, data: bytes | None) -> bytes | None:
        number = None if data is None else schema_id(data)
        if data is None or number is None or number in self._unreadable:
            return data
        try:
            kind, tree = self._documents.read(number, data)
        except RegistryUnreachable:
            raise
        except ClientError as error:
            self._warn(number, error)
            return data
        if kind == JSON:
            return data[FRAME_BYTES:]
        return _json(tree).encode("utf-8", "surrogatepass")

    def _warn(self, number: int, error: ClientError) -> None:
        """Say once for each schema why its values are shown as they are stored."""
        if not isinstance(error, BadValue):
            if len(self._unreadable) >= _UNREADABLE_MAX:
                self._unreadable.clear()
            self._unreadable.add(number)
        if number in self._warned or len(self._warned) >= _WARNINGS_MAX:
            return
        self._warned.add(number)
        more = ""
        if len(self._warned) == _WARNINGS_MAX:
            more = "; there are no warnings of further schemas"
        text = f"schema {number}: {error}; its values are shown as they are stored{more}"
        complain(text)


def _json(tree: Any) -> str:
    """`tree` as JSON on one line; NaN and the infinities, which JSON lacks, are texts."""
    form: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "default": _plain}
    try:
        return json.dumps(tree, allow_nan=False, **form)
    except ValueError:
        return json.dumps(_finite(tree), **form)


def _finite(tree: Any) -> Any:
    if isinstance(tree, float) and not math.isfinite(tree):
        return str(tree)
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_finite(value) for value in tree]
    return tree


def _plain(value: Any) -> Any:
    """What JSON has no form for: bytes as `tidelog produce` takes them, times as ISO 8601."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, date | time):  # a datetime is a date, too
        return value.isoformat()
    return str(value)
