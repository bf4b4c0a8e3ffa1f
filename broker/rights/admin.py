"""Guards of the APIs about the cluster, its settings and its coordinators.

Source: Kafka `KafkaApis`, `ControllerApis`, `ConfigAdminManager`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.requests.access import Check
from broker.requests.config_resources import ResourceType as ConfigResourceType
from broker.requests.config_resources import complaint_about, is_our_node
from broker.requests.context import Context
from broker.rights.guards import (
    CLUSTER_DENIED,
    CLUSTER_MESSAGE,
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    TRANSACTIONAL_ID_DENIED,
    Guard,
    Steps,
    guard,
    on_cluster,
    on_items,
    parted,
    refused_topic,
    refusing,
)
from broker.rights.topics import cluster_bits
from protocol.acl import Operation
from protocol.api import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from protocol.error_codes import ErrorCode

_MANY_KEYS_SINCE = 4
_LOG_DIRS_ERROR_SINCE = 3
_ELECT_ERROR_SINCE = 1
_DENIED: Final[Mapping[int, tuple[int, str]]] = {
    ConfigResourceType.TOPIC: (TOPIC_DENIED, TOPIC_MESSAGE),
    ConfigResourceType.GROUP: (GROUP_DENIED, GROUP_MESSAGE),
}
_CLUSTER_DENIED: Final[dict[str, Any]] = {
    "error_code": CLUSTER_DENIED, "error_message": CLUSTER_MESSAGE,
}  # fmt: skip
_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2
_REFUSED_KEYS: Final[Mapping[int, tuple[ErrorCode, str]]] = {
    _GROUP_KEY: (GROUP_DENIED, GROUP_MESSAGE),
    _TRANSACTION_KEY: (TRANSACTIONAL_ID_DENIED, "Transactional Id authorization failed."),
    _SHARE_KEY: (CLUSTER_DENIED, CLUSTER_MESSAGE),
}

describe_quorum_guard = on_cluster(
    Operation.DESCRIBE,
    refusing(describe_quorum.DescribeQuorumResponse, **_CLUSTER_DENIED),
)
update_features_guard = on_cluster(
    Operation.ALTER,
    refusing(update_features.UpdateFeaturesResponse, **_CLUSTER_DENIED),
)
unregister_broker_guard = on_cluster(
    Operation.ALTER,
    refusing(unregister_broker.UnregisterBrokerResponse, **_CLUSTER_DENIED),
)
alter_partition_reassignments_guard = on_cluster(
    Operation.ALTER,
    lambda message, request: alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        **_CLUSTER_DENIED,
        responses=[
            refused_topic(
                alter_partition_reassignments.ReassignableTopicResponse, topic, **_CLUSTER_DENIED
            )
            for topic in message.topics
        ],
    ),
)
list_partition_reassignments_guard = on_cluster(
    Operation.DESCRIBE,
    lambda message, request: list_partition_reassignments.ListPartitionReassignmentsResponse(
        **_CLUSTER_DENIED,
        topics=[
            refused_topic(list_partition_reassignments.OngoingTopicReassignment, topic)
            for topic in message.topics or ()
        ],
    ),
)
list_config_resources_guard = on_cluster(
    Operation.DESCRIBE_CONFIGS,
    refusing(list_config_resources.ListConfigResourcesResponse, error_code=CLUSTER_DENIED),
)
describe_client_quotas_guard = on_cluster(
    Operation.DESCRIBE_CONFIGS,
    refusing(describe_client_quotas.DescribeClientQuotasResponse, **_CLUSTER_DENIED, entries=None),
)
alter_client_quotas_guard = on_cluster(
    Operation.ALTER_CONFIGS,
    lambda message, request: alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.AlterClientQuotasResponseEntryData(
                **_CLUSTER_DENIED, entity=entry.entity
            )
            for entry in message.entries
        ]
    ),
)
describe_log_dirs_guard = on_cluster(
    Operation.DESCRIBE,
    lambda message, request: describe_log_dirs.DescribeLogDirsResponse(
        error_code=CLUSTER_DENIED if request.api_version >= _LOG_DIRS_ERROR_SINCE else 0
    ),
)
alter_replica_log_dirs_guard = on_cluster(
    Operation.ALTER,
    lambda message, request: alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            refused_topic(
                alter_replica_log_dirs.AlterReplicaLogDirTopicResult,
                topic,
                error_code=CLUSTER_DENIED,
            )
            for directory in message.dirs
            for topic in directory.topics
        ]
    ),
)
elect_leaders_guard = on_cluster(
    Operation.ALTER,
    lambda message, request: elect_leaders.ElectLeadersResponse(
        error_code=CLUSTER_DENIED if request.api_version >= _ELECT_ERROR_SINCE else 0,
        replica_election_results=[
            refused_topic(elect_leaders.ReplicaElectionResult, topic, **_CLUSTER_DENIED)
            for topic in message.topic_partitions or ()
        ],
    ),
)


@guard
def describe_cluster_guard(check: Check, message: describe_cluster.DescribeClusterRequest) -> Steps:
    """Everyone sees the brokers; the operations need DESCRIBE on the cluster."""
    answer: describe_cluster.DescribeClusterResponse = yield
    if message.include_cluster_authorized_operations and not answer.error_code:
        answer.cluster_authorized_operations = cluster_bits(check)
    return answer


@guard
def find_coordinator_guard(check: Check, message: find_coordinator.FindCoordinatorRequest) -> Steps:
    """DESCRIBE on each key, which is a group or a transactional id."""
    kind = message.key_type
    code, why = _REFUSED_KEYS.get(kind, (ErrorCode.NONE, ""))

    def is_allowed(key: str) -> bool:
        if kind == _GROUP_KEY:
            return check.group(Operation.DESCRIBE, key)
        if kind == _TRANSACTION_KEY:
            return check.transactional_id(Operation.DESCRIBE, key)
        return kind != _SHARE_KEY or check.cluster(Operation.CLUSTER_ACTION)

    if check.request.api_version < _MANY_KEYS_SINCE:
        if is_allowed(message.key):
            return None
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, error_message=why, node_id=-1, host="", port=-1
        )
    message.coordinator_keys, denied = parted(message.coordinator_keys, is_allowed)
    if not denied:
        return None
    answer = find_coordinator.FindCoordinatorResponse()
    if message.coordinator_keys:
        answer = yield
    text = why if kind == _SHARE_KEY else ""
    answer.coordinators.extend(
        find_coordinator.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text
        )
        for key in denied
    )
    return answer


def _may(check: Check, operation: Operation, resource: Any) -> bool:
    """Whether a resource's settings may be seen or changed."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.TOPIC:
        return check.topic(operation, name)
    if kind == ConfigResourceType.GROUP:
        return check.group(operation, name)
    # The handler answers that there is no such type.
    return kind not in tuple(ConfigResourceType) or check.cluster(operation)


