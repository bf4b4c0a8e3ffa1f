"""DescribeLogDirs (key 35, versions 0-5): the disk space used by partitions, and the space left.

Source: KIP-113, KIP-827; Kafka `ReplicaManager.describeLogDirs`.
"""

import shutil

from broker.requests.context import Context, RequestContext
from protocol.api import describe_log_dirs as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

_UNKNOWN_BYTES = -1


def handle(
    context: Context, request: RequestContext, message: api.DescribeLogDirsRequest
) -> Steps[api.DescribeLogDirsResponse]:
    """The one data directory, with the requested partitions (null: all)."""
    asked: dict[str, set[int]] | None = None
    if message.topics is not None:
        asked = {}
        for topic in message.topics:
            asked.setdefault(topic.topic, set()).update(topic.partitions)
    path = context.topics.path
    try:
        usage = shutil.disk_usage(path)
        total_bytes, usable_bytes = usage.total, usage.free
    except OSError:
        total_bytes = usable_bytes = _UNKNOWN_BYTES
    topics = yield from _topics(context, asked)
    return api.DescribeLogDirsResponse(
        results=[
            api.DescribeLogDirsResult(
                error_code=ErrorCode.NONE,
                log_dir=path,
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def _topics(
    context: Context, asked: dict[str, set[int]] | None
) -> Steps[list[api.DescribeLogDirsTopic]]:
    topics = []
    for topic in context.topics:
        partitions = [
            api.DescribeLogDirsPartition(
                partition_index=log.partition, partition_size=log.size_bytes
            )
            for log in topic.logs
            if asked is None or log.partition in asked.get(topic.name, ())
        ]
        if partitions:
            topics.append(api.DescribeLogDirsTopic(name=topic.name, partitions=partitions))
        yield None
    return topics
