"""DescribeCluster (key 60): id, controller and members of the cluster (KIP-700).

| version | change                                          |
|---------|-------------------------------------------------|
| 0       | flexible from the start                         |
| 1       | endpoint type: brokers or controllers (KIP-919) |
| 2       | fenced brokers on request (KIP-1073)            |
"""

from protocol.declare import primitives as wire


class DescribeClusterRequest(wire.Message, max_version=2, flexible_since=0):
    """The parts to report."""

    include_cluster_authorized_operations: bool = wire.boolean()
    endpoint_type: int = wire.int8(since=1, default=1)
    """1 brokers, 2 controllers."""

    include_fenced_brokers: bool = wire.boolean(since=2)


class DescribeClusterBroker(wire.Struct):
    """One member and how to reach it."""

    broker_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string(nullable_since=0, default=None)
    is_fenced: bool = wire.boolean(since=2)


class DescribeClusterResponse(wire.Message, max_version=2, flexible_since=0):
    """The cluster."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)
    endpoint_type: int = wire.int8(since=1, default=1)
    cluster_id: str = wire.string()
    controller_id: int = wire.int32(default=-1)
    brokers: list[DescribeClusterBroker] = wire.array()
    cluster_authorized_operations: int = wire.operations()
