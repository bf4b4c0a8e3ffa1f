"""ListPartitionReassignments (key 46, version 0): with one broker, no partition is moving.

Source: KIP-455; Kafka `ReplicationControlManager.listPartitionReassignments`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    context: Context, request: RequestContext, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves in progress: none."""
    return ListPartitionReassignmentsResponse(error_message=None)
