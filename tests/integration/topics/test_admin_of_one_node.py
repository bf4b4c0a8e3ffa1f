"""Requests of admin tools whose answer on one open node is fixed: ACLs, moves, quorum."""

import pytest

from broker.requests.features import FINALIZED
from protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.api.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_quorum import DescribeQuorumRequest, TopicData
from protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from protocol.api.elect_leaders import ElectLeadersRequest
from protocol.api.list_config_resources import ListConfigResourcesRequest
from protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes, PartitionIndex, TopicIndexes
from tests.support.broker import RawClient, RunningBroker
from tests.support.requests import create_topic


@pytest.mark.parametrize("version", range(4))
async def test_access_rules_are_disabled_for_each_who_asks(client: RawClient, version: int) -> None:
    described = await client.request(DescribeAclsRequest(), version)
    created = await client.request(
        CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version
    )
    deleted = await client.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert described.resources == []
    assert [r.error_code for r in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert [r.error_code for r in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


async def test_users_are_set_described_and_removed(client: RawClient) -> None:
    everybody = await client.request(DescribeUserScramCredentialsRequest(users=None), 0)
    assert (everybody.error_code, everybody.results) == (ErrorCode.NONE, [])
    ann, bob = (
        DescribeUserScramCredentialsRequest(users=[UserName(name=n)]) for n in ("ann", "bob")
    )
    named = await client.request(ann, 0)
    assert [r.error_code for r in named.results] == [ErrorCode.RESOURCE_NOT_FOUND]
    altered = await client.request(
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="ann", mechanism=1)],
            upsertions=[
                ScramCredentialUpsertion(
                    name="bob",
                    mechanism=1,
                    iterations=4096,
                    salt=b"salt",
                    salted_password=b"salted",
                ),
                ScramCredentialUpsertion(name="carol", mechanism=1, iterations=4096),
            ],
        ),
        0,
    )
    assert {r.user: r.error_code for r in altered.results} == {
        "ann": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.NONE,
        "carol": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    (found,) = (await client.request(bob, 0)).results
    infos = [(info.mechanism, info.iterations) for info in found.credential_infos]
    assert (found.error_code, infos) == (ErrorCode.NONE, [(1, 4096)])
    await client.request(
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="bob", mechanism=1)]
        ),
        0,
    )
    (gone,) = (await client.request(bob, 0)).results
    assert gone.error_code == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("version", range(3))
async def test_an_election_is_never_needed(client: RawClient, version: int) -> None:
    await create_topic(client, "t")
    named = await client.request(
        ElectLeadersRequest(
            topic_partitions=[
                TopicIndexes(topic="t", partitions=[0, 9]),
                TopicIndexes(topic="none", partitions=[0]),
            ]
        ),
        version,
    )
    codes = [p.error_code for r in named.replica_election_results for p in r.partition_result]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown]
    everything = await client.request(ElectLeadersRequest(topic_partitions=None), version)
    assert {result.topic for result in everything.replica_election_results} >= {"t"}
    assert not any(result.partition_result for result in everything.replica_election_results)


async def test_partitions_can_be_sent_only_to_where_they_are(
    broker: RunningBroker, client: RawClient
) -> None:
    await create_topic(client, "t")
    moves = [
        ReassignablePartition(partition_index=0, replicas=replicas)
        for replicas in ([1], [1, 2], None)
    ]
    response = await client.request(
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=moves)]),
        1,
    )
    assert [p.error_code for p in response.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    listed = await client.request(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])
    topics = [NamedIndexes(name="t", partitions=[0, 5])]
    for path, codes in (
        (broker.ready.data_dir, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ("/elsewhere", [ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.LOG_DIR_NOT_FOUND]),
    ):
        dirs = [AlterReplicaLogDir(path=path, topics=topics)]
        moved = await client.request(AlterReplicaLogDirsRequest(dirs=dirs), 2)
        assert [p.error_code for p in moved.results[0].partitions] == codes
    unknown = [NamedIndexes(name="unknown", partitions=[0])]
    dirs = [AlterReplicaLogDir(path=broker.ready.data_dir, topics=unknown)]
    moved = await client.request(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    (partition,) = moved.results[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_this_broker(
    broker: RunningBroker, client: RawClient, version: int
) -> None:
    response = await client.request(
        DescribeQuorumRequest(
            topics=[
                TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[PartitionIndex(partition_index=0)],
                ),
            ]
        ),
        version,
    )
    (metadata,) = response.topics[0].partitions
    assert (metadata.error_code, metadata.leader_id) == (ErrorCode.NONE, 1)
    assert [voter.replica_id for voter in metadata.current_voters] == [1]
    if version == 2:
        (node,) = response.nodes
        assert node.listeners[0].port == broker.port


@pytest.mark.parametrize("version", range(3))
async def test_a_feature_keeps_the_level_of_the_release(client: RawClient, version: int) -> None:
    async def outcome(*updates: FeatureUpdateKey) -> tuple[int, list[int]]:
        request = UpdateFeaturesRequest(feature_updates=list(updates))
        response = await client.request(request, version)
        return response.error_code, [result.error_code for result in response.results]

    def update(name: str, level: int, upgrade_type: int = 1) -> FeatureUpdateKey:
        return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)

    level = FINALIZED["metadata.version"]
    good = update("metadata.version", level)
    assert await outcome(good) == (ErrorCode.NONE, [ErrorCode.NONE] if version < 2 else [])
    # As in Kafka the first failure is that of all, in every version.
    refused: tuple[int, list[int]] = (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert await outcome(good, update("metadata.version", level - 1)) == refused
    assert await outcome(update("no.such.feature", 1), good) == refused
    if version > 0:
        for upgrade_type in (-1, 0, 4):
            assert await outcome(update("metadata.version", level, upgrade_type)) == refused


async def test_config_resources_are_listed_by_type(client: RawClient) -> None:
    await create_topic(client, "t")

    async def listed(version: int, *types: int) -> list[tuple[int, str]]:
        response = await client.request(
            ListConfigResourcesRequest(resource_types=list(types)), version
        )
        return [(r.resource_type, r.resource_name) for r in response.config_resources]

    assert (2, "t") in await listed(1, 2)
    assert await listed(1, 4, 8) == [(4, "1"), (8, "1")]
    assert {kind for kind, _ in await listed(1)} == {2, 4, 8}
    assert await listed(0) == []
    refused = await client.request(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
