"""UnregisterBroker (key 64, version 0): take a broker that is gone out of the cluster.

The brokers of this cluster are its workers, and they are never gone: one that ends is started
again. Any other id is BROKER_ID_NOT_REGISTERED.

Differs from Kafka: a broker that runs is not unregistered; there it loses its place until it
registers again, at its next start.

Source: KIP-584; Kafka `ReplicationControlManager.unregisterBroker`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api import unregister_broker as api
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: api.UnregisterBrokerRequest
) -> api.UnregisterBrokerResponse:
    """Refuse, with the reason."""
    broker_id = message.broker_id
    if context.topics.worker_of_node(broker_id) is None:
        text = f"Broker {broker_id} is not registered."
        return api.UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=text
        )
    text = f"Broker {broker_id} is running, so it stays registered; stop it instead."
    return api.UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
