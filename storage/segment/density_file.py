"""The `.density` file: the entries of a density variant, and a seal that says what they cover.

| part    | size | fields                                                                          |
|---------|------|---------------------------------------------------------------------------------|
| header  | 28   | `TLDX`, version i8 = 1, variant i8, 0 i16, interval ms i64, carried ms i64, crc |
| entries | 12   | timestamp i64, offset minus base i32: the entry of KIP-33's drafts              |
| seal    | 40   | `TLDS`, entries u32, log size i64, next offset i64, largest timestamp i64,      |
|         |      | CRC-32C of header and entries u32, CRC-32C of the seal u32                      |

The header stores the rule by which the entries were made, because the setting may have changed
since. The seal stores what they cover. It is written when the segment is closed or the log stops
cleanly, and cut off by the first write after that. A file is trusted only if it has a seal,
everything in it is correct, and the log still has the size, the end and the maximum in the seal. A
file that is not trusted is rebuilt (`storage.log.auxiliary_indexes`): everything in it can be
derived from the log and the time index.

Owns the format; `storage.segment.density` writes it and owns the meaning of entries. Integers are
big-endian.

Differs from Kafka: it has no such files, and ignores them. It would not ignore the draft's name
`<base>.time.index`: its tools take the last part for that of an offset index.

Source: KIP-33 drafts. Read next: `storage.segment.density`.
"""

from struct import Struct
from typing import Final, NamedTuple

from protocol.records.checksums import crc32c
from storage.segment.auxiliary_index import Coverage, DamagedAuxiliaryIndex

MAGIC: Final = b"TLDX"
SEAL_MAGIC: Final = b"TLDS"
VERSION: Final = 1

HEADER: Final = Struct(">4sbbhqqI")
ENTRY: Final = Struct(">qi")
SEAL: Final = Struct(">4sIqqqII")

_CRC_SIZE: Final = 4


class DensityContent(NamedTuple):
    """A whole file, its checksums verified.

    Attributes:
        variant: the number of the rule; see `storage.segment.density.Variant`.
        interval_ms: the width of a bucket.
        carried_ms: the largest timestamp of the log before the segment, or NO_TIMESTAMP.
        entries: the bytes of whole entries.
        coverage: what the seal says; None when there is none.
    """

    variant: int
    interval_ms: int
    carried_ms: int
    entries: bytes
    coverage: Coverage | None


def encode_header(variant: int, interval_ms: int, carried_ms: int) -> bytes:
    """The first bytes of a file; the fields are those of `DensityContent`."""
    return _summed(HEADER.pack(MAGIC, VERSION, variant, 0, interval_ms, carried_ms, 0))


def encode_seal(count: int, coverage: Coverage, crc: int) -> bytes:
    """The seal after `count` entries; `crc` is the CRC-32C of all bytes before it."""
    return _summed(SEAL.pack(SEAL_MAGIC, count, *coverage, crc, 0))


def parse_density(content: bytes) -> DensityContent:
    """Parse the content of a file.

    Raises:
        DamagedAuxiliaryIndex: it is too short, of another version, cut off, or a checksum is wrong.
    """
    if len(content) < HEADER.size:
        raise DamagedAuxiliaryIndex(f"{len(content)} bytes are no header")
    magic, version, *rule, _ = HEADER.unpack_from(content)
    if magic != MAGIC or not _is_summed(content[: HEADER.size]):
        raise DamagedAuxiliaryIndex("the header is damaged")
    if version != VERSION:
        raise DamagedAuxiliaryIndex(f"version {version} is not known")
    variant, _, interval_ms, carried_ms = rule
    body = content[HEADER.size :]
    if len(body) < SEAL.size or not body[-SEAL.size :].startswith(SEAL_MAGIC):
        entries = body[: len(body) - len(body) % ENTRY.size]
        return DensityContent(variant, interval_ms, carried_ms, entries, None)
    entries, seal = body[: -SEAL.size], body[-SEAL.size :]
    _, count, *coverage, entries_crc, _ = SEAL.unpack(seal)
    if not _is_summed(seal):
        raise DamagedAuxiliaryIndex("the seal is damaged")
    if count * ENTRY.size != len(entries) or entries_crc != crc32c(content[: -SEAL.size]):
        raise DamagedAuxiliaryIndex("the entries are not those that were sealed")
    return DensityContent(variant, interval_ms, carried_ms, entries, Coverage(*coverage))


def _summed(part: bytes) -> bytes:
    """The part with the CRC-32C of the other bytes in its last four."""
    return part[:-_CRC_SIZE] + crc32c(part[:-_CRC_SIZE]).to_bytes(_CRC_SIZE, "big")


def _is_summed(part: bytes) -> bool:
    return _summed(part) == part
