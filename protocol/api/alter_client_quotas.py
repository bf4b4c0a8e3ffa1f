"""AlterClientQuotas (key 49): set or remove quotas (KIP-546).

=======  ============================
version  change
=======  ============================
0        users, client ids, addresses
1        flexible
=======  ============================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api.describe_client_quotas import EntityData
from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    float64,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class OpData:
    """A quota to set or remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@dataclass(slots=True, kw_only=True)
class EntryData:
    """An entity and its changes."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(ApiKey.ALTER_CLIENT_QUOTAS, Direction.REQUEST, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class AlterClientQuotasRequest:
    """The changes."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponseEntryData:
    """The outcome for one entity; ``EntryData`` in Kafka's specification."""

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    entity: list[EntityData] = array(EntityData)


@message(ApiKey.ALTER_CLIENT_QUOTAS, Direction.RESPONSE, max_version=1, flexible_since=1)
@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponse:
    """The outcome for every entity."""

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
