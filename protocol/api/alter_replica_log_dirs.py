"""AlterReplicaLogDirs (key 34): move partitions to another log directory of the same broker.

=======  ========================================
version  change
=======  ========================================
0        partitions per directory
1        client, not broker, waits out a throttle
2        flexible
=======  ========================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import INT32, Direction, array, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDir:
    """A directory and the partitions to move there."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, Direction.REQUEST, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsRequest:
    """The moves."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult:
    """Whether one move was accepted."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(ApiKey.ALTER_REPLICA_LOG_DIRS, Direction.RESPONSE, max_version=2, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsResponse:
    """The outcome for every partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
