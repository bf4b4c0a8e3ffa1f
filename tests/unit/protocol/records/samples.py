"""Golden bytes of every format, and the records they hold."""

from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries

V0 = bytes.fromhex("00000000000000000000000f51df3a320000ffffffff0000000161")
V1 = bytes.fromhex("0000000000000000000000186d55d1d301000000000000000064000000016b0000000161")
V1_STAMPED = bytes.fromhex(
    "000000000000000500000018325dc23a01080000000000001388000000016b0000000161"
)
V2 = bytes.fromhex(
    "0000000000000000000000500000000002d4ac0234000000000002000000000000006400000000000003e7ffffff"
    "ffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b010202680231"
)
ABORT = bytes.fromhex(
    "000000000000001d0000004200000000020544898a00300000000000000000000013880000000000001388000000"
    "00000000010000ffffffff000000012000000008000000000c00000000000000"
)
RECORDS = [
    Record(0, 100, None, b"a"),
    Record(1, 999, b"k", b"b"),
    Record(2, 200, b"k", None, (("h", b"1"),)),
]
OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def records_of(data: bytes) -> list[Record]:
    return [record for entry in scan_entries(data) for record in iter_records(data, entry.position)]


def plain(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]
