"""Routing, retries and what is remembered, in the core alone: no socket, no loop, no waiting."""

from typing import Any

import pytest

from client.blocking import run
from client.core.cluster import ASK_AGAIN_S, UNKNOWN_NAME_S, Cluster, CoordinatorType, Role
from client.core.identity import ProducerIdentity
from client.core.offsets import LATEST, commit_offsets, list_offsets
from client.errors import AddressUnusable, BrokerRefused, BrokerUnreachable, NameUnknown
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.api.init_producer_id import InitProducerIdResponse
from protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.api.metadata import MetadataRequest, MetadataResponse
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionError
from tests.unit.client.core.scripted import metadata, scripted

TP = TopicPartition("t", 0)


def offset_answer(offset: int, code: int = 0) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def latest(cluster: Cluster) -> int:
    found = run(list_offsets(cluster, {TP: LATEST}))[TP]
    assert found is not None
    return found.offset


def test_a_question_goes_to_the_leader_and_metadata_is_asked_once() -> None:
    def answer(port: int, request: Any) -> Any:
        return metadata({0: 2}) if isinstance(request, MetadataRequest) else offset_answer(7)

    cluster, pool = scripted(answer)
    assert [latest(cluster), latest(cluster)] == [7, 7]
    assert pool.seen == [(1, "METADATA"), (2, "LIST_OFFSETS"), (2, "LIST_OFFSETS")]
    assert pool.seconds == 0


