"""Keys and values as documents: what the schema that their bytes name makes of them.

For people who look at records, so any record may come: each schema is parsed once, and what cannot
be read is an error with its reason.
"""

from collections.abc import Callable
from typing import Any, Final

from client.serde.avro import avro_reader, parse_avro
from client.serde.errors import BadSchema
from client.serde.protobuf import ProtobufSchema, protobuf_reader, protobuf_tree
from client.serde.registry import AVRO, JSON, KINDS, PROTOBUF, Registry

_KEPT_MAX: Final = 1000

Reader = Callable[[bytes], Any]


class Documents:
    """Reads values by the schemas of one registry; threads may share it."""

    def __init__(self, registry: Registry) -> None:
        """Ask `registry`; nothing is sent yet."""
        self._registry = registry
        self._readers: dict[int, tuple[str, Reader]] = {}

    def read(self, number: int, data: bytes) -> tuple[str, Any]:
        """The kind of the schema `number`, and the value of the framed bytes in JSON's types.

        Avro adds bytes, dates, times, decimals and UUIDs to them. Of JSON the value is None: the
        bytes after the frame are its text already.

        Raises:
            RegistryUnreachable: the registry gave no answer.
            NoSuchSchema, BadSchema: it lacks the schema, or it is not usable here.
            BadValue: the bytes do not fit.
        """
        found = self._readers.get(number)
        if found is None:
            if len(self._readers) >= _KEPT_MAX:
                self._readers.clear()
            found = self._readers[number] = self._reader(number)
        kind, reader = found
        return kind, reader(data)

    def _reader(self, number: int) -> tuple[str, Reader]:
        schema = self._registry.schema(number)
        try:
            if schema.kind == JSON:
                return JSON, lambda data: None
            if schema.kind == AVRO:
                return AVRO, avro_reader(parse_avro(self._registry.files_of(schema)))
            if schema.kind == PROTOBUF:
                parsed = ProtobufSchema(self._registry.files_of(schema))
                message = protobuf_reader(parsed)
                return PROTOBUF, lambda data: protobuf_tree(parsed, message(data))
        except ImportError as error:
            raise BadSchema(
                f"it is {schema.kind}, and {error.name} is not installed: "
                "pip install 'tidelog[serde]'"
            ) from error
        raise BadSchema(f"it is {schema.kind}: {', '.join(KINDS)} can be read")
