"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

=======  =========================================================
version  change
=======  =========================================================
0        groups only
1        transactional ids too; throttle_time_ms and error message
2        client, not broker, waits out a throttle
3        flexible
4        several keys at once (KIP-699)
5        TRANSACTION_ABORTABLE may be answered (KIP-890)
6        share groups, keyed group:topic id:partition (KIP-932)
=======  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    STRING,
    Direction,
    array,
    int8,
    int16,
    int32,
    message,
    string,
)


@message(ApiKey.FIND_COORDINATOR, Direction.REQUEST, max_version=6, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    """The keys to look up, all of one type."""

    key: str = string(until=3)
    key_type: int = int8(since=1)
    """0 group, 1 transactional id, 2 share group."""

    coordinator_keys: list[str] = array(STRING, since=4)


@dataclass(slots=True, kw_only=True)
class Coordinator:
    """Where one key is looked after."""

    key: str = string(since=4)
    node_id: int = int32(since=4)
    host: str = string(since=4)
    port: int = int32(since=4)
    error_code: int = int16(since=4)
    error_message: str | None = string(since=4, nullable_since=4)


@message(ApiKey.FIND_COORDINATOR, Direction.RESPONSE, max_version=6, flexible_since=3)
@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    """The coordinator: one at the top level up to v3, a list from v4."""

    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable_since=1)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
