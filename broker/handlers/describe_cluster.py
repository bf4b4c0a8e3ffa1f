"""DescribeCluster (key 60, versions 0-2): the cluster's id, controller and brokers.

Source: KIP-700, KIP-919; Kafka `AuthHelper.computeDescribeClusterResponse`.
"""

from broker.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from broker.requests.context import Context, RequestContext
from protocol.api import describe_cluster as api
from protocol.error_codes import ErrorCode

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2


def handle(
    context: Context, request: RequestContext, message: api.DescribeClusterRequest
) -> api.DescribeClusterResponse:
    """This broker, which is the whole cluster with its workers."""
    if message.endpoint_type != ENDPOINT_BROKERS:
        is_known = message.endpoint_type == ENDPOINT_CONTROLLERS
        return api.DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if is_known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="This listener serves brokers (endpoint type 1).",
        )
    return api.DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=context.endpoint.node_id,
        brokers=[
            api.DescribeClusterBroker(
                broker_id=endpoint.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=endpoint.rack,
            )
            for endpoint in context.endpoints
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
