"""AlterReplicaLogDirs (key 34): move partitions to another log directory of the same broker.

| version | change                                   |
|---------|------------------------------------------|
| 0       | partitions per directory                 |
| 1       | client, not broker, waits out a throttle |
| 2       | flexible                                 |
"""

from protocol.declare import primitives as wire
from protocol.structs import NamedIndexes, PartitionError


class AlterReplicaLogDir(wire.Struct):
    """A directory and the partitions to move there."""

    path: str = wire.string()
    topics: list[NamedIndexes] = wire.array()


class AlterReplicaLogDirsRequest(wire.Message, max_version=2, flexible_since=2):
    """The moves."""

    dirs: list[AlterReplicaLogDir] = wire.array()


class AlterReplicaLogDirTopicResult(wire.Struct):
    """The partitions of one topic."""

    topic_name: str = wire.string()
    partitions: list[PartitionError] = wire.array()


class AlterReplicaLogDirsResponse(wire.Message, max_version=2, flexible_since=2):
    """The outcome for every partition."""

    throttle_time_ms: int = wire.int32()
    results: list[AlterReplicaLogDirTopicResult] = wire.array()
