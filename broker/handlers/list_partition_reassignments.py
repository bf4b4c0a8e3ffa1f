"""ListPartitionReassignments (key 46, version 0): with one broker, no partition is moving.

Source: KIP-455; Kafka `ReplicationControlManager.listPartitionReassignments`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api import list_partition_reassignments as api


def handle(
    context: Context, request: RequestContext, message: api.ListPartitionReassignmentsRequest
) -> api.ListPartitionReassignmentsResponse:
    """The moves in progress: none."""
    return api.ListPartitionReassignmentsResponse(error_message=None)
