"""DescribeQuorum (key 55, versions 0-2): the cluster's metadata has one voter, this broker.

There is no Raft log under it: metadata changes are lines of a journal, durable before a change is
answered. So the one voter leads, in epoch 0, and is never behind; offsets are 0.

Source: KIP-595, KIP-836, KIP-853; Kafka `KafkaRaftClient.handleDescribeQuorumRequest`.
"""

from broker.requests.context import Context, RequestContext
from broker.topics.registry import NO_TOPIC_ID
from protocol.api import describe_quorum as api
from protocol.error_codes import ErrorCode

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
_LISTENER_NAME = "PLAINTEXT"


def handle(
    context: Context, request: RequestContext, message: api.DescribeQuorumRequest
) -> api.DescribeQuorumResponse:
    """The quorum of the metadata, if the request names only that; else a refusal."""
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    ]
    is_metadata = asked == [(METADATA_TOPIC, METADATA_PARTITION)]
    endpoint = context.endpoint
    node = api.Node(
        node_id=endpoint.node_id,
        listeners=[api.Listener(name=_LISTENER_NAME, host=endpoint.host, port=endpoint.port)],
    )
    return api.DescribeQuorumResponse(
        error_message="",
        topics=[
            api.DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _describe(context) if is_metadata else _unknown(partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ],
        nodes=[node] if is_metadata else [],
    )


def _unknown(partition: int) -> api.DescribeQuorumResponsePartitionData:
    return api.DescribeQuorumResponsePartitionData(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"Only {METADATA_TOPIC}-{METADATA_PARTITION} has a quorum; ask for it alone.",
    )


def _describe(context: Context) -> api.DescribeQuorumResponsePartitionData:
    node_id = context.endpoint.node_id
    now_ms = context.clock.wall_ms()
    return api.DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_message="",
        leader_id=node_id,
        current_voters=[
            api.ReplicaState(
                replica_id=node_id,
                replica_directory_id=NO_TOPIC_ID,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
    )
