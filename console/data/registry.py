"""Values of records as documents, decoded by the schemas of a registry if they name one."""

import asyncio
from typing import Any, Final

from client.errors import ClientError
from client.serde.avro import avro_reader, parse_avro
from client.serde.errors import BadSchema
from client.serde.frame import FRAME_BYTES, schema_id
from client.serde.protobuf import ProtobufSchema, protobuf_reader, protobuf_tree
from client.serde.registry import AVRO, JSON, PROTOBUF, RegistryAddress
from client.serde.registry import Registry as Schemas
from console.data.decoders import SHOWN_BYTES, shown, shown_structure

_BY_SCHEMA: Final = ("avro", "protobuf")


class Registry:
    """Asks the registry, and decodes by its schemas."""

    def __init__(self, url: str | None) -> None:
        """Ask `url`; None has no schemas."""
        self._schemas = None if url is None else Schemas(RegistryAddress(url=url))

    async def shown(self, data: bytes | None, wanted: str = "") -> dict[str, Any]:
        """A key or value as a document, as `console.data.decoders.shown`, and by schemas."""
        number = None if data is None else schema_id(data)
        if data is None or number is None or wanted not in ("", *_BY_SCHEMA):
            return shown(data, "" if wanted in _BY_SCHEMA else wanted)
        if self._schemas is None:
            if not wanted:
                return shown(data)
            note = f"schema {number}: start the console with --schema-registry URL"
            return shown(data, "hex") | {"note": note}
        if len(data) > SHOWN_BYTES:
            return shown(data, "hex")
        try:
            kind, tree = await asyncio.to_thread(_decode, self._schemas, number, data)
        except ClientError as error:
            return shown(data, "hex") | {"note": f"schema {number}: {error}"}
        if kind == JSON:
            document = shown(data[FRAME_BYTES:], "json")
            return document | {"note": f"schema {number}", "size": len(data)}
        return shown_structure(kind.lower(), tree, data, f"schema {number}")


def _decode(schemas: Schemas, number: int, data: bytes) -> tuple[str, Any]:
    """The kind of the schema, and the value unless it is JSON."""
    schema = schemas.schema(number)
    if schema.kind == JSON:
        return JSON, None
    if schema.kind == AVRO:
        return AVRO, avro_reader(parse_avro(schemas.files_of(schema)))(data)
    if schema.kind == PROTOBUF:
        parsed = ProtobufSchema(schemas.files_of(schema))
        return PROTOBUF, protobuf_tree(parsed, protobuf_reader(parsed)(data))
    raise BadSchema(f"it is {schema.kind}, which is not decoded")
