"""AlterReplicaLogDirs (key 34, versions 0-2): move partitions between data directories.

There is one data directory. A move to the partition's own directory succeeds, as in Kafka; any
other directory is LOG_DIR_NOT_FOUND, also for a partition that does not exist.

Source: KIP-113; Kafka `ReplicaManager.alterReplicaLogDirs`.
"""

import os

from broker.requests.context import Context, RequestContext
from protocol.api import alter_replica_log_dirs as api
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionError


def handle(
    context: Context, request: RequestContext, message: api.AlterReplicaLogDirsRequest
) -> api.AlterReplicaLogDirsResponse:
    """Answer once per partition whether it is in the last directory that the request names."""
    ours = os.path.abspath(context.topics.path)
    paths = {
        (topic.name, index): move.path
        for move in message.dirs
        for topic in move.topics
        for index in topic.partitions
    }
    results: dict[str, api.AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in paths.items():
        result = results.setdefault(name, api.AlterReplicaLogDirTopicResult(topic_name=name))
        is_ours = os.path.abspath(path) == ours
        result.partitions.append(
            PartitionError(
                partition_index=index, error_code=_move_error(context, name, index, is_ours=is_ours)
            )
        )
    return api.AlterReplicaLogDirsResponse(results=list(results.values()))


def _move_error(context: Context, name: str, partition: int, *, is_ours: bool) -> ErrorCode:
    if not is_ours:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = context.topics.find(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