def test_a_leader_that_moved_is_found_after_a_pause() -> None:
    leaders = iter([2, 2, 3])

    def answer(port: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({0: next(leaders)})
        return offset_answer(7, 0 if port == 3 else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster, pool = scripted(answer)
    assert latest(cluster) == 7
    assert [port for port, name in pool.seen if name == "LIST_OFFSETS"] == [2, 2, 3]
    assert 0 < pool.seconds < 1


def test_a_lost_connection_is_opened_again_elsewhere() -> None:
    def answer(port: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({0: 3 if 2 in pool.closed_ports else 2})
        if port == 2:
            pool.closed_ports.add(2)
            return BrokerUnreachable("h:2: the connection broke")
        return offset_answer(7)

    cluster, pool = scripted(answer)
    assert latest(cluster) == 7
    assert [port for port, _ in pool.opened] == [1, 2, 3]


def test_a_passing_error_is_an_error_when_time_is_up() -> None:
    def answer(port: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({0: 2})
        return offset_answer(-1, ErrorCode.OFFSET_NOT_AVAILABLE)

    cluster, pool = scripted(answer, timeout_ms=3000)
    with pytest.raises(BrokerRefused, match="looking up offsets of t-0: OFFSET_NOT_AVAILABLE"):
        latest(cluster)
    assert 3 <= pool.seconds < 4.2


@pytest.mark.parametrize("partition", [0, 5], ids=["topic", "partition"])
def test_what_current_metadata_denies_is_final(partition: int) -> None:
    """Listing the offsets of a partition that does not exist once took a minute."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    there = metadata({0: 1}) if partition else metadata({}, error_code=unknown)
    cluster, pool = scripted(lambda *_: there)
    with pytest.raises(BrokerRefused, match=r"UNKNOWN_TOPIC_OR_PARTITION.*create the topic"):
        run(list_offsets(cluster, {TopicPartition("t", partition): LATEST}))
    assert pool.seconds == 0


def test_a_client_that_creates_topics_waits_for_them() -> None:
    unknown = metadata({}, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answers = iter([unknown, unknown, metadata({0: 1})])
    cluster, pool = scripted(lambda *_: next(answers), create_topics=True)
    assert run(cluster.leader(TP)) == 1
    assert pool.seconds > 0


def test_partitions_that_were_added_are_found_at_once() -> None:
    answers = iter([metadata({0: 1}), metadata({0: 1, 1: 2})])
    cluster, pool = scripted(lambda *_: next(answers))
    assert run(cluster.leader(TP)) == 1
    assert run(cluster.leader(TopicPartition("t", 1))) == 2
    assert pool.seconds == 0


@pytest.mark.parametrize("partition", [0, 5], ids=["topic", "partition"])
def test_what_is_not_there_is_asked_for_at_intervals(partition: int) -> None:
    """Each send to a partition that does not exist was a request for metadata."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    there = metadata({0: 1}) if partition else metadata({}, error_code=unknown)
    cluster, pool = scripted(lambda *_: there)
    for _ in range(5):
        with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            run(cluster.leader(TopicPartition("t", partition)))
    # The first time at once, and each time from a new answer: it may be there by now.
    assert pool.seconds == pytest.approx(4 * ASK_AGAIN_S)
    assert len(pool.seen) == (6 if partition else 5)
    pool.answer = lambda *_: metadata({0: 1, 5: 1})
    assert run(cluster.leader(TopicPartition("t", partition))) == 1
    assert pool.seconds == pytest.approx(5 * ASK_AGAIN_S)
    cluster.forget_topic("t")
    assert run(cluster.leader(TopicPartition("t", partition))) == 1
    assert pool.seconds == pytest.approx(5 * ASK_AGAIN_S), "a topic that is there waits for nothing"


def test_a_denied_topic_is_an_error_and_a_missing_one_is_left_out() -> None:
    answers = iter(
        [
            metadata({}, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            metadata({}, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ]
    )
    cluster, _ = scripted(lambda *_: next(answers))
    assert run(cluster.find_topics(["t"])) == {}
    with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        run(cluster.find_topics(["t"]))


def test_metadata_grows_old() -> None:
    cluster, pool = scripted(lambda *_: metadata({0: 1}), metadata_max_age_ms=5000)
    for _ in range(3):
        run(cluster.topic("t"))
    assert len(pool.seen) == 1
    run(pool.sleep(5))
    run(cluster.topic("t"))
    assert len(pool.seen) == 2


def test_every_address_is_tried_and_all_failures_are_reported() -> None:
    cluster, pool = scripted(lambda *_: metadata({0: 1}))
    run(cluster.refresh(()))
    run(cluster.close())
    pool.closed_ports = {1, 2, 3}
    with pytest.raises(BrokerUnreachable, match="h:1; cannot connect to h:2; cannot"):
        run(cluster.any_connection())
    pool.closed_ports = {1, 2}
    assert run(cluster.any_connection()).address == "h:3"


def without_first(leader: int) -> MetadataResponse:
    """Brokers 2 and 3, so that no broker advertises the address of the bootstrap."""
    response = metadata({0: leader})
    response.brokers = response.brokers[1:]
    return response


def test_an_advertised_name_that_stays_unknown_here_is_an_error_soon() -> None:
    def answer(port: int, request: Any) -> Any:
        return without_first(2) if isinstance(request, MetadataRequest) else offset_answer(7)

    cluster, pool = scripted(answer)
    pool.unnamed_ports = {2, 3}
    with pytest.raises(AddressUnusable, match=r"broker 2 the address h:2.*advertised\.listeners"):
        latest(cluster)
    assert UNKNOWN_NAME_S <= pool.seconds < UNKNOWN_NAME_S + 2
    # The cluster is asked again, by those who try later, where its brokers are by then.
    pool.seen.clear()
    pool.unnamed_ports = set()
    assert latest(cluster) == 7
    assert pool.seen == [(1, "METADATA"), (2, "LIST_OFFSETS")]


def test_an_advertised_name_may_be_known_some_seconds_later() -> None:
    """The name of a new broker may be known later than that of its service."""

    def answer(port: int, request: Any) -> Any:
        return without_first(2) if isinstance(request, MetadataRequest) else offset_answer(7)

    cluster, pool = scripted(answer)
    pool.unnamed_ports = {2, 3}

    async def sleep(seconds: float) -> None:
        pool.seconds += seconds
        if pool.seconds > UNKNOWN_NAME_S - 2:
            pool.unnamed_ports = set()

    pool.sleep = sleep  # type: ignore[method-assign]
    assert latest(cluster) == 7


def test_a_broker_whose_name_is_unknown_may_return_if_another_is_known() -> None:
    """A cluster in containers: the name of one that is restarted is unknown meanwhile."""

    def answer(port: int, request: Any) -> Any:
        return without_first(2) if isinstance(request, MetadataRequest) else offset_answer(7)

    for others in ({3}, set[int]()):  # Whether broker 3 is down, or serves.
        cluster, pool = scripted(answer)
        pool.unnamed_ports, pool.closed_ports = {2}, others
        with pytest.raises(NameUnknown, match=r"broker 2 the address h:2.*advertised\.listeners"):
            latest(cluster)
        assert pool.seconds > 2 * UNKNOWN_NAME_S


def test_a_name_that_goes_unknown_later_may_come_back() -> None:
    """Name servers fail too: a client that has reached brokers by their addresses tries again."""
    leaders = iter([2, 3, 3, 3])

    def answer(port: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({0: next(leaders, 3)})
        return offset_answer(7)

    cluster, pool = scripted(answer)
    assert latest(cluster) == 7
    pool.unnamed_ports = {3}
    cluster.forget_topic("t")
    with pytest.raises(NameUnknown):
        latest(cluster)
    assert pool.seconds > 10
    pool.unnamed_ports = set()
    assert latest(cluster) == 7


def test_an_advertised_address_that_is_not_reached_is_noted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(port: int, request: Any) -> Any:
        return metadata({0: 2}) if isinstance(request, MetadataRequest) else offset_answer(7)

    cluster, pool = scripted(answer)
    pool.closed_ports = {2}
    with pytest.raises(BrokerUnreachable):
        latest(cluster)
    assert pool.seconds > 10
    (record,) = caplog.records
    assert "broker 2 is not reached by the address that it advertises" in record.getMessage()


def test_a_connection_that_waits_for_a_join_serves_no_other_request() -> None:
    cluster, pool = scripted(lambda *_: metadata({0: 1}))
    run(cluster.refresh(()))
    run(cluster.close())
    run(cluster.connection(2, Role.JOIN))
    assert run(cluster.any_connection()).address == "h:1"
    assert pool.opened[1:] == [(2, Role.JOIN), (1, Role.MAIN)]


def test_a_coordinator_is_remembered_until_it_proves_wrong() -> None:
    found = iter([2, 3])

    def answer(port: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=(node := next(found)), host="h", port=node)
        assert isinstance(request, OffsetCommitRequest)
        commits.append(port)
        code = 0 if port == 3 or len(commits) == 1 else ErrorCode.NOT_COORDINATOR
        part = PartitionError(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])

    commits: list[int] = []
    cluster, pool = scripted(answer)
    for _ in range(2):
        run(commit_offsets(cluster, GroupMetadata(group_id="g"), {TP: OffsetAndMetadata(5)}))
    assert commits == [2, 2, 3]
    assert [name for _, name in pool.seen].count("FIND_COORDINATOR") == 2


@pytest.mark.parametrize(
    ("code", "attempts"),
    [(ErrorCode.CONCURRENT_TRANSACTIONS, 3), (ErrorCode.PRODUCER_FENCED, 1)],
)
def test_an_identity_waits_for_a_transaction_that_ends_but_not_when_it_is_fenced(
    code: ErrorCode, attempts: int
) -> None:
    codes = iter([code, code, ErrorCode.NONE])

    def answer(port: int, request: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=2, host="h", port=2)
        return InitProducerIdResponse(error_code=next(codes), producer_id=9, producer_epoch=1)

    cluster, pool = scripted(answer)
    identity = ProducerIdentity(cluster, transactional_id="x", transaction_timeout_ms=1000)
    if attempts == 1:
        with pytest.raises(BrokerRefused, match="PRODUCER_FENCED"):
            run(identity.acquire())
        assert not identity.is_known
    else:
        run(identity.acquire())
        assert (identity.producer_id, identity.producer_epoch) == (9, 1)
    assert [name for _, name in pool.seen].count("INIT_PRODUCER_ID") == attempts


def test_coordinators_of_groups_and_transactions_are_kept_apart() -> None:
    nodes = {0: 2, 1: 3}

    def answer(port: int, request: Any) -> Any:
        node = nodes[request.key_type]
        return FindCoordinatorResponse(node_id=node, host="h", port=node)

    cluster, _ = scripted(answer)
    assert run(cluster.coordinator(CoordinatorType.GROUP, "x")) == 2
    assert run(cluster.coordinator(CoordinatorType.TRANSACTION, "x")) == 3


def test_a_list_offsets_request_names_each_partition_once_though_one_answer_failed() -> None:
    """What was answered is not asked again."""
    asked: list[list[int]] = []

    def answer(port: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata({0: 1, 1: 2})
        assert isinstance(request, ListOffsetsRequest)
        numbers = [part.partition_index for part in request.topics[0].partitions]
        asked.append(numbers)
        failed = port == 2 and len(asked) == 2
        code = ErrorCode.LEADER_NOT_AVAILABLE if failed else 0
        parts = [
            ListOffsetsPartitionResponse(partition_index=number, error_code=code, offset=number)
            for number in numbers
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)])

    cluster, _ = scripted(answer)
    wanted = {TopicPartition("t", number): LATEST for number in (0, 1)}
    found = run(list_offsets(cluster, wanted))
    assert {tp.partition: hit.offset for tp, hit in found.items() if hit} == {0: 0, 1: 1}
    assert asked == [[0], [1], [1]]


def test_run_refuses_a_coroutine_that_waits_for_a_loop() -> None:
    async def waits() -> None:
        import asyncio

        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="waits for an event loop"):
        run(waits())
