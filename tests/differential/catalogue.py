"""What is sent: every format, codec, timestamp, bound, order and defect, as raw bytes.

A case is a name and one or more (Produce version, bytes) to send one after the other to a partition
of its own. Times are relative to `NOW`, read once, so that both brokers judge the same ones. What
a case is about is said by its name; what is right is not said at all: that is the other broker's
part.
"""

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from protocol.records.builder import assemble_batch, build_batch, build_message_set
from protocol.records.checksums import crc32, crc32c
from protocol.records.compression import compress
from protocol.records.layout import NO_TIMESTAMP, Codec, TimestampType
from protocol.records.legacy import encode_message
from protocol.records.record import Record

NOW: Final = time.time_ns() // 1_000_000
BEFORE_MAX_MS: Final = 3_600_000
_MARGIN_MS: Final = 1_200_000
"""How far from a bound a time is: more than the slowest run takes."""
TIMES_NEAR_NOW: Final = frozenset(
    NOW + delta
    for delta in (
        0,
        -BEFORE_MAX_MS + _MARGIN_MS,
        -BEFORE_MAX_MS - _MARGIN_MS,
        BEFORE_MAX_MS - _MARGIN_MS,
        BEFORE_MAX_MS + _MARGIN_MS,
        2 * BEFORE_MAX_MS,
    )
)
"""Times of the catalogue that could be taken for times of an append."""

OLD: Final = 1_600_000_000_000
"""A time long ago; exact lookups are made around it."""

MESSAGE_SET_VERSION: Final = 2
BATCH_VERSION: Final = 7

_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_LAST_DELTA_AT: Final = 23
_BASE_TIME_AT: Final = 27
_MAX_TIME_AT: Final = 35
_PRODUCER_AT: Final = 43
_COUNT_AT: Final = 57
_RECORDS_AT: Final = 61


class Case(NamedTuple):
    """What to send; each part is a Produce version and its record bytes."""

    name: str
    sends: tuple[tuple[int, bytes], ...]


def cases() -> list[Case]:
    """All of them, names unique."""
    made = [
        *_formats(),
        *_times(),
        *_versions(),
        *_batch_headers(),
        *_batch_records(),
        *_compressed_batches(),
        *_messages(),
        *_wrappers(),
        *_flagged_wrappers(),
        *_producers(),
        *_sizes(),
        *_sequences(),
    ]
    names = [case.name for case in made]
    assert len(set(names)) == len(names), "names are unique"
    return made


def _one(name: str, records: bytes, version: int | None = None) -> Case:
    if version is None:
        is_batch = len(records) > 16 and records[16] == 2
        version = BATCH_VERSION if is_batch else MESSAGE_SET_VERSION
    return Case(name, ((version, records),))


def _records(*times: int, key: bytes | None = b"k", value: bytes | None = b"value") -> list[Record]:
    return [Record(i, at, key, value) for i, at in enumerate(times)]


def _formats() -> Iterator[Case]:
    plain = _records(OLD, OLD + 5, OLD + 2)
    odd = [
        Record(0, OLD, None, b"no key"),
        Record(1, OLD, b"no value", None),
        Record(2, OLD, b"", b""),
        Record(3, OLD, b"k", b"abc" * 700),
    ]
    headed = [Record(0, OLD, b"k", b"v", (("a", b"1"), ("", b""), ("b", None), ("a", b"2")))]
    for codec in Codec:
        yield _one(f"v2 {codec.name} three", build_batch(plain, codec=codec))
        yield _one(f"v2 {codec.name} odd", build_batch(odd, codec=codec))
        yield _one(f"v2 {codec.name} headers", build_batch(headed, codec=codec))
        if codec is not Codec.ZSTD:
            for magic in (0, 1):
                yield _one(f"v{magic} {codec.name} three", build_message_set(plain, magic, codec))
                yield _one(f"v{magic} {codec.name} odd", build_message_set(odd, magic, codec))
                yield _one(f"v{magic} {codec.name} one", build_message_set(plain[:1], magic, codec))


