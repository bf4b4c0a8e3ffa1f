"""Guards of the APIs about the cluster, its settings and its coordinators.

Source: Kafka `KafkaApis`, `ControllerApis`, `ConfigAdminManager`.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.config_resources import ResourceType as ConfigResourceType
from broker.requests.config_resources import complaint_about, is_our_node
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import (
    CLUSTER_DENIED,
    CLUSTER_MESSAGE,
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    TRANSACTIONAL_ID_DENIED,
    Guard,
    on_cluster,
    parted,
    repeated,
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
    update_features,
)

_MANY_KEYS_SINCE = 4
_LOG_DIRS_ERROR_SINCE = 3
_ELECT_ERROR_SINCE = 1
_WHY: Final[Mapping[int, str]] = {
    GROUP_DENIED: GROUP_MESSAGE,
    TRANSACTIONAL_ID_DENIED: "Transactional Id authorization failed.",
    CLUSTER_DENIED: CLUSTER_MESSAGE,
}
_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2

describe_quorum_guard = on_cluster(
    Operation.DESCRIBE,
    lambda message, request: describe_quorum.DescribeQuorumResponse(
        error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE
    ),
)
update_features_guard = on_cluster(
    Operation.ALTER,
    lambda message, request: update_features.UpdateFeaturesResponse(
        error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE
    ),
)
alter_partition_reassignments_guard = on_cluster(
    Operation.ALTER,
    lambda message, request: alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_DENIED,
        error_message=CLUSTER_MESSAGE,
        responses=[
            alter_partition_reassignments.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    alter_partition_reassignments.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=CLUSTER_DENIED,
                        error_message=CLUSTER_MESSAGE,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    ),
)
list_partition_reassignments_guard = on_cluster(
    Operation.DESCRIBE,
    lambda message, request: list_partition_reassignments.ListPartitionReassignmentsResponse(
        error_code=CLUSTER_DENIED,
        error_message=CLUSTER_MESSAGE,
        topics=[
            list_partition_reassignments.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    list_partition_reassignments.OngoingPartitionReassignment(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ],
    ),
)
list_config_resources_guard = on_cluster(
    Operation.DESCRIBE_CONFIGS,
    lambda message, request: list_config_resources.ListConfigResourcesResponse(
        error_code=CLUSTER_DENIED
    ),
)
describe_client_quotas_guard = on_cluster(
    Operation.DESCRIBE_CONFIGS,
    lambda message, request: describe_client_quotas.DescribeClientQuotasResponse(
        error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, entries=None
    ),
)
alter_client_quotas_guard = on_cluster(
    Operation.ALTER_CONFIGS,
    lambda message, request: alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.AlterClientQuotasResponseEntryData(
                error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, entity=entry.entity
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
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=CLUSTER_DENIED
                    )
                    for index in topic.partitions
                ],
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
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(
                        partition_id=index, error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE
                    )
                    for index in topic.partitions
                ],
            )
            for topic in message.topic_partitions or ()
        ],
    ),
)


def describe_cluster_guard(
    context: Context,
    request: RequestContext,
    message: describe_cluster.DescribeClusterRequest,
    handler: Handler,
) -> Reply:
    """Everyone sees the brokers; the operations need DESCRIBE on the cluster."""

    def with_bits(answer: describe_cluster.DescribeClusterResponse) -> object:
        if message.include_cluster_authorized_operations and not answer.error_code:
            answer.cluster_authorized_operations = cluster_bits(Check(context, request))
        return answer

    return then(handler(context, request, message), with_bits)


def find_coordinator_guard(
    context: Context,
    request: RequestContext,
    message: find_coordinator.FindCoordinatorRequest,
    handler: Handler,
) -> Reply:
    """DESCRIBE on each key, which is a group or a transactional id."""
    check = Check(context, request)

    def refusal(key: str) -> int:
        kind = message.key_type
        if kind == _GROUP_KEY and not check.group(Operation.DESCRIBE, key):
            return GROUP_DENIED
        if kind == _TRANSACTION_KEY and not check.transactional_id(Operation.DESCRIBE, key):
            return TRANSACTIONAL_ID_DENIED
        if kind == _SHARE_KEY and not check.cluster(Operation.CLUSTER_ACTION):
            return CLUSTER_DENIED
        return 0

    if request.api_version < _MANY_KEYS_SINCE:
        code = refusal(message.key)
        if not code:
            return handler(context, request, message)
        return find_coordinator.FindCoordinatorResponse(
            error_code=code, error_message=_WHY[code], node_id=-1, host="", port=-1
        )
    refusals = [(key, code) for key in message.coordinator_keys if (code := refusal(key))]
    if not refusals:
        return handler(context, request, message)

    def with_refusals(answer: find_coordinator.FindCoordinatorResponse) -> object:
        answer.coordinators.extend(
            find_coordinator.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=""
            )
            for key, code in refusals
        )
        return answer

    denied = {key for key, _ in refusals}
    message.coordinator_keys = [key for key in message.coordinator_keys if key not in denied]
    if not message.coordinator_keys:
        return with_refusals(find_coordinator.FindCoordinatorResponse())
    return then(handler(context, request, message), with_refusals)


def _refusal(check: Check, operation: Operation, resource: Any) -> tuple[int, str] | None:
    """Why a resource's settings may not be seen or changed, or None."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ConfigResourceType.TOPIC:
        return None if check.topic(operation, name) else (TOPIC_DENIED, TOPIC_MESSAGE)
    if kind == ConfigResourceType.GROUP:
        return None if check.group(operation, name) else (GROUP_DENIED, GROUP_MESSAGE)
    if kind in tuple(ConfigResourceType):
        return None if check.cluster(operation) else (CLUSTER_DENIED, CLUSTER_MESSAGE)
    return None  # the handler answers that there is no such type


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
    is_invalid: Callable[[Context, Any], bool] | None = None,
    refuses_repeated: bool = False,
) -> Guard:
    """A right on each resource whose settings a request names.

    A change that `is_invalid` goes to the handler whatever the rights are: it is refused before the
    resource is looked for. So does a resource that stands in the request twice, if the handler
    `refuses_repeated` ones.
    """

    def guard(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        check = Check(context, request)
        refusals: list[Any] = []
        twice: Container[Any] = ()
        if refuses_repeated:
            twice = repeated((r.resource_type, r.resource_name) for r in message.resources)

        def is_allowed(resource: Any) -> bool:
            if is_invalid is not None and (
                (resource.resource_type, resource.resource_name) in twice
                or is_invalid(context, resource)
            ):
                return True
            refusal = _refusal(check, operation, resource)
            if refusal is None:
                return True
            refusals.append(
                result(
                    error_code=refusal[0],
                    error_message=refusal[1],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
            return False

        allowed, _ = parted(message.resources, is_allowed)
        if not refusals:
            return handler(context, request, message)

        def with_refusals(answer: Any) -> Any:
            getattr(answer, answers).extend(refusals)
            return answer

        if not allowed:
            return with_refusals(empty())
        message.resources = allowed
        return then(handler(context, request, message), with_refusals)

    return guard


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
    refuses_repeated=True,
)
