"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

| version | change                                                    |
|---------|-----------------------------------------------------------|
| 0       | groups only                                               |
| 1       | transactional ids too; throttle_time_ms and error message |
| 2       | client, not broker, waits out a throttle                  |
| 3       | flexible                                                  |
| 4       | several keys at once (KIP-699)                            |
| 5       | TRANSACTION_ABORTABLE may be answered (KIP-890)           |
| 6       | share groups, keyed group:topic id:partition (KIP-932)    |
"""

from protocol.declare import primitives as wire


class FindCoordinatorRequest(wire.Message, max_version=6, flexible_since=3):
    """The keys to look up, all of one type."""

    key: str = wire.string(until=3)
    key_type: int = wire.int8(since=1)
    """0 group, 1 transactional id, 2 share group."""

    coordinator_keys: list[str] = wire.array(wire.STRING, since=4)


class Coordinator(wire.Struct):
    """Where one key is looked after."""

    key: str = wire.string(since=4)
    node_id: int = wire.int32(since=4)
    host: str = wire.string(since=4)
    port: int = wire.int32(since=4)
    error_code: int = wire.int16(since=4)
    error_message: str | None = wire.string(since=4, nullable_since=4)


class FindCoordinatorResponse(wire.Message, max_version=6, flexible_since=3):
    """The coordinator: one at the top level up to v3, a list from v4."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16(until=3)
    error_message: str | None = wire.string(since=1, until=3, nullable_since=1)
    node_id: int = wire.int32(until=3)
    host: str = wire.string(until=3)
    port: int = wire.int32(until=3)
    coordinators: list[Coordinator] = wire.array(since=4)
