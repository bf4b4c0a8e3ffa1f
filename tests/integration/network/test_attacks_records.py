"""Record batches that lie: the right error, and nothing of them in any log.

Every lie below has a correct checksum unless the checksum is the lie: what is tested is what the
broker itself looks at. `tests.support.siege` asserts that no other client and no log notices.
"""

import gzip
import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_message_set
from protocol.records.checksums import crc32c
from protocol.records.compression import compress
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from storage.append.opening import AT_ONCE_BYTES, Opening
from tests.support.broker import RawClient, batch
from tests.support.requests import create_topic, fetch, produce
from tests.support.siege import TOPIC, siege

CRC_AT, CRC_FROM, RECORDS_FROM = 17, 21, 61
BOMB_BYTES = 256 << 20
"""Four times what one batch may decompress to."""

INVALID = ErrorCode.INVALID_RECORD
CORRUPT = ErrorCode.CORRUPT_MESSAGE
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
UNSUPPORTED = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def sealed(data: bytearray) -> bytes:
    """With the checksum that the rest has."""
    struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[CRC_FROM:]))
    return bytes(data)


def lie(position: int, layout: str, value: int, honest: bytes | None = None) -> bytes:
    """A batch of three records with one field of its header changed."""
    data = bytearray(batch("a", "b", "c") if honest is None else honest)
    struct.pack_into(">" + layout, data, position, value)
    return sealed(data)


def with_records(records: bytes, count: int = 1, attributes: int = 0) -> bytes:
    """A batch around these bytes."""
    data = bytearray(batch("a")[:RECORDS_FROM]) + records
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return sealed(data)


IDENTITY = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0}

