"""ListGroups (key 16): every group this broker coordinates.

| version | change                                   |
|---------|------------------------------------------|
| 0       | group id and protocol type               |
| 1       | answer carries throttle_time_ms          |
| 2       | client, not broker, waits out a throttle |
| 3       | flexible                                 |
| 4       | filter by state (KIP-518)                |
| 5       | filter by type (KIP-848)                 |
"""

from protocol.declare import primitives as wire


class ListGroupsRequest(wire.Message, max_version=5, flexible_since=3):
    """Filters; an empty one matches everything."""

    states_filter: list[str] = wire.array(wire.STRING, since=4)
    types_filter: list[str] = wire.array(wire.STRING, since=5)


class ListedGroup(wire.Struct):
    """One group in brief."""

    group_id: str = wire.string()
    protocol_type: str = wire.string()
    group_state: str = wire.string(since=4)
    group_type: str = wire.string(since=5)


class ListGroupsResponse(wire.Message, max_version=5, flexible_since=3):
    """The groups that passed the filters."""

    throttle_time_ms: int = wire.int32(since=1)
    error_code: int = wire.int16()
    groups: list[ListedGroup] = wire.array()
