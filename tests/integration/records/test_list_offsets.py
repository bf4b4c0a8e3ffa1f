"""ListOffsets: every version, every special timestamp, and what is not found."""

import pytest

from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.error_codes import ErrorCode
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import create_topic, list_offset, produce

TIMES = (100, 300, 200, 500, 400)


async def fill(client: RawClient) -> None:
    """Five records out of time order, one per batch."""
    await create_topic(client, "t")
    for time in TIMES:
        await produce(client, "t", batch(str(time), timestamp=time))


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(0, (100, 0)), (100, (100, 0)), (101, (300, 1)), (201, (300, 1)), (301, (500, 3)),
     (500, (500, 3)), (501, (-1, -1)), (2**62, (-1, -1))],
)  # fmt: skip
async def test_first_record_at_or_after(
    client: RawClient, version: int, timestamp: int, expected: tuple[int, int]
) -> None:
    await fill(client)
    answer = await list_offset(client, "t", timestamp, version=version)
    assert (answer.timestamp, answer.offset) == expected
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 12))
async def test_ends_of_the_log(client: RawClient, version: int) -> None:
    await fill(client)
    latest = await list_offset(client, "t", -1, version=version)
    earliest = await list_offset(client, "t", -2, version=version)
    assert (latest.offset, latest.timestamp) == (5, -1)
    assert (earliest.offset, earliest.timestamp) == (0, -1)
    if version >= 4:
        assert (latest.leader_epoch, earliest.leader_epoch) == (0, 0)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [(-3, 7, (500, 3)), (-4, 8, (-1, 0)), (-5, 9, (-1, -1)), (-6, 11, (-1, -1))],
)
@pytest.mark.parametrize("version", range(1, 12))
async def test_case_67_special_timestamps_from_their_versions_on(
    client: RawClient, timestamp: int, since: int, expected: tuple[int, int], version: int
) -> None:
    await fill(client)
    answer = await list_offset(client, "t", timestamp, version=version)
    if version < since:
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (answer.timestamp, answer.offset) == (-1, -1)
    else:
        assert answer.error_code == ErrorCode.NONE
        assert (answer.timestamp, answer.offset) == expected


@pytest.mark.parametrize("timestamp", [-7, -100, -(2**63)])
async def test_case_67_unknown_special_timestamps_are_refused(
    client: RawClient, timestamp: int
) -> None:
    await fill(client)
    answer = await list_offset(client, "t", timestamp, version=11)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_empty_log(client: RawClient) -> None:
    await create_topic(client, "t")
    for timestamp, offset in ((-1, 0), (-2, 0), (-3, -1), (0, -1)):
        answer = await list_offset(client, "t", timestamp, version=11)
        assert (answer.error_code, answer.offset) == (0, offset)


async def test_case_68_the_same_partition_twice_is_refused(client: RawClient) -> None:
    await fill(client)
    twice = [ListOffsetsPartition(partition_index=0, timestamp=t) for t in (-1, -2)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)]
    )
    response = await client.request(request, 5)
    codes = [answer.error_code for answer in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST], "answered once, as in Kafka"


async def test_unknown_partition(client: RawClient) -> None:
    answer = await list_offset(client, "missing", -1)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 74), (1, 0), (2, 75)])
async def test_case_71_leader_epochs_that_are_older_or_newer_are_refused(
    broker: RunningBroker, epoch: int, code: int
) -> None:
    client = await broker.client()
    await create_topic(client, "t")
    broker.broker.topics.led_log("t", 0).leader_epoch += 1
    await produce(client, "t", batch("1"))
    answer = await list_offset(client, "t", -1, version=5, current_leader_epoch=epoch)
    assert answer.error_code == code


class TestVersion0:
    """The list of segment starts, chosen by age."""

    @pytest.mark.parametrize(
        ("timestamp", "count", "offsets"),
        [(-1, 1, [5]), (-1, 10, [5, 0]), (-2, 10, [0]), (-1, 0, []), (2**62, 10, [5, 0]),
         (1, 10, [])],
    )  # fmt: skip
    async def test_offsets(
        self, client: RawClient, timestamp: int, count: int, offsets: list[int]
    ) -> None:
        await fill(client)
        answer = await list_offset(client, "t", timestamp, version=0, max_num_offsets=count)
        assert (answer.error_code, answer.old_style_offsets) == (0, offsets)

    async def test_empty_log_has_its_start(self, client: RawClient) -> None:
        await create_topic(client, "t")
        answer = await list_offset(client, "t", -1, version=0)
        assert answer.old_style_offsets == [0]

    async def test_case_70_version_0_knows_no_largest_timestamp(self, client: RawClient) -> None:
        await fill(client)
        answer = await list_offset(client, "t", -3, version=0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    async def test_case_70_a_consumer_sees_the_high_watermark_in_place_of_what_is_above(
        self, broker: RunningBroker
    ) -> None:
        client = await broker.client()
        one = batch("x")
        await create_topic(client, "t", segment_bytes=str(2 * len(one)))
        log = broker.broker.topics.led_log("t", 0)
        for number in range(20):
            log.append(memoryview(bytearray(one)), now_ms=number)
            if number == 16:
                log.flush()
        assert (log.high_watermark, log.log_end_offset) == (17, 20)
        answer = await list_offset(client, "t", -1, version=0, max_num_offsets=15)
        assert answer.old_style_offsets == [17, *range(16, -1, -2)]
        answer = await list_offset(client, "t", -1, version=0, max_num_offsets=2)
        assert answer.old_style_offsets == [17]
