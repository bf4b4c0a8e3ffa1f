"""DeleteGroups (key 42): delete groups that have no members.

| version | change                                   |
|---------|------------------------------------------|
| 0       | group ids                                |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire


class DeleteGroupsRequest(wire.Message, max_version=2, flexible_since=2):
    """Groups to delete, with their offsets."""

    groups_names: list[str] = wire.array(wire.STRING)


class DeletableGroupResult(wire.Struct):
    """The outcome for one group."""

    group_id: str = wire.string()
    error_code: int = wire.int16()


class DeleteGroupsResponse(wire.Message, max_version=2, flexible_since=2):
    """The outcome for every group."""

    throttle_time_ms: int = wire.int32()
    results: list[DeletableGroupResult] = wire.array()
