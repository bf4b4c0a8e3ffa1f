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
from urllib.parse import quote

from console.data.decoders import (
    SHOWN_BYTES,
    decode_avro,
    schema_id,
    shown,
    shown_structure,
)
from console.data.protobuf import decode_protobuf

_BY_SCHEMA: Final = ("avro", "protobuf")

TIMEOUT_S: Final = 5.0
ANSWER_BYTES: Final = 1024 * 1024
KEPT_MAX: Final = 1000
FILES_MAX: Final = 64
"""Schemas that a schema may import, directly or by others."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse to follow."""


class Schema(NamedTuple):
    """A schema of the registry.

    Attributes:
        kind: AVRO, PROTOBUF or JSON.
        text: the schema; of PROTOBUF its descriptor in base64.
        imports: (name, subject, version) of the schemas that it imports.
    """

    kind: str
    text: str
    imports: tuple[tuple[str, str, int], ...] = ()


class Registry:
    """Asks the registry, and decodes by its schemas."""

    def __init__(self, url: str | None) -> None:
        """Ask `url`; None has no schemas."""
        self._url = None if url is None else url.rstrip("/")
        self._kept: dict[str, Schema] = {}
        self._opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.ProxyHandler({})
        )

    async def shown(self, data: bytes | None, wanted: str = "") -> dict[str, Any]:
        """A key or value as a document, as `console.data.decoders.shown`, and by schemas."""
        number = None if data is None else schema_id(data)
        if data is None or number is None or wanted not in ("", *_BY_SCHEMA):
            return shown(data, "" if wanted in _BY_SCHEMA else wanted)
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
            if schema.kind == "PROTOBUF":
                tree: Any = decode_protobuf(data[5:], await self._files_of(schema))
            elif schema.kind == "AVRO":
                tree = decode_avro(data, json.loads(schema.text))
            else:
                raise ValueError(f"it is {schema.kind}, which is not decoded")
        except (OSError, ValueError) as error:
            return shown(data, "hex") | {"note": f"schema {number}: {error}"}
        return shown_structure(schema.kind.lower(), tree, data, f"schema {number}")

    async def _files_of(self, schema: Schema) -> list[tuple[str, str]]:
        """Names and descriptors of all that a schema imports, in that order, and of itself.

        Raises:
            OSError: the registry lacks one.
            ValueError: there are too many, or they import each other.
        """
        files: dict[str, str] = {}

        async def add(inner: Schema, depth: int) -> None:
            if depth > FILES_MAX or len(files) > FILES_MAX:
                raise ValueError(f"it imports more than {FILES_MAX} others")
            for name, subject, version in inner.imports:
                if name not in files:
                    found = await self._version(subject, version)
                    await add(found, depth + 1)
                    files[name] = found.text

        await add(schema, 0)
        return [*files.items(), ("", schema.text)]

    async def schema(self, number: int) -> Schema:
        """The schema of an id.

        Raises:
            OSError: the registry does not answer, or has no such schema.
            ValueError: what answered is no registry.
        """
        return await self._find(f"/schemas/ids/{int(number)}")

    async def _version(self, subject: str, version: int) -> Schema:
        return await self._find(f"/subjects/{quote(subject, safe='')}/versions/{int(version)}")

    async def _find(self, path: str) -> Schema:
        if path not in self._kept:
            found = await asyncio.to_thread(self._fetch, path)
            if found.kind == "PROTOBUF":
                found = await asyncio.to_thread(self._fetch, f"{path}?format=serialized")
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[path] = found
        return self._kept[path]

    def _fetch(self, path: str) -> Schema:
        try:
            with self._opener.open(f"{self._url}{path}", timeout=TIMEOUT_S) as answer:
                body = answer.read(ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(f"the registry answered with status {error.code}") from None
        if len(body) > ANSWER_BYTES:
            raise ValueError(f"the registry's answer is larger than {ANSWER_BYTES} bytes")
        document = json.loads(body)
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            raise ValueError("what answered is no schema registry")
        try:
            imports = tuple(
                (str(one["name"]), str(one["subject"]), int(one["version"]))
                for one in document.get("references") or ()
            )
        except (TypeError, KeyError, ValueError):
            raise ValueError("the registry's references have another form") from None
        return Schema(str(document.get("schemaType", "AVRO")), document["schema"], imports)