def _times() -> Iterator[Case]:
    lists = {
        "rising": (OLD, OLD + 1, OLD + 2),
        "falling": (OLD + 2, OLD + 1, OLD),
        "wandering": (OLD + 100, OLD + 999, OLD + 200, OLD + 999),
        "equal": (OLD, OLD, OLD),
        "none": (NO_TIMESTAMP, NO_TIMESTAMP),
        "none first": (NO_TIMESTAMP, OLD),
        "none last": (OLD, NO_TIMESTAMP),
        "epoch": (0,),
        "before none": (-2,),
        "before none among others": (OLD, -2),
        "most negative": (-(2**63),),
        "largest": (2**63 - 1,),
        "old enough": (NOW - BEFORE_MAX_MS + _MARGIN_MS,),
        "too old": (NOW - BEFORE_MAX_MS - _MARGIN_MS,),
        "early enough": (NOW + BEFORE_MAX_MS - _MARGIN_MS,),
        "too early": (NOW + BEFORE_MAX_MS + _MARGIN_MS,),
        "one of three too old": (NOW, NOW - BEFORE_MAX_MS - _MARGIN_MS, NOW),
        "two of three too early": (NOW + 2 * BEFORE_MAX_MS, NOW, NOW + 2 * BEFORE_MAX_MS),
    }
    for name, times in lists.items():
        yield _one(f"v2 times {name}", build_batch(_records(*times)))
        yield _one(f"v2 gzip times {name}", build_batch(_records(*times), codec=Codec.GZIP))
        yield _one(f"v1 times {name}", build_message_set(_records(*times), 1))
        yield _one(f"v1 gzip times {name}", build_message_set(_records(*times), 1, Codec.GZIP))
    untimely = [Record(0, 1, None, b"no key, too old"), Record(1, NOW, None, b"no key")]
    yield _one("v2 no key and too old", build_batch(untimely))
    yield _one("v2 no key", build_batch(untimely[1:]))
    stamped = TimestampType.LOG_APPEND_TIME
    for name, at in (("old", OLD), ("none", NO_TIMESTAMP), ("now", NOW)):
        batch = build_batch(_records(at), timestamp_type=stamped, append_timestamp=at)
        yield _one(f"v2 flagged LogAppendTime {name}", batch)
        for codec in (Codec.NONE, Codec.GZIP):
            messages = build_message_set(
                _records(at), 1, codec, timestamp_type=stamped, append_timestamp=at
            )
            yield _one(f"v1 {codec.name} flagged LogAppendTime {name}", messages)


def _versions() -> Iterator[Case]:
    """Each format in each version of Produce."""
    payloads = {
        "v0": build_message_set(_records(OLD), 0),
        "v1": build_message_set(_records(OLD), 1),
        "v2": build_batch(_records(OLD)),
        "v2 zstd": build_batch(_records(OLD), codec=Codec.ZSTD),
        "v2 twice": build_batch(_records(OLD)) * 2,
        "nothing": b"",
    }
    for version in range(12):
        for name, payload in payloads.items():
            yield _one(f"{name} in produce v{version}", payload, version)


def patched(batch: bytes, at: int, form: str, *values: int, crc: bool = True) -> bytes:
    """A batch with other bytes at a position, and a right CRC unless `crc` says otherwise."""
    out = bytearray(batch)
    struct.pack_into(form, out, at, *values)
    if crc:
        struct.pack_into(">I", out, _CRC_AT, crc32c(memoryview(out)[_ATTRIBUTES_AT:]))
    return bytes(out)


