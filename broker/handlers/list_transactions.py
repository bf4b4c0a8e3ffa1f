"""ListTransactions (key 66, versions 0-2): the transactional ids that this broker coordinates.

Versions: v1 only transactions that have been open for at least a given time (KIP-994), v2 a regular
expression on the id (KIP-1152).

Source: Kafka `TransactionStateManager.listTransactionStates`; KIP-664.
"""

from broker import patterns
from broker.requests.context import Context, RequestContext
from broker.transactions.state import TxnSnapshot, TxnState
from protocol.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP

_TITLES = {state.title: state for state in TxnState}


def handle(
    context: Context, request: RequestContext, message: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Every transactional id that passes the filters."""
    unknown = [title for title in message.state_filters if title not in _TITLES]
    try:
        regex = message.transactional_id_pattern
        pattern = patterns.compile_pattern(regex) if regex else None
    except patterns.PatternRefused:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = context.transactions.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.title,
            )
            for found in context.transactions.snapshots()
            if _passes(found, message, now_ms)
            and (pattern is None or pattern.matches(found.transactional_id))
        ],
    )


def _passes(found: TxnSnapshot, message: ListTransactionsRequest, now_ms: int) -> bool:
    if message.state_filters and found.state.title not in message.state_filters:
        return False
    if message.producer_id_filters and found.producer_id not in message.producer_id_filters:
        return False
    if message.duration_filter < 0:
        return True
    return found.started_ms != NO_TIMESTAMP and (
        now_ms - found.started_ms > message.duration_filter
    )
