"""DescribeCluster (key 60): id, controller and members of the cluster (KIP-700).

=======  ===============================================
version  change
=======  ===============================================
0        flexible from the start
1        endpoint type: brokers or controllers (KIP-919)
2        fenced brokers on request (KIP-1073)
=======  ===============================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
)


@message(ApiKey.DESCRIBE_CLUSTER, Direction.REQUEST, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeClusterRequest:
    """The parts to report."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    """1 brokers, 2 controllers."""

    include_fenced_brokers: bool = boolean(since=2)


@dataclass(slots=True, kw_only=True)
class DescribeClusterBroker:
    """One member and how to reach it."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)
    is_fenced: bool = boolean(since=2)


@message(ApiKey.DESCRIBE_CLUSTER, Direction.RESPONSE, max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse:
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
    """Bit field of operation codes; the default means "not requested"."""