def _batch_headers() -> Iterator[Case]:
    good = build_batch(_records(OLD, OLD + 5, OLD + 2))
    changes: dict[str, tuple[int, str, int]] = {
        "base offset 5": (0, ">q", 5),
        "leader epoch 77": (12, ">i", 77),
        "max timestamp too small": (_MAX_TIME_AT, ">q", OLD),
        "max timestamp too large": (_MAX_TIME_AT, ">q", OLD + 10**9),
        "base timestamp moved": (_BASE_TIME_AT, ">q", OLD + 1000),
        "transactional without producer": (_ATTRIBUTES_AT, ">h", 0x10),
        "control": (_ATTRIBUTES_AT, ">h", 0x20),
        "delete horizon": (_ATTRIBUTES_AT, ">h", 0x40),
        "high attribute bits": (_ATTRIBUTES_AT, ">h", 0x7F00),
        "codec 5": (_ATTRIBUTES_AT, ">h", 5),
        "codec 7": (_ATTRIBUTES_AT, ">h", 7),
        "codec says gzip": (_ATTRIBUTES_AT, ">h", 1),
        "last delta 1": (_LAST_DELTA_AT, ">i", 1),
        "last delta 9": (_LAST_DELTA_AT, ">i", 9),
        "last delta -1": (_LAST_DELTA_AT, ">i", -1),
        "count 0": (_COUNT_AT, ">i", 0),
        "count 2": (_COUNT_AT, ">i", 2),
        "count 4": (_COUNT_AT, ">i", 4),
        "count -1": (_COUNT_AT, ">i", -1),
    }
    for name, (at, form, value) in changes.items():
        yield _one(f"v2 {name}", patched(good, at, form, value))
    for count in (0, 1, 2, 4):
        both = patched(patched(good, _COUNT_AT, ">i", count), _LAST_DELTA_AT, ">i", count - 1)
        yield _one(f"v2 count and last delta for {count}", both)
    yield _one("v2 wrong crc", patched(good, _CRC_AT, ">I", 1, crc=False))
    for magic in (3, 127, -1):
        yield _one(f"v2 magic {magic}", patched(good, 16, ">b", magic, crc=False), BATCH_VERSION)
    size = len(good) - 12
    for name, value in (("one more", size + 1), ("one less", size - 1), ("0", 0), ("13", 13)):
        yield _one(f"v2 length {name}", patched(good, 8, ">i", value, crc=False))
    yield _one("v2 length negative", patched(good, 8, ">i", -1, crc=False))
    yield _one("v2 cut", good[:-3])
    yield _one("v2 header only", good[:40])
    yield _one("v2 eleven bytes", good[:11], BATCH_VERSION)
    yield _one("v2 and garbage", good + b"garbage")
    yield _one("v2 and a cut one", good + good[:50])
    yield _one("v2 and v1", good + build_message_set(_records(OLD), 1))
    yield _one("v2 no time in header", patched(good, _MAX_TIME_AT, ">q", -1))
    empty = assemble_batch(
        b"",
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=-1,
        max_timestamp=-1,
        producer=(-1, -1, -1),
        records_count=0,
    )
    yield _one("v2 empty", empty)


def _batch_of(body: bytes, count: int, codec: Codec = Codec.NONE, last: int | None = None) -> bytes:
    return assemble_batch(
        compress(codec, body) if codec else body,
        base_offset=0,
        leader_epoch=-1,
        attributes=int(codec),
        last_offset_delta=count - 1 if last is None else last,
        base_timestamp=OLD,
        max_timestamp=OLD,
        producer=(-1, -1, -1),
        records_count=count,
    )


def _record(delta: int, *, attributes: int = 0, tail: bytes = b"\x00", length: int = 0) -> bytes:
    """A record with key k and value v; `tail` is its headers, `length` is added to its size."""
    body = bytes((attributes, 0, delta * 2, 2)) + b"k" + b"\x02v" + tail
    return bytes(((len(body) + length) * 2,)) + body


