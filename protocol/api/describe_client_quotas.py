"""DescribeClientQuotas (key 48): quotas that match a filter (KIP-546).

=======  ============================
version  change
=======  ============================
0        users, client ids, addresses
1        flexible
=======  ============================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class ComponentData:
    """One part of the filter."""

    entity_type: str = string()
    match_type: int = int8()
    """0 exactly ``match``, 1 the default entity, 2 any that is specified."""

    match: str | None = string(nullable_since=0)


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, Direction.REQUEST, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    """The filter."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()
    """Refuse entities with parts the filter does not mention."""


@dataclass(slots=True, kw_only=True)
class EntityData:
    """One part of an entity's name; null names the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class ValueData:
    """One quota."""

    key: str = string()
    value: float = float64()


@dataclass(slots=True, kw_only=True)
class EntryData:
    """An entity and its quotas."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, Direction.RESPONSE, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    """The entities that matched."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entries: list[EntryData] | None = array(EntryData, nullable_since=0)
