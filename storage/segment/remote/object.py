"""An object in a store that holds one closed segment: its name, its facts, its bytes.

Owns what an object consists of. The bytes of the `.log` come first, so that a position in the log
is a position in the object; what a machine needs to serve the segment without its local files
follows:

    | .log | .index | .timeindex | .txnindex | description, JSON | tail, 16 bytes |

The tail has the length of the description u32, the CRC-32C of everything between the log and the
tail and of that length u32, and the eight bytes `TLSEG\\0\\0\\1`. All integers are big-endian.

The name of an object is used for one attempt of an upload and never again: topic id, partition,
base offset, leader epoch and a random number. So no retry meets the object of another attempt.

Source: the order of uploads is ours (docs/adr/0028); Kafka leaves both to plugins (KIP-405).
"""

import json
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from storage.disk.files import Bytes
from storage.errors import StoreFailed
from storage.segment.remote.sealed import TAIL_BYTES, seal, unseal

_MAGIC: Final = b"TLSEG\x00\x00\x01"


class IndexFiles(NamedTuple):
    """The content of the index files of one segment."""

    offset_index: bytes
    time_index: bytes
    txn_index: bytes


def encode_trailer(indexes: IndexFiles, description: dict[str, Any], *, log_crc: int) -> bytes:
    """What follows the log in an object; its length does not depend on the log's CRC-32C."""
    described = {**description, "log_crc": f"{log_crc:08x}"}
    text = json.dumps(described, separators=(",", ":"), sort_keys=True).encode()
    return b"".join(seal(indexes, text, _MAGIC))


def decode_trailer(trailer: Bytes) -> tuple[IndexFiles, dict[str, Any]]:
    """The index files and the description in what follows the log. Raises StoreFailed."""
    if len(trailer) < TAIL_BYTES:
        raise StoreFailed(
            f"an object has {len(trailer)} bytes after its log, {TAIL_BYTES} at least"
        )
    parts_and_text = unseal(trailer, _MAGIC)
    if parts_and_text is None:
        raise StoreFailed("the end of an object is not what was written (checksum)")
    body, text = parts_and_text
    description: dict[str, Any] = json.loads(text)
    facts = description["facts"]
    at, parts = 0, []
    for name in ("offset_index_bytes", "time_index_bytes", "txn_index_bytes"):
        parts.append(bytes(body[at : at + facts[name]]))
        at += facts[name]
    return IndexFiles(*parts), description


def describe(facts: Any, *, topic: str, epochs: list[list[int]]) -> dict[str, Any]:
    """The description of a segment, for a machine that has nothing but the object.

    Its topic by name, its facts in the manifest, and the leader epochs up to its end, each with its
    first offset.
    """
    return {"topic": topic, "epochs": epochs, "facts": asdict(facts)}