def _batch_records() -> Iterator[Case]:
    """Records that are not what the header says."""
    bodies: dict[str, tuple[bytes, int, int]] = {
        "record attributes": (_record(0, attributes=7), 1, 0),
        "record too long by one": (_record(0, length=1), 1, 0),
        "record too short by one": (_record(0, length=-1), 1, 0),
        "record length 0": (b"\x00", 1, 0),
        "header count negative": (_record(0, tail=b"\x01"), 1, 0),
        "header count too large": (_record(0, tail=b"\x08"), 1, 0),
        "header key null": (_record(0, tail=b"\x02\x01\x02v"), 1, 0),
        "bytes in record behind headers": (_record(0, tail=b"\x00zz"), 1, 0),
        "bytes behind records": (_record(0) + b"zz", 1, 0),
        "one record too many": (_record(0) + _record(1), 1, 0),
        "deltas 0 2 4": (_record(0) + _record(2) + _record(4), 3, 4),
        "deltas 0 2 4 counted as three": (_record(0) + _record(2) + _record(4), 3, 2),
        "deltas from 1": (_record(1) + _record(2), 2, 1),
        "deltas falling": (_record(1) + _record(0), 2, 1),
        "deltas equal": (_record(0) + _record(0), 2, 1),
        "body is garbage": (b"\xff" * 30, 1, 0),
    }
    for name, (body, count, last) in bodies.items():
        for codec in (Codec.NONE, Codec.GZIP):
            yield _one(f"v2 {codec.name} {name}", _batch_of(body, count, codec, last))


def _compressed_batches() -> Iterator[Case]:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        payload = compress(codec, _record(0))
        broken = {
            "garbage": b"\x12\x34" * 20,
            "cut": payload[:-4],
            "empty payload": b"",
            "empty stream": compress(codec, b""),
            "bytes behind": payload + b"zz",
            "two streams": compress(codec, _record(0)) + compress(codec, _record(1)),
        }
        for name, body in broken.items():
            count = 2 if name == "two streams" else 1
            batch = patched(_batch_of(body, count), _ATTRIBUTES_AT, ">h", int(codec))
            yield _one(f"v2 {codec.name} {name}", batch)


def _message_patched(message: bytes, at: int, form: str, *values: int, crc: bool = True) -> bytes:
    out = bytearray(message)
    struct.pack_into(form, out, at, *values)
    if crc:
        struct.pack_into(">I", out, 12, crc32(memoryview(out)[16:]))
    return bytes(out)


def _messages() -> Iterator[Case]:
    for magic in (0, 1):
        message = encode_message(magic, 0, OLD, b"k", b"value")
        yield _one(f"v{magic} offset 9", _message_patched(message, 0, ">q", 9))
        yield _one(f"v{magic} offset -1", _message_patched(message, 0, ">q", -1))
        yield _one(f"v{magic} wrong crc", _message_patched(message, 12, ">I", 1, crc=False))
        for bits in (0x08, 0x10, 0x80):
            patched_bits = _message_patched(message, 17, ">B", bits)
            yield _one(f"v{magic} attributes {bits:#x}", patched_bits)
        for codec in (4, 5, 7):
            yield _one(f"v{magic} codec {codec}", _message_patched(message, 17, ">B", codec))
        for name, size in (("13", 13), ("0", 0), ("more", len(message)), ("less", 20)):
            yield _one(f"v{magic} size {name}", _message_patched(message, 8, ">i", size, crc=False))
        yield _one(f"v{magic} cut", message[:-2])
        yield _one(f"v{magic} two", message * 2)
        yield _one(f"v{magic} and a cut one", message + message[:20])
        other = encode_message(1 - magic, 0, OLD, b"k", b"other")
        yield _one(f"v{magic} and v{1 - magic}", message + other)
        yield _one(f"v{magic} key size beyond", _key_size(message, magic, 1000))
        yield _one(f"v{magic} key size -2", _key_size(message, magic, -2))
        spoilt = _message_patched(message, 12, ">I", 1, crc=False)
        yield _one(f"v{magic} second has wrong crc", message + spoilt)


def _key_size(message: bytes, magic: int, size: int) -> bytes:
    return _message_patched(message, 18 if magic == 0 else 26, ">i", size)


def _wrapper(magic: int, inner: bytes, codec: Codec = Codec.GZIP, *, offset: int = 0) -> bytes:
    payload = compress(codec, inner, legacy_lz4=magic == 0 and codec is Codec.LZ4)
    return encode_message(magic, offset, OLD, None, payload, int(codec))


