"""Values of records as documents, decoded by the schemas of a registry if they name one."""

import asyncio
from typing import Any, Final

from client.errors import ClientError
from client.serde.documents import Documents
from client.serde.frame import FRAME_BYTES, schema_id
from client.serde.registry import JSON, RegistryAddress
from client.serde.registry import Registry as Schemas
from console.data.decoders import SHOWN_BYTES, shown, shown_structure

_BY_SCHEMA: Final = ("avro", "protobuf")


class Registry:
    """Asks the registry, and decodes by its schemas."""

    def __init__(self, url: str | None) -> None:
        """Ask `url`; None has no schemas."""
        self._documents = None if url is None else Documents(Schemas(RegistryAddress(url=url)))

    async def shown(self, data: bytes | None, wanted: str = "") -> dict[str, Any]:
        """A key or value as a document, as `console.data.decoders.shown`, and by schemas."""
        number = None if data is None else schema_id(data)
        if data is None or number is None or wanted not in ("", *_BY_SCHEMA):
            return shown(data, "" if wanted in _BY_SCHEMA else wanted)
        if self._documents is None:
            if not wanted:
                return shown(data)
            note = f"schema {number}: start the console with --schema-registry URL"
            return shown(data, "hex") | {"note": note}
        if len(data) > SHOWN_BYTES:
            return shown(data, "hex")
        try:
            kind, tree = await asyncio.to_thread(self._documents.read, number, data)
        except ClientError as error:
            return shown(data, "hex") | {"note": f"schema {number}: {error}"}
        if kind == JSON:
            document = shown(data[FRAME_BYTES:], "json")
            return document | {"note": f"schema {number}", "size": len(data)}
        return shown_structure(kind.lower(), tree, data, f"schema {number}")
