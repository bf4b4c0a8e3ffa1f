"""AlterClientQuotas (key 49): set or remove quotas (KIP-546).

| version | change                       |
|---------|------------------------------|
| 0       | users, client ids, addresses |
| 1       | flexible                     |
"""

from protocol.api.describe_client_quotas import EntityData
from protocol.declare import primitives as wire


class OpData(wire.Struct):
    """A quota to set or remove."""

    key: str = wire.string()
    value: float = wire.float64()
    remove: bool = wire.boolean()


class EntryData(wire.Struct):
    """An entity and its changes."""

    entity: list[EntityData] = wire.array()
    ops: list[OpData] = wire.array()


class AlterClientQuotasRequest(wire.Message, max_version=1, flexible_since=1):
    """The changes."""

    entries: list[EntryData] = wire.array()
    validate_only: bool = wire.boolean()


class AlterClientQuotasResponseEntryData(wire.Struct):
    """The outcome for one entity; ``EntryData`` in Kafka's specification."""

    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    entity: list[EntityData] = wire.array()


class AlterClientQuotasResponse(wire.Message, max_version=1, flexible_since=1):
    """The outcome for every entity."""

    throttle_time_ms: int = wire.int32()
    entries: list[AlterClientQuotasResponseEntryData] = wire.array()
