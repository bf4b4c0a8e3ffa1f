"""DescribeClientQuotas (key 48): quotas that match a filter (KIP-546).

| version | change                       |
|---------|------------------------------|
| 0       | users, client ids, addresses |
| 1       | flexible                     |
"""

from protocol.declare import primitives as wire


class ComponentData(wire.Struct):
    """One part of the filter."""

    entity_type: str = wire.string()
    match_type: int = wire.int8()
    """0 exactly ``match``, 1 the default entity, 2 any that is specified."""

    match: str | None = wire.string(nullable_since=0)


class DescribeClientQuotasRequest(wire.Message, max_version=1, flexible_since=1):
    """The filter."""

    components: list[ComponentData] = wire.array()
    strict: bool = wire.boolean()
    """Refuse entities with parts the filter does not mention."""


class EntityData(wire.Struct):
    """One part of an entity's name; null names the default."""

    entity_type: str = wire.string()
    entity_name: str | None = wire.string(nullable_since=0)


class ValueData(wire.Struct):
    """One quota."""

    key: str = wire.string()
    value: float = wire.float64()


class EntryData(wire.Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = wire.array()
    values: list[ValueData] = wire.array()


class DescribeClientQuotasResponse(wire.Message, max_version=1, flexible_since=1):
    """The entities that matched."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    entries: list[EntryData] | None = wire.array(nullable_since=0)
