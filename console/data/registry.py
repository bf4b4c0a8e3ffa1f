"""Schemas from a registry with Confluent's interface, for records that carry a schema's id.

One URL, from the command line; only whole numbers are added to it, redirects are not followed, and
answers are bounded, so that a record cannot choose what is requested. A schema never changes, so
it is kept.
"""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any, Final, NamedTuple

from console.data.decoders import (
    SHOWN_BYTES,
    decode_avro,
    schema_id,
    shown,
    shown_structure,
)

TIMEOUT_S: Final = 5.0
ANSWER_BYTES: Final = 1024 * 1024
KEPT_MAX: Final = 1000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse to follow."""


class Schema(NamedTuple):
    """A schema of the registry; `kind` is AVRO, PROTOBUF or JSON."""

    kind: str
    text: str


class Registry:
    """Asks the registry, and decodes by its schemas."""

    def __init__(self, url: str | None) -> None:
        """Ask `url`; None has no schemas."""
        self._url = None if url is None else url.rstrip("/")
        self._kept: dict[int, Schema] = {}
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.ProxyHandler({})
        )

    async def shown(self, data: bytes | None, wanted: str = "") -> dict[str, Any]:
        """A key or value as a document, as `console.data.decoders.shown`, Avro too."""
        number = None if data is None else schema_id(data)
        if data is None or number is None or wanted not in ("", "avro"):
            return shown(data, "" if wanted == "avro" else wanted)
        if self._url is None:
            if not wanted:
                return shown(data)
            note = f"schema {number}: start the console with --schema-registry URL"
            return shown(data, "hex") | {"note": note}
        if len(data) > SHOWN_BYTES:
            return shown(data, "hex")
        try:
            schema = await self.schema(number)
            if schema.kind == "JSON":
                return shown(data[5:], "json") | {"note": f"schema {number}", "size": len(data)}
            if schema.kind != "AVRO":
                note = f"schema {number} is {schema.kind}, which is not decoded"
                return shown(data, "hex") | {"note": note}
            tree = decode_avro(data, json.loads(schema.text))
        except (OSError, ValueError) as error:
            return shown(data, "hex") | {"note": f"schema {number}: {error}"}
        return shown_structure("avro", tree, data, f"schema {number}")

    async def schema(self, number: int) -> Schema:
        """The schema of an id.

        Raises:
            OSError: the registry does not answer, or has no such schema.
            ValueError: what answered is no registry.
        """
        if number not in self._kept:
            found = await asyncio.to_thread(self._fetch, number)
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[number] = found
        return self._kept[number]

    def _fetch(self, number: int) -> Schema:
        url = f"{self._url}/schemas/ids/{int(number)}"
        try:
            with self._opener.open(url, timeout=TIMEOUT_S) as answer:
                body = answer.read(ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(f"the registry answered with status {error.code}") from None
        if len(body) > ANSWER_BYTES:
            raise ValueError(f"the registry's answer is larger than {ANSWER_BYTES} bytes")
        document = json.loads(body)
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            raise ValueError("what answered is no schema registry")
        return Schema(str(document.get("schemaType", "AVRO")), document["schema"])
