"""ElectLeaders (key 43): move leadership to the preferred or to any living replica.

| version | change                                                        |
|---------|---------------------------------------------------------------|
| 0       | preferred leaders only                                        |
| 1       | choice of election type; error for the whole answer (KIP-460) |
| 2       | flexible                                                      |
"""

from protocol.declare import primitives as wire
from protocol.structs import TopicIndexes


class ElectLeadersRequest(wire.Message, max_version=2, flexible_since=2):
    """Elections to hold."""

    election_type: int = wire.int8(since=1)
    """0 the preferred replica, 1 any, even one that lags."""

    topic_partitions: list[TopicIndexes] | None = wire.array(nullable_since=0)
    """Null for all partitions."""

    timeout_ms: int = wire.int32(default=60000)


class PartitionResult(wire.Struct):
    """The outcome of one election."""

    partition_id: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)


class ReplicaElectionResult(wire.Struct):
    """The partitions of one topic."""

    topic: str = wire.string()
    partition_result: list[PartitionResult] = wire.array()


class ElectLeadersResponse(wire.Message, max_version=2, flexible_since=2):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = wire.array()
