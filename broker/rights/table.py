"""Which guard stands before which handler."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights import admin, groups, shares, topics, transactions
from broker.rights.guards import Guard
from protocol.api_keys import ApiKey

GUARDS: Final[Mapping[ApiKey, Guard]] = MappingProxyType(
    {
        ApiKey.PRODUCE: topics.produce_guard,
        ApiKey.LIST_OFFSETS: topics.list_offsets_guard,
        ApiKey.METADATA: topics.metadata_guard,
        ApiKey.CREATE_TOPICS: topics.create_topics_guard,
        ApiKey.DELETE_TOPICS: topics.delete_topics_guard,
        ApiKey.DELETE_RECORDS: topics.delete_records_guard,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions_guard,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch_guard,
        ApiKey.DESCRIBE_PRODUCERS: topics.describe_producers_guard,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions_guard,
        ApiKey.OFFSET_COMMIT: groups.offset_commit_guard,
        ApiKey.OFFSET_FETCH: groups.offset_fetch_guard,
        ApiKey.OFFSET_DELETE: groups.offset_delete_guard,
        ApiKey.JOIN_GROUP: groups.join_group_guard,
        ApiKey.HEARTBEAT: groups.heartbeat_guard,
        ApiKey.LEAVE_GROUP: groups.leave_group_guard,
        ApiKey.SYNC_GROUP: groups.sync_group_guard,
        ApiKey.DESCRIBE_GROUPS: groups.describe_groups_guard,
        ApiKey.LIST_GROUPS: groups.list_groups_guard,
        ApiKey.DELETE_GROUPS: groups.delete_groups_guard,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat_guard,
        ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe_guard,
        ApiKey.SHARE_GROUP_HEARTBEAT: groups.share_group_heartbeat_guard,
        ApiKey.SHARE_GROUP_DESCRIBE: groups.share_group_describe_guard,
        ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_group_heartbeat_guard,
        ApiKey.STREAMS_GROUP_DESCRIBE: groups.streams_group_describe_guard,
        ApiKey.SHARE_FETCH: shares.share_fetch_guard,
        ApiKey.SHARE_ACKNOWLEDGE: shares.share_acknowledge_guard,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: shares.describe_share_group_offsets_guard,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: shares.alter_share_group_offsets_guard,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: shares.delete_share_group_offsets_guard,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: shares.initialize_share_group_state_guard,
        ApiKey.READ_SHARE_GROUP_STATE: shares.read_share_group_state_guard,
        ApiKey.WRITE_SHARE_GROUP_STATE: shares.write_share_group_state_guard,
        ApiKey.DELETE_SHARE_GROUP_STATE: shares.delete_share_group_state_guard,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: shares.read_share_group_state_summary_guard,
        ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id_guard,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn_guard,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn_guard,
        ApiKey.END_TXN: transactions.end_txn_guard,
        ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers_guard,
        ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit_guard,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions_guard,
        ApiKey.LIST_TRANSACTIONS: transactions.list_transactions_guard,
        ApiKey.FIND_COORDINATOR: admin.find_coordinator_guard,
        ApiKey.DESCRIBE_CLUSTER: admin.describe_cluster_guard,
        ApiKey.DESCRIBE_CONFIGS: admin.describe_configs_guard,
        ApiKey.ALTER_CONFIGS: admin.alter_configs_guard,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: admin.incremental_alter_configs_guard,
        ApiKey.LIST_CONFIG_RESOURCES: admin.list_config_resources_guard,
        ApiKey.DESCRIBE_LOG_DIRS: admin.describe_log_dirs_guard,
        ApiKey.ALTER_REPLICA_LOG_DIRS: admin.alter_replica_log_dirs_guard,
        ApiKey.ELECT_LEADERS: admin.elect_leaders_guard,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: admin.alter_partition_reassignments_guard,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: admin.list_partition_reassignments_guard,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: admin.describe_client_quotas_guard,
        ApiKey.ALTER_CLIENT_QUOTAS: admin.alter_client_quotas_guard,
        ApiKey.DESCRIBE_QUORUM: admin.describe_quorum_guard,
        ApiKey.UPDATE_FEATURES: admin.update_features_guard,
        ApiKey.UNREGISTER_BROKER: admin.unregister_broker_guard,
    }
)

FREE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        # These ask for the right themselves.
        ApiKey.FETCH,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        # No right counts for these: the client has to be the token's owner or a renewer.
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        # As in Kafka: a subscription, which takes a right, asks every client for its metrics.
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""APIs without a guard."""


def guarded(key: ApiKey, handler: Handler) -> Handler:
    """`handler` behind the guard of its API."""
    if key in FREE:
        return handler
    guard = GUARDS[key]

    def handle(context: Context, request: RequestContext, message: Any) -> Reply:
        return guard(context, request, message, handler)

    return handle