LIES: dict[str, tuple[bytes, set[ErrorCode]]] = {
    "checksum": (batch("a")[:-1] + b"?", {CORRUPT}),
    "magic 3": (lie(16, "b", 3), {CORRUPT, INVALID}),
    "magic -1": (lie(16, "b", -1), {CORRUPT, INVALID}),
    "length 0": (lie(8, "i", 0), {CORRUPT}),
    "length negative": (lie(8, "i", -1), {CORRUPT}),
    "length huge": (lie(8, "i", 2**31 - 1), {CORRUPT, INVALID}),
    "one byte short": (batch("a")[:-1], {CORRUPT, INVALID}),
    "header alone": (batch("a")[:RECORDS_FROM], {CORRUPT, INVALID}),
    "codec 5": (lie(21, "h", 5), {UNSUPPORTED}),
    "codec 7": (lie(21, "h", 7), {UNSUPPORTED}),
    "codec gzip, data plain": (lie(21, "h", 1), {CORRUPT}),
    "codec zstd, data plain": (lie(21, "h", 4), {CORRUPT}),
    "control bit": (lie(21, "h", 0x20), {INVALID}),
    "transactional without producer": (
        lie(21, "h", 0x10),
        {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
    ),
    "transactional without transactional id": (
        batch("a", is_transactional=True, **IDENTITY),
        {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
    ),
    "base offset": (lie(0, "q", 5), {INVALID}),
    "base offset negative": (lie(0, "q", -5), {INVALID}),
    "last offset delta too small": (lie(23, "i", 1), {INVALID}),
    "last offset delta huge": (lie(23, "i", 2**31 - 1), {INVALID}),
    "last offset delta negative": (lie(23, "i", -1), {INVALID}),
    "count 0": (lie(57, "i", 0), {INVALID}),
    "count negative": (lie(57, "i", -1), {INVALID}),
    "count huge": (lie(57, "i", 2**31 - 1), {INVALID}),
    "count and delta huge": (
        lie(57, "i", 2**31 - 1, lie(23, "i", 2**31 - 2)),
        {INVALID, CORRUPT},
    ),
    "producer without sequence": (
        batch("a", producer_id=77, producer_epoch=0, base_sequence=-1),
        {INVALID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER},
    ),
    "producer with negative epoch": (
        batch("a", producer_id=77, producer_epoch=-7, base_sequence=0),
        {INVALID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER},
    ),
    "two batches": (batch("a") + batch("b"), {INVALID}),
    "no record": (with_records(b"", count=0), {INVALID}),
    "record length 0": (with_records(b"\0"), {INVALID, CORRUPT}),
    "record length negative": (with_records(b"\x01"), {INVALID, CORRUPT}),
    "record length huge": (with_records(b"\xfe\xff\xff\xff\x0f" + bytes(20)), {INVALID, CORRUPT}),
    "record length of eleven bytes": (with_records(b"\xff" * 11), {INVALID, CORRUPT}),
    "key longer than the record": (
        with_records(b"\x0e\0\0\0\x7e\0\0\0"),
        {INVALID, CORRUPT},
    ),
    "headers negative": (with_records(b"\x0e\0\0\0\x01\x01\x01\0"), {INVALID, CORRUPT}),
    "headers huge": (
        with_records(b"\x16\0\0\0\x01\x01\xfe\xff\xff\xff\x0f\0"),
        {INVALID, CORRUPT},
    ),
    "bytes after the records": (
        with_records(b"\x0c\0\0\0\x01\x01\0" + bytes(9)),
        {INVALID, CORRUPT},
    ),
    "compressed batch inside a batch": (
        with_records(gzip.compress(batch("x", codec=Codec.GZIP)), attributes=1),
        {INVALID, CORRUPT},
    ),
    "batch compressed twice": (
        with_records(gzip.compress(gzip.compress(batch("x")[RECORDS_FROM:])), attributes=1),
        {INVALID, CORRUPT},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
async def test_lying_batch_is_refused(tmp_path: Path, name: str) -> None:
    data, codes = LIES[name]
    async with siege(tmp_path) as attack:
        client = await attack.broker.client()
        answer = await produce(client, TOPIC, data)
        assert ErrorCode(answer.error_code) in codes
        assert answer.base_offset == -1
        await client.close()


async def test_every_flipped_bit_of_a_batch_is_noticed(tmp_path: Path) -> None:
    """All of it but base offset and leader epoch, which are the broker's, is under the checksum."""
    honest = batch("value", timestamp=5)
    async with siege(tmp_path) as attack:
        client = await attack.broker.client()
        for bit in range(8 * len(honest)):
            data = bytearray(honest)
            data[bit // 8] ^= 1 << bit % 8
            if not 12 <= bit // 8 < 16:
                answer = await produce(client, TOPIC, bytes(data))
                assert answer.error_code != ErrorCode.NONE, f"bit {bit}"
        await client.close()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_every_flipped_bit_of_an_old_message_is_noticed(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    """Offsets of old messages are not under their checksum. A message whose size is beyond the end
    counts as cut off and is dropped, as Kafka does: success, with no offset.
    """
    honest = build_message_set([Record(0, 5, None, b"value", ())], magic, codec)
    async with siege(tmp_path) as attack:
        client = await attack.broker.client()
        for bit in range(64, 8 * len(honest)):
            data = bytearray(honest)
            data[bit // 8] ^= 1 << bit % 8
            answer = await produce(client, TOPIC, bytes(data), version=2)
            assert answer.base_offset == -1, f"bit {bit}"
            assert answer.error_code != ErrorCode.NONE or bit < 96, f"bit {bit}"
        await client.close()


async def test_random_records_under_right_checksums_are_refused(tmp_path: Path) -> None:
    """What the checks of the structure alone let through would be found by readers."""
    rng = random.Random(3)
    async with siege(tmp_path) as attack:
        client = await attack.broker.client()
        for number in range(1500):
            records = bytearray(batch(*"abcdef")[RECORDS_FROM:])
            for _ in range(1 + number % 3):
                records[rng.randrange(len(records))] = rng.choice((0, 1, 127, 128, 255))
            data = with_records(bytes(records), count=7)
            assert (await produce(client, TOPIC, data)).error_code in (INVALID, CORRUPT)
        await client.close()


def zeros(codec: Codec) -> bytes:
    """`BOMB_BYTES` of zeros, as small as the codec makes them."""
    if codec is Codec.SNAPPY:
        # Blocks one after the other in the framing that producers use.
        block = compress(Codec.SNAPPY, bytes(1 << 20))
        body = block[16:] if block[:1] == b"\x82" else struct.pack(">i", len(block)) + block
        magic = block[:16] if block[:1] == b"\x82" else b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
        return magic + body * (BOMB_BYTES >> 20)
    if codec is Codec.GZIP:
        # Members one after the other: as cheap to make as the first one.
        return gzip.compress(bytes(1 << 20)) * (BOMB_BYTES >> 20)
    return bytes(compress(codec, bytes(BOMB_BYTES)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_bomb_is_defused_before_it_costs_anything(
    tmp_path: Path, codec: Codec, peak_rss: Callable[[], int]
) -> None:
    """A few megabytes at most that would become four times what a batch may hold."""
    bomb = with_records(zeros(codec), attributes=int(codec))
    async with siege(tmp_path, message_max_bytes=str(2 * len(bomb))) as attack:
        client = await attack.broker.client()
        before = peak_rss()
        started = time.perf_counter()
        for _ in range(3):
            answer = await produce(client, TOPIC, bomb)
            assert ErrorCode(answer.error_code) in (TOO_LARGE, INVALID, CORRUPT)
        assert time.perf_counter() - started < 10
        assert peak_rss() - before < (192 << 20) + 8 * len(bomb)
        await client.close()


@pytest.fixture
def peak_rss() -> Callable[[], int]:
    """The highest resident memory of this process, in bytes, since the fixture was set up."""
    Path("/proc/self/clear_refs").write_text("5")

    def peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    return peak


async def test_bombs_within_the_limit_do_not_add_up_for_old_consumers(tmp_path: Path) -> None:
    """A consumer of magic 1 makes the broker open what it stores closed: one batch at a time."""
    async with siege(tmp_path) as attack:
        client: RawClient = await attack.broker.client()
        await create_topic(client, "closed")
        value = bytes(30 << 20)
        for _ in range(4):
            answer = await produce(client, "closed", batch(value, codec=Codec.GZIP))
            assert answer.error_code == 0
        offset, answers = 0, []
        while offset < 4:
            data = await fetch(client, "closed", offset, version=2, partition_max_bytes=1 << 20)
            offset = 1 + max(entry.last_offset for entry in scan_entries(data.records or b""))
            answers.append(offset)
        assert answers == [1, 2, 3, 4], "one batch of thirty megabytes is enough at a time"
        await client.close()


async def test_second_large_batch_of_a_request_is_opened_in_the_side_thread_too(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_topic(client, "t", 4)
    opened: list[tuple[bool, int]] = []
    open_batch = Opening.open

    def noted(self: Opening, *arguments: Any) -> Any:
        clear = open_batch(self, *arguments)
        opened.append((threading.current_thread() is threading.main_thread(), len(clear)))
        return clear

    monkeypatch.setattr(Opening, "open", noted)
    large = batch(bytes(2 * AT_ONCE_BYTES), codec=Codec.ZSTD)
    data = [PartitionProduceData(index=index, records=large) for index in range(4)]
    topic = TopicProduceData(name="t", partition_data=data)
    answer = await client.request(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic]), 9)
    (answered,) = answer.responses
    assert [part.error_code for part in answered.partition_responses] == [0] * 4
    assert [on_loop for on_loop, _ in opened] == [False] * 4
