"""The leader that an answer names beside a refusal, so that the client asks there at once.

A worker above 1 knows which worker leads another partition, and neither its epoch nor its address.

Source: KIP-951; Kafka `KafkaApis.getCurrentLeader`.
"""

from typing import Final

from broker.requests.context import Context, Endpoint
from protocol.error_codes import ErrorCode
from protocol.structs import LeaderIdAndEpoch, NodeEndpoint
from storage.directory.data_dir import Topic

MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors beside which an answer names the leader."""

_UNKNOWN: Final = -1


class NamedLeaders:
    """The leaders that one answer names."""

    def __init__(self, context: Context) -> None:
        """Name them for the listener of the request."""
        self._context = context
        self._endpoints: dict[int, Endpoint] = {}

    def leader(self, topic: Topic | None, partition: int) -> LeaderIdAndEpoch:
        """The leader of a partition, -1 for what is not known; its address is in `endpoints`."""
        node_id = epoch = _UNKNOWN
        if topic is not None and 0 <= partition < len(topic.partitions):
            topics = self._context.topics
            node_id = topics.leader_id(topic, partition)
            if topic.partitions[partition] is not None or topics.peers is not None:
                epoch = topics.leader_epoch(topic, partition)
            for each in self._context.endpoints:
                if each.node_id == node_id:
                    self._endpoints[node_id] = each
        return LeaderIdAndEpoch(leader_id=node_id, leader_epoch=epoch)

    def endpoints(self) -> list[NodeEndpoint]:
        """The addresses of the named leaders, as far as they are known."""
        return [
            NodeEndpoint(node_id=node_id, host=each.host, port=each.port)
            for node_id, each in self._endpoints.items()
        ]
