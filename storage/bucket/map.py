"""The map of a bucket: what is known of topics, logs and segments, by key.

Owns the keys, the values, and how a journal's entry changes them. An entry names keys with new
values, None removes one, all of an entry take effect together:

| key                                        | value                                              |
|--------------------------------------------|----------------------------------------------------|
| `owner`                                    | id, epoch, `released`, `lease_ms` if it has one,   |
|                                            | `begun`: entries that stay for former owners       |
| `meta/KIND/KEY`                            | a document of the metadata journal                 |
| `log/TOPIC-ID/PARTITION`                   | start of the log, leader epochs, producer snapshot |
| `segment/TOPIC-ID/PARTITION/BASE`          | the two lines of `segment-manifest`                |
| `tail/TOPIC-ID/PARTITION/BASE/POSITION`    | where records are that no segment has: `Piece`     |

How entries are stored, and who may write one, is the affair of `storage.bucket.journal`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple

from storage.directory.metadata import Json
from storage.errors import StoreFailed
from values.dataclasses import dataclass

OWNER: Final = "owner"
META: Final = "meta/"
CLUSTER: Final = "cluster"


class Piece(NamedTuple):
    """Bytes of a log in an entry: which entry, where in it, how many, their CRC-32C."""

    entry: int
    at: int
    size: int
    crc: int


def parse_piece(value: Json) -> Piece:
    """The piece in a value of the map. Raises StoreFailed for any other value."""
    match value:
        case [int(entry), int(at), int(size), int(crc)]:
            return Piece(entry, at, size, crc)
    raise StoreFailed(f"the journal of the bucket has {value!r} for a piece")


class Key(NamedTuple):
    """The key of a log, a segment or a piece, in its parts; absent ones are -1."""

    kind: str
    topic_id: bytes
    partition: int
    base_offset: int = -1
    position: int = -1

    def __str__(self) -> str:
        """The key in the map."""
        numbers = [str(one) for one in self[2:] if one != -1]
        return "/".join([self.kind, self.topic_id.hex(), *numbers])


def log_key(topic_id: bytes, partition: int) -> str:
    """The key of a log."""
    return str(Key("log", topic_id, partition))


def parse_key(text: str) -> Key | None:
    """The key in its parts; None for those of other kinds."""
    kind, *rest = text.split("/")
    if kind not in ("log", "segment", "tail"):
        return None
    return Key(kind, bytes.fromhex(rest[0]), *map(int, rest[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One entry, without its records."""

    number: int
    epoch: int
    owner: str
    nonce: int
    changes: Mapping[str, Json]
    voids: tuple[int, ...] = ()


@dataclass(slots=True)
class BucketState:
    """The map after the entry `number`; -1 is the empty bucket.

    `voids` are numbers that the next entry has to declare void.
    """

    number: int = -1
    documents: dict[str, Json] = field(default_factory=dict)
    voids: list[int] = field(default_factory=list)

    @property
    def owner(self) -> dict[str, Any]:
        """The change that named the owner; empty while there is none."""
        document = self.documents.get(OWNER)
        return document if isinstance(document, dict) else {}

    @property
    def owner_id(self) -> str:
        """The owner."""
        return str(self.owner.get("id", ""))

    @property
    def epoch(self) -> int:
        """How often the bucket was taken over."""
        return int(self.owner.get("epoch", 0))

    @property
    def lease_ms(self) -> int:
        """The owner writes an entry within this time, or stops; 0 when it promises nothing."""
        return int(self.owner.get("lease_ms", 0))

    def apply(self, entry: JournalEntry) -> None:
        """Make the changes of the next entry."""
        assert entry.number > self.number, f"entry {entry.number} after {self.number}"
        self.number = entry.number
        self.voids = [one for one in self.voids if one not in entry.voids]
        for key, value in entry.changes.items():
            if value is None:
                self.documents.pop(key, None)
            else:
                self.documents[key] = value

    def keys(self, kind: str) -> Iterator[tuple[Key, Any]]:
        """The parts of all keys of one kind, with the values."""
        prefix = f"{kind}/"
        for text, value in self.documents.items():
            if text.startswith(prefix) and (key := parse_key(text)) is not None:
                yield key, value
