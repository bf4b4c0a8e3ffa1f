"""``tidelog consume --schema-registry``: keys and values as JSON, by the schemas that they name.

A key or value that begins with a schema's id is replaced by its JSON before it is filtered and
shown. What no schema can read stays as it is stored, with one warning for each schema.
"""

import base64
import json
from typing import Any, Final

from cli.failures import complain
from client.errors import ClientError
from client.serde.documents import Documents
from client.serde.errors import BadValue, RegistryUnreachable
from client.serde.frame import FRAME_BYTES, schema_id
from client.serde.registry import JSON, Registry, RegistryAddress
from client.types import ConsumerRecord

_WARNINGS_MAX: Final = 20


class Schemas:
    """Asks one registry for the schemas of a run's records."""

    def __init__(self, address: RegistryAddress) -> None:
        """Ask `address`; nothing is sent yet."""
        self._documents = Documents(Registry(address))
        self._unreadable: set[int] = set()
        self._warned: set[int] = set()

    def applied(self, record: ConsumerRecord) -> ConsumerRecord:
        """The record with JSON in place of bytes that name a schema.

        Raises:
            RegistryUnreachable: the registry gave no answer.
        """
        return record._replace(key=self._text(record.key), value=self._text(record.value))

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
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":"), default=_plain).encode(
            "utf-8", "surrogatepass"
        )

    def _warn(self, number: int, error: ClientError) -> None:
        """Say once for each schema why its values are shown as they are stored."""
        if not isinstance(error, BadValue):
            self._unreadable.add(number)
        if number in self._warned or len(self._warned) >= _WARNINGS_MAX:
            return
        self._warned.add(number)
        more = ""
        if len(self._warned) == _WARNINGS_MAX:
            more = "; there are no warnings of further schemas"
        text = f"schema {number}: {error}; its values are shown as they are stored{more}"
        complain(text)


def _plain(value: Any) -> Any:
    """What JSON has no form for: bytes as `tidelog produce` takes them, all else as text."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return str(value)