def _wrappers() -> Iterator[Case]:
    for magic in (0, 1):
        one, two = (encode_message(magic, i, OLD + i, b"k", b"value") for i in range(2))
        far = encode_message(magic, 7, OLD, b"k", b"value")
        name = f"v{magic} wrapper"
        yield _one(f"{name} offset last", _wrapper(magic, one + two, offset=1))
        yield _one(f"{name} offset 0", _wrapper(magic, one + two))
        yield _one(f"{name} offset 99", _wrapper(magic, one + two, offset=99))
        yield _one(f"{name} inner offsets 0 7", _wrapper(magic, one + far, offset=7))
        yield _one(f"{name} inner offsets 0 0", _wrapper(magic, one + one, offset=1))
        yield _one(f"{name} inner offsets 7 0", _wrapper(magic, far + one, offset=7))
        yield _one(f"{name} of wrapper", _wrapper(magic, _wrapper(magic, one)))
        yield _one(f"{name} empty", _wrapper(magic, b""))
        yield _one(f"{name} null", encode_message(magic, 0, OLD, None, None, int(Codec.GZIP)))
        bad = _message_patched(one, 12, ">I", 1, crc=False)
        yield _one(f"{name} inner wrong crc", _wrapper(magic, bad))
        other = encode_message(1 - magic, 0, OLD, b"k", b"other")
        yield _one(f"{name} inner other magic", _wrapper(magic, other))
        yield _one(f"{name} inner mixed magic", _wrapper(magic, one + other, offset=1))
        yield _one(f"{name} inner cut", _wrapper(magic, one + two[:-3]))
        yield _one(f"{name} garbage", encode_message(magic, 0, OLD, None, b"\x12" * 40, 1))
        yield _one(
            f"{name} with key", encode_message(magic, 0, OLD, b"k", compress(Codec.GZIP, one), 1)
        )
        yield _one(f"{name} twice", _wrapper(magic, one) * 2)
        yield _one(f"{name} and message", _wrapper(magic, one) + one)
        for codec in (Codec.SNAPPY, Codec.LZ4):
            yield _one(f"{name} {codec.name}", _wrapper(magic, one + two, codec, offset=1))
    inner = encode_message(1, 0, OLD, b"k", b"value")
    for legacy in (False, True):
        payload = compress(Codec.LZ4, inner, legacy_lz4=legacy)
        kind = "old" if legacy else "new"
        yield _one(f"v1 LZ4 {kind} frame", encode_message(1, 0, OLD, None, payload, int(Codec.LZ4)))
    inner = encode_message(0, 0, OLD, b"k", b"value")
    payload = compress(Codec.LZ4, inner)
    yield _one("v0 LZ4 new frame", encode_message(0, 0, OLD, None, payload, int(Codec.LZ4)))


def _flagged_wrappers() -> Iterator[Case]:
    """Who says LogAppendTime: the wrapper, the messages inside it, or both."""

    def message(delta: int, *, flagged: bool) -> bytes:
        plain = encode_message(1, delta, OLD + delta, b"k", b"value")
        return _message_patched(plain, 17, ">B", 0x08) if flagged else plain

    inside = {
        "plain": message(0, flagged=False) + message(1, flagged=False),
        "one flagged": message(0, flagged=False) + message(1, flagged=True),
        "two flagged": message(0, flagged=True) + message(1, flagged=True),
    }
    for name, inner in inside.items():
        for codec in (Codec.GZIP, Codec.LZ4):
            wrapper = _wrapper(1, inner, codec, offset=1)
            flagged = _message_patched(wrapper, 17, ">B", int(codec) | 0x08)
            yield _one(f"v1 {codec.name} wrapper holds {name}", wrapper)
            yield _one(f"v1 {codec.name} wrapper flagged LogAppendTime holds {name}", flagged)


