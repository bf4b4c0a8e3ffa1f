"""ListTransactions (key 66, versions 0-2): the transactional ids that this broker coordinates.

Source: Kafka `TransactionStateManager.listTransactionStates`; KIP-664.
"""

from broker.requests.context import Context, RequestContext
from broker.transactions.state import TxnSnapshot, TxnState
from protocol import patterns
from protocol.api import list_transactions as api
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from storage.disk.steps import Steps

_TITLES = {state.title: state for state in TxnState}


def handle(
    context: Context, request: RequestContext, message: api.ListTransactionsRequest
) -> Steps[api.ListTransactionsResponse]:
    """Every transactional id that passes the filters."""
    try:
        regex = message.transactional_id_pattern
        pattern = patterns.compile_pattern(regex) if regex else None
    except patterns.PatternRefused:
        return api.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    titles, producer_ids = set(message.state_filters), set(message.producer_id_filters)
    response = api.ListTransactionsResponse()
    for title in message.state_filters:
        if title not in _TITLES:
            response.unknown_state_filters.append(title)
    now_ms = context.transactions.now_ms()
    for found in context.transactions.snapshots():
        if (
            (not titles or found.state.title in titles)
            and (not producer_ids or found.producer_id in producer_ids)
            and (message.duration_filter < 0 or _is_older(found, message.duration_filter, now_ms))
            and (pattern is None or pattern.matches(found.transactional_id))
        ):
            response.transaction_states.append(
                api.TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.state.title,
                )
            )
        yield None
    return response


def _is_older(found: TxnSnapshot, duration_ms: int, now_ms: int) -> bool:
    return found.started_ms != NO_TIMESTAMP and now_ms - found.started_ms > duration_ms