def _is_invalid(context: Context, resource: Any) -> bool:
    """Whether a change is refused with or without the right."""
    name = resource.resource_name
    is_ours = name == "" or is_our_node(context, name)
    is_elsewhere = resource.resource_type == ConfigResourceType.BROKER and not is_ours
    return is_elsewhere or complaint_about(resource.configs) is not None


def _is_invalid_replacement(context: Context, resource: Any) -> bool:
    """The same for a change of all settings; loggers have none for it."""
    is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER
    return is_logger or _is_invalid(context, resource)


def _on_resources(
    operation: Operation,
    answers: str,
    result: Any,
    empty: Any,
    is_invalid: Callable[[Context, Any], bool] = lambda context, resource: False,
    once: Callable[[Any], Any] | None = None,
) -> Guard:
    """A right on each resource whose settings a request names.

    A change that `is_invalid` goes to the handler whatever the rights are: it is refused before the
    resource is looked for. So does a resource that stands in the request twice, if `once` names it.
    """

    def refuse(resource: Any) -> Any:
        code, why = _DENIED.get(resource.resource_type, (CLUSTER_DENIED, CLUSTER_MESSAGE))
        return result(
            error_code=code,
            error_message=why,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return on_items(
        "resources",
        lambda check, resource: (
            is_invalid(check.context, resource) or _may(check, operation, resource)
        ),
        answers,
        refuse,
        empty,
        once=once,
    )


describe_configs_guard = _on_resources(
    Operation.DESCRIBE_CONFIGS,
    "results",
    describe_configs.DescribeConfigsResult,
    describe_configs.DescribeConfigsResponse,
)
alter_configs_guard = _on_resources(
    Operation.ALTER_CONFIGS,
    "responses",
    alter_configs.AlterConfigsResourceResponse,
    alter_configs.AlterConfigsResponse,
    _is_invalid_replacement,
)
incremental_alter_configs_guard = _on_resources(
    Operation.ALTER_CONFIGS,
    "responses",
    alter_configs.AlterConfigsResourceResponse,
    incremental_alter_configs.IncrementalAlterConfigsResponse,
    _is_invalid,
    once=lambda resource: (resource.resource_type, resource.resource_name),
)