def _producers() -> Iterator[Case]:
    def batch(producer: int, epoch: int, sequence: int, *, transactional: bool = False) -> bytes:
        return build_batch(
            _records(OLD, OLD + 3),
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )

    lives: dict[str, Sequence[tuple[int, int, int]]] = {
        "from 0": ((1, 0, 0),),
        "from 5": ((1, 0, 5),),
        "again": ((1, 0, 0), (1, 0, 0)),
        "in order": ((1, 0, 0), (1, 0, 2), (1, 0, 4)),
        "gap": ((1, 0, 0), (1, 0, 4)),
        "back": ((1, 0, 0), (1, 0, 2), (1, 0, 4), (1, 0, 2)),
        "overlap": ((1, 0, 0), (1, 0, 1)),
        "long ago again": (*((1, 0, 2 * i) for i in range(7)), (1, 0, 0)),
        "new epoch from 0": ((1, 0, 0), (1, 1, 0)),
        "new epoch from 2": ((1, 0, 0), (1, 1, 2)),
        "old epoch": ((1, 1, 0), (1, 0, 2)),
        "wrapping": ((1, 0, 0), (2, 0, 2**31 - 2), (2, 0, 0)),
        "no sequence": ((1, 0, -1),),
        "no epoch": ((1, -1, 0),),
        "two": ((1, 0, 0), (2, 0, 0), (1, 0, 2), (2, 0, 2)),
    }
    for name, life in lives.items():
        sends = tuple((BATCH_VERSION, batch(*part)) for part in life)
        yield Case(f"producer {name}", sends)
    yield _one("producer transactional, unknown", batch(1, 0, 0, transactional=True))


def _sizes() -> Iterator[Case]:
    """Around max.message.bytes of the topic that has 1000, and around its segment."""
    for size in (999, 1000, 1001):
        overhead = len(build_batch([Record(0, OLD, None, b"x" * 500)])) - 500
        yield _one(
            f"v2 of {size} bytes", build_batch([Record(0, OLD, None, b"x" * (size - overhead))])
        )
    repeated = [Record(i, OLD, None, b"y" * 900) for i in range(10)]
    yield _one("v2 9 KB compressed below 1000 bytes", build_batch(repeated, codec=Codec.GZIP))
    yield _one("v1 9 KB compressed below 1000 bytes", build_message_set(repeated, 1, Codec.GZIP))
    for size in (950, 985, 1000):
        message = encode_message(1, 0, OLD, None, b"z" * (size - 34))
        yield _one(f"v1 of {size} bytes", message)
    noise = Random(4).randbytes(1_020_000)
    yield _one("v2 almost a segment", build_batch([Record(0, OLD, None, noise)]))
    yield _one(
        "v2 more than a segment", build_batch([Record(0, OLD, None, noise + noise[:60_000])])
    )
    pair = build_message_set([Record(i, OLD, None, noise[:540_000]) for i in range(2)], 1)
    yield _one("v1 two, together more than a segment", pair)


def _sequences() -> Iterator[Case]:
    """Many sends to one partition: index entries, lookups, rolls by time."""
    random = Random(2)
    kinds: dict[str, Callable[[int], list[int]]] = {
        "rising": lambda i: [OLD + 10 * i, OLD + 10 * i + 5],
        "falling": lambda i: [OLD - 10 * i],
        "random": lambda _: [OLD + random.randrange(5000) for _ in range(random.randrange(1, 5))],
        "sawtooth": lambda i: [OLD + i % 7 * 100 + i],
        "partly none": lambda i: [NO_TIMESTAMP if i % 3 else OLD + i],
        "hours apart": lambda i: [OLD + i * 3_600_000],
    }
    for name, times in kinds.items():
        sends = []
        for i in range(40):
            value = random.randbytes(random.randrange(1, 150))
            sends.append((BATCH_VERSION, build_batch(_records(*times(i), value=value))))
        yield Case(f"v2 long {name}", tuple(sends))
    for magic in (0, 1):
        sends = [
            (
                MESSAGE_SET_VERSION,
                build_message_set(
                    _records(OLD + random.randrange(900), OLD + i, value=b"m" * (i * 3)),
                    magic,
                    Codec.GZIP if i % 3 == 0 else Codec.NONE,
                ),
            )
            for i in range(40)
        ]
        yield Case(f"v{magic} long", tuple(sends))
