"""Where a partition is led now, for answers that refuse it here (KIP-951).

With it a client asks there at once; without it, the client asks for metadata first. A worker above
1 knows which worker leads another partition, and neither its epoch nor its address.

Source: Kafka `KafkaApis.getCurrentLeader`.
"""

from typing import Final, NamedTuple

from broker.requests.context import Context, Endpoint
from protocol.error_codes import ErrorCode

MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors beside which an answer names the leader."""

_UNKNOWN: Final = -1


class CurrentLeader(NamedTuple):
    """The leader of a partition; -1 for what is not known, no address for one that is not there."""

    node_id: int
    epoch: int
    endpoint: Endpoint | None


def current_leader(context: Context, topic_id: bytes, partition: int) -> CurrentLeader:
    """The leader of a partition, with its address on the listener of the request."""
    topic = context.topics.find_by_id(topic_id)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return CurrentLeader(_UNKNOWN, _UNKNOWN, None)
    topics = context.topics
    node_id = topics.leader_id(topic, partition)
    is_known = topic.partitions[partition] is not None or topics.peers is not None
    epoch = topics.leader_epoch(topic, partition) if is_known else _UNKNOWN
    endpoint = next((each for each in context.endpoints if each.node_id == node_id), None)
    return CurrentLeader(node_id, epoch, endpoint)
