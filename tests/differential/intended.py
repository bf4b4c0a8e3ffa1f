"""The differences that are meant to be, each with its reason; docs/compatibility.md explains them.

A row names the releases, a pattern for the topic, the case and the aspect. A difference that no row
matches fails the test, and so does a row that nothing matches any more.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.differential.run import Difference


class Intended(NamedTuple):
    """A family of differences; the patterns have to match whole names."""

    reason: str
    case: str
    aspect: str = ".*"
    topic: str = ".*"
    versions: str = ".*"

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is one of this family."""
        pairs = (
            (self.case, difference.case),
            (self.aspect, difference.aspect),
            (self.topic, difference.topic),
            (self.versions, difference.version),
        )
        return all(re.fullmatch(pattern, text) for pattern, text in pairs)


_OLD = r"0\.8\..*|0\.10\..*"
_BEFORE_4 = rf"{_OLD}|2\..*|3\..*"
_BEFORE_BOUNDS = rf"{_OLD}|2\..*"

INTENDED: Final[tuple[Intended, ...]] = (
    # -- ours, on purpose ----------------------------------------------------------------------
    Intended(
        "zstd is refused to Fetch below version 10 (KIP-110); Kafka refuses where it converts, or "
        "where the topic's setting says zstd",
        case=r".*(ZSTD|zstd).*",
        aspect=r"fetch v[4-9] .*",
        versions=r"[234]\..*",
    ),
    Intended(
        "where no record has a timestamp, none has the largest; Kafka names the first record",
        case=r"v0 .*|v\d( gzip)? times (none|before none|most negative)",
        aspect="maximum",
    ),
    Intended(
        "the lowest of all numbers is a time too old; in Kafka the difference overflows",
        case=r".* times most negative",
    ),
    Intended(
        "a codec that does not exist is an unsupported one; Kafka fails internally",
        case=r"v\d codec (4|5|7|says gzip)",
        aspect="answers",
    ),
    Intended(
        "records and compressed payloads that consumers could not read are refused, with a code "
        "that says so",
        case=r"v2 GZIP record too (long|short) by one|v2 (NONE|GZIP) body is garbage"
        r"|v2 (GZIP|SNAPPY|LZ4|ZSTD) (garbage|cut|empty payload|bytes behind|two streams)"
        r"|v[01] key size .*|v[01] wrapper (garbage|inner cut)|v1 LZ4 old frame",
    ),
    Intended("scattered offset deltas are made contiguous", case=r"v2 (NONE|GZIP) deltas .*"),
    Intended(
        "records that grow when converted for an old Fetch come whole; Kafka stops at the stored "
        "size, and the client asks again",
        case="v2 long random",
        aspect=r"fetch v[23] .*",
        topic="lz4",
        versions=r"[23]\..*",
    ),
    # -- Kafka's own changes: we do as its newest release ------------------------------------------
    Intended(
        "up to 3.7 a time entry named the record, since then the end of its batch",
        case=".*",
        aspect="timeindex",
        versions=_BEFORE_BOUNDS,
    ),
    Intended(
        "since 3.6 a batch flagged LogAppendTime is judged by its times and the flag cleared",
        case=r".* flagged LogAppendTime .*|v1 attributes 0x8",
        versions=_BEFORE_BOUNDS,
    ),
    Intended(
        "the delete horizon's bit has a meaning since 3.1",
        case="v2 delete horizon",
        versions=_BEFORE_BOUNDS,
    ),
    Intended(
        "times below -1 cannot be converted there, nor stored by newer ones in old formats",
        case=r"v[12]( gzip)? times before none.*",
        aspect=r"fetch v[0-3] .*|answers|lookups|ends by version 0|end",
        versions=_BEFORE_4,
    ),
    Intended(
        "since 0.11 records without timestamps are exempt from bounds",
        case=r"v1( gzip)? times none",
        topic="bounded",
        versions=_OLD,
    ),
    Intended(
        "since 2.4 a missing key is an invalid record rather than a corrupt one",
        case=r"v\d \w+ odd|v2 no key.*",
        aspect="answers",
        topic="compacted",
        versions=_OLD,
    ),
    Intended(
        "0.10 stored sets that mix formats or wrappers, and looked into fewer of them",
        case=r"v0 and v1|v1 and v0"
        r"|v[01] wrapper (of wrapper|empty|null|inner .*|twice|and message)",
        versions=_OLD,
    ),
    Intended(
        "0.10 kept attribute bits without meaning",
        case=r"v1 attributes 0x(10|80)",
        aspect=r"fetch .*",
        versions=_OLD,
    ),
    Intended(
        "0.10 took wrappers apart and left the bits of the messages inside as they were",
        case=r"v1 \w+ wrapper holds (one|two) flagged",
        aspect=r"fetch .*",
        topic="uncompressed",
        versions=_OLD,
    ),
    Intended(
        "0.10 stored old messages as they were, so they did not grow beyond max.message.bytes",
        case=r"v1 of \d+ bytes",
        topic="small-messages",
        versions=_OLD,
    ),
    Intended(
        "0.10 converts all compressed entries of a fetch into one wrapper",
        case=r"v[01] long",
        aspect=r"fetch v[01] .*",
        versions=_OLD,
    ),
    Intended(
        "0.8 did not look at the magic byte and stored what it did not know",
        case="v1 in produce v0",
        versions=r"0\.8\..*",
    ),
)


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Those that no row covers."""
    return [d for d in differences if not any(row.covers(d) for row in INTENDED)]
