"""Parts of objects against their own records: bounds, formats, transactions, what is gone."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

from pipeline.errors import BadOptions, CorruptData, StoreFailed
from pipeline.options.options import SourceOptions, parse_source_options
from pipeline.plan import objects
from pipeline.plan.objects import ObjectPart, object_tasks, read_object, store_at
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from storage.remote.engine import open_store
from storage.segment.remote.object import IndexFiles, encode_trailer

BASE = 1000
CLUSTER = "cluster"
RULES = DecodeRules(columns=("offset", "value"))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    store_at.cache_clear()
    yield f"file://{tmp_path}/bucket"
    store_at.cache_clear()


def put(url: str, batches: list[tuple[int, bytes]], *, index_every: int = 2) -> ObjectPart:
    """An object of batches, each with its last offset; every n-th is in the index."""
    log, index = b"", b""
    for number, (last, data) in enumerate(batches):
        if number % index_every == index_every - 1:
            index += (last - BASE).to_bytes(4, "big") + len(log).to_bytes(4, "big")
        log += data
    facts = {
        "offset_index_bytes": len(index), "time_index_bytes": 0, "txn_index_bytes": 0,
    }  # fmt: skip
    trailer = encode_trailer(IndexFiles(index, b"", b""), {"facts": facts}, log_crc=0)
    open_store(url, CLUSTER).put_new("o", log + trailer)
    end = batches[-1][0] + 1 if batches else BASE
    return ObjectPart(
        wanted=OffsetRange("t", 0, BASE, end), cluster_id=CLUSTER, key="o", base_offset=BASE,
        next_offset=end, log_bytes=len(log), object_bytes=len(log) + len(trailer),
    )  # fmt: skip


def plain(luck: random.Random, count: int) -> list[tuple[int, bytes]]:
    """Batches of all formats and some codecs, of one to seven records."""
    batches, offset = [], BASE
    for _ in range(count):
        rows = [
            Record(offset + n, n, b"k", b"v%d" % (offset + n), ())
            for n in range(luck.randint(1, 7))
        ]
        magic = luck.choice((0, 1, 2, 2, 2))
        codec = luck.choice((Codec.NONE, Codec.GZIP))
        data = (
            build_batch(rows, base_offset=offset, codec=codec)
            if magic == 2
            else build_message_set(rows, magic, codec)
        )
        offset += len(rows)
        batches.append((offset - 1, data))
    return batches


def read(url: str, part: ObjectPart, rules: DecodeRules = RULES) -> tuple[list[Any], OffsetRange]:
    """The rows of a part, and the rest that it left."""
    rows: list[Any] = []
    steps = read_object(url, part, rules)
    while True:
        try:
            rows += next(steps).to_pylist()
        except StopIteration as end:
            return rows, end.value


def rows_of(start: int, end: int) -> list[dict[str, Any]]:
    return [{"offset": n, "value": b"v%d" % n} for n in range(start, end)]


@pytest.mark.parametrize("chunk_bytes", [60, 500, 8 << 20])
def test_parts_have_the_records_of_their_offsets(
    url: str, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    """Any part of an object of batches in all formats, in chunks smaller than a batch, or one."""
    monkeypatch.setattr(objects, "READ_BYTES", chunk_bytes)
    luck = random.Random(11)
    whole = put(url, plain(luck, 40))
    assert read(url, whole)[0] == rows_of(BASE, whole.next_offset)
    for _ in range(40):
        start, end = sorted(luck.sample(range(BASE, whole.next_offset + 1), 2))
        part = whole.narrowed(OffsetRange("t", 0, start, end))
        rows, rest = read(url, part)
        assert rows == rows_of(start, end)
        assert rest.size == 0


def test_a_part_costs_the_indexes_and_no_more_of_the_log_than_it_needs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [
        (BASE + n, build_batch([Record(0, 0, b"k", b"v%d" % (BASE + n), ())], base_offset=BASE + n))
        for n in range(1000)
    ]
    whole = put(url, batches)
    store, asked = store_at(url, CLUSTER), []
    get = store.get

    def counted(key: str, start: int, end: int) -> bytes:
        asked.append(end - start)
        return get(key, start, end)

    monkeypatch.setattr(store, "get", counted)
    part = whole.narrowed(OffsetRange("t", 0, BASE + 500, BASE + 510))
    assert read(url, part)[0] == rows_of(BASE + 500, BASE + 510)
    size = len(batches[0][1])
    assert asked[0] == whole.object_bytes - whole.log_bytes
    assert 10 * size <= sum(asked[1:]) <= 15 * size
    asked.clear()
    read(url, whole)
    assert asked == [whole.log_bytes]


def test_chunks_are_asked_for_together_and_come_in_their_order(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that answers nothing until four are asked for, and the last one first."""
    monkeypatch.setattr(objects, "READ_BYTES", 100)
    whole = put(url, plain(random.Random(5), 12))
    chunks = -(-whole.log_bytes // 100)
    assert chunks > 8
    store = store_at(url, CLUSTER)
    get, together = store.get, Barrier(objects._AHEAD)

    def slow(key: str, start: int, end: int) -> bytes:
        if start < 100 * objects._AHEAD:
            together.wait(timeout=20)
            time.sleep(0.02 * (objects._AHEAD - start // 100))
        return get(key, start, end)

    monkeypatch.setattr(store, "get", slow)
    assert read(url, whole)[0] == rows_of(BASE, whole.next_offset)


def test_offsets_without_records_are_done_with(url: str) -> None:
    """Markers at a segment's end, and a segment that has none but them."""
    rows = [(BASE, build_batch([Record(0, 0, b"k", b"v%d" % BASE, ())], base_offset=BASE))]
    whole = put(url, rows)
    longer = replace(whole, next_offset=BASE + 5, wanted=OffsetRange("t", 0, BASE, BASE + 5))
    assert read(url, longer) == (rows_of(BASE, BASE + 1), OffsetRange("t", 0, BASE + 5, BASE + 5))
    empty = replace(
        whole, log_bytes=0, next_offset=BASE + 2, wanted=OffsetRange("t", 0, BASE, BASE + 2)
    )
    assert read(url, empty) == ([], OffsetRange("t", 0, BASE + 2, BASE + 2))


def test_aborted_transactions_are_left_out_in_every_chunk(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One begins before the object, one ends after it; a producer aborts, then commits."""
    monkeypatch.setattr(objects, "READ_BYTES", 60)

    def rows(producer: int) -> bytes:
        at = BASE + len(batches)
        record = Record(0, 0, b"k", b"v%d" % at, ())
        return build_batch(
            [record], base_offset=at, producer_id=producer, producer_epoch=0, base_sequence=0,
            is_transactional=producer >= 0,
        )  # fmt: skip

    def end(producer: int, *, commit: bool) -> bytes:
        return build_end_txn_marker(
            commit=commit, producer_id=producer, producer_epoch=0, timestamp_ms=0,
            base_offset=BASE + len(batches),
        )  # fmt: skip

    batches: list[bytes] = []
    steps = (
        (rows, 7), (end, 7, False), (rows, 7), (end, 7, True), (rows, -1), (rows, 8), (rows, 7),
    )  # fmt: skip
    for step, producer, *commit in steps:
        batches.append(step(producer, **({"commit": commit[0]} if commit else {})))
    whole = put(url, [(BASE + number, data) for number, data in enumerate(batches)])
    aborted = ((7, BASE - 3, BASE + 1), (8, BASE + 5, BASE + 90), (9, BASE - 9, BASE - 2))
    part = replace(whole, aborted=aborted).narrowed(whole.wanted)
    assert part.aborted == aborted[:2]
    committed = DecodeRules(columns=("offset",), read_committed=True)
    assert [row["offset"] - BASE for row in read(url, part, committed)[0]] == [2, 4, 6]
    assert [row["offset"] - BASE for row in read(url, whole)[0]] == [0, 2, 4, 5, 6]


def test_what_is_gone_is_left_to_the_caller_from_there_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "READ_BYTES", 200)
    whole = put(url, plain(random.Random(5), 40))
    steps = read_object(url, whole, RULES)
    rows = next(steps).to_pylist()
    open_store(url, CLUSTER).delete("o")
    while True:
        try:
            rows += next(steps).to_pylist()
        except StopIteration as end:
            rest = end.value
            break
    assert 0 < len(rows) < whole.wanted.size
    assert rows == rows_of(BASE, rest.start)
    assert rest.end == whole.next_offset
    assert read(url, whole) == ([], whole.wanted)


def test_damage_and_a_bad_address_are_errors(url: str, tmp_path: Path) -> None:
    whole = put(url, plain(random.Random(5), 20))
    path = tmp_path / "bucket" / CLUSTER / "o"
    good = path.read_bytes()
    with pytest.raises(CorruptData, match="middle of a batch"):
        read(url, replace(whole, log_bytes=whole.log_bytes - 1))
    path.write_bytes(good[:-1] + b"?")
    part = whole.narrowed(OffsetRange("t", 0, BASE + 1, BASE + 3))
    with pytest.raises(StoreFailed, match=r"option segments.remote: o: .*checksum"):
        read(url, part)
    with pytest.raises(BadOptions, match="not an address"):
        store_at("/data/bucket", CLUSTER)


def test_tasks_follow_the_options(url: str) -> None:
    def options(**named: str) -> SourceOptions:
        base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
        return parse_source_options({**base, **named}, is_stream=False)

    def part(base: int, count: int, size: int, partition: int = 0) -> ObjectPart:
        return ObjectPart(
            wanted=OffsetRange("t", partition, base, base + count), cluster_id=CLUSTER,
            key=f"{partition}/{base}", base_offset=base, next_offset=base + count, log_bytes=size,
            object_bytes=size,
        )  # fmt: skip

    large = [part(0, 1000, 1 << 30), part(0, 1000, 1 << 30, 1), part(1000, 10, 1 << 10)]
    tasks = object_tasks(options(targetBytesPerTask="256m"), large)
    assert [(one.key, one.wanted.start, one.wanted.end) for task in tasks for one in task] == [
        *(("0/0", start, start + 250) for start in range(0, 1000, 250)),
        *(("1/0", start, start + 250) for start in range(0, 1000, 250)),
        ("0/1000", 1000, 1010),
    ]
    cut = object_tasks(options(maxRecordsPerPartition="500"), large)
    assert [task[0].wanted.size for task in cut] == [500, 500, 500, 500, 10]
    small = [part(number * 10, 10, 1 << 20) for number in range(1000)]
    packed = object_tasks(options(), small)
    assert [len(task) for task in packed] == [125] * 8
    assert [one for task in packed for one in task] == small
