"""The handlers of consumer groups, committed offsets and transactions, by API key.

`broker.dispatch` joins this table with the one of `broker.handlers.table`; a key may stand in one
of them only. What is not advertised (`protocol.api_keys.SUPPORTED`) is never called.
"""

from collections.abc import Mapping
from types import MappingProxyType

from broker.context import Handler
from broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    delete_groups,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from protocol.api_keys import ApiKey

GROUP_HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.OFFSET_COMMIT: offset_commit.handle,
        ApiKey.OFFSET_FETCH: offset_fetch.handle,
        ApiKey.FIND_COORDINATOR: find_coordinator.handle,
        ApiKey.JOIN_GROUP: join_group.handle,
        ApiKey.HEARTBEAT: heartbeat.handle,
        ApiKey.LEAVE_GROUP: leave_group.handle,
        ApiKey.SYNC_GROUP: sync_group.handle,
        ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
        ApiKey.LIST_GROUPS: list_groups.handle,
        ApiKey.DELETE_GROUPS: delete_groups.handle,
        ApiKey.OFFSET_DELETE: offset_delete.handle,
        ApiKey.INIT_PRODUCER_ID: init_producer_id.handle,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle,
        ApiKey.END_TXN: end_txn.handle,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers.handle,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
        ApiKey.LIST_TRANSACTIONS: list_transactions.handle,
    }
)
