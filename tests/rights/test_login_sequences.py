"""Every order of requests before and after a login, sent to Apache Kafka and to Tidelog.

A sequence is of the requests below, each sent after the answer to the one before. Both brokers have
to answer each request alike or close at the same place. `LOGIN_SEQUENCES=4` sends all of four
requests (28,561) instead of three.
"""

import asyncio
import itertools
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.metadata import MetadataRequest
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from tests.rights.brokers import PASSWORD, Stage, add_users, kafka, tidelog
from tests.support.broker import ConnectionClosed, RawClient

LENGTH = int(os.environ.get("LOGIN_SEQUENCES", "3"))
"""Three are the least that let a user in: handshake, token, request."""

AT_ONCE = 16
USER = "ann"
GOOD, BAD = f"\0{USER}\0{PASSWORD}".encode(), f"\0{USER}\0wrong".encode()
SETTINGS = {"connection.failed.authentication.delay.ms": "0"}
CLOSED = "closed"

Outcome = tuple[str, ...]
"""What came back for each request, up to the one at which the broker closed."""


class Sent(NamedTuple):
    """One request: a message, or the bytes of a frame."""

    message: object
    version: int = 0
    error_at: int | None = None
    """Where its answer has an error code; without one only its size counts."""


VERSIONS_UNKNOWN = struct.pack(">hhihb", ApiKey.API_VERSIONS, 99, 7, -1, 0)
"""A whole flexible header, as of a client that knows versions which are unknown here."""

REQUESTS: Mapping[str, Sent] = MappingProxyType(
    {
        "versions": Sent(ApiVersionsRequest(), 0, 4),
        "versions unknown": Sent(VERSIONS_UNKNOWN, error_at=4),
        "handshake v0": Sent(SaslHandshakeRequest(mechanism="PLAIN"), 0, 4),
        "handshake": Sent(SaslHandshakeRequest(mechanism="PLAIN"), 1, 4),
        "handshake SCRAM": Sent(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, 4),
        "handshake unknown": Sent(SaslHandshakeRequest(mechanism="plain"), 1, 4),
        "token": Sent(SaslAuthenticateRequest(auth_bytes=GOOD), 1, 4),
        "wrong token": Sent(SaslAuthenticateRequest(auth_bytes=BAD), 1, 4),
        "SCRAM token": Sent(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=abc"), 1, 4),
        "metadata": Sent(MetadataRequest(topics=[]), 1, 4),
        "bare token": Sent(GOOD),
        "bare wrong token": Sent(BAD),
        "garbage": Sent(b"\xff" * 20),
    }
)


async def outcome(stage: Stage, names: Sequence[str]) -> Outcome:
    """What one connection gets for these requests."""
    host, _, port = stage.secured.rpartition(":")
    client = await RawClient.connect(host, int(port))
    found = []
    try:
        for name in names:
            sent = REQUESTS[name]
            if isinstance(sent.message, bytes):
                client.send_raw(struct.pack(">i", len(sent.message)) + sent.message)
            else:
                client.send(sent.message, sent.version)
                client.forget_last()
            answer = await client.receive_frame(30)
            if sent.error_at is None or len(answer) < sent.error_at + 2:
                found.append(f"{len(answer)} bytes")
            elif name == "metadata":
                (brokers,) = struct.unpack_from(">i", answer, sent.error_at)
                found.append(f"{brokers} brokers")
            else:
                (code,) = struct.unpack_from(">h", answer, sent.error_at)
                found.append(ErrorCode(code).name)
    except (ConnectionClosed, ConnectionResetError, BrokenPipeError):
        found.append(CLOSED)
    finally:
        await client.close()
    return tuple(found)


async def outcomes(stage: Stage, sequences: Sequence[tuple[str, ...]]) -> list[Outcome]:
    """What all of them get, some connections at a time."""
    waiting = iter(enumerate(sequences))
    found: list[Outcome] = [()] * len(sequences)

    async def work() -> None:
        for number, names in waiting:
            found[number] = await outcome(stage, names)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found


def is_let_in(names: Sequence[str], found: Outcome) -> bool:
    """Whether a request was served that only users may send."""
    return any(
        name == "metadata" and what == "1 brokers" for name, what in zip(names, found, strict=False)
    )


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_sequence_ends_as_at_kafka(tmp_path: Path) -> None:
    sequences = list(itertools.product(REQUESTS, repeat=LENGTH))
    with tidelog(tmp_path, [USER], SETTINGS) as stage:
        ours = asyncio.run(outcomes(stage, sequences))
    with kafka(tmp_path, [USER], SETTINGS) as stage:
        asyncio.run(add_users(stage.plain, [USER]))  # for SCRAM; PLAIN has its own there
        theirs = asyncio.run(outcomes(stage, sequences))
    unlike = {
        names: (mine, other)
        for names, mine, other in zip(sequences, ours, theirs, strict=True)
        if mine != other
    }
    let_in = {n for n, mine in zip(sequences, ours, strict=True) if is_let_in(n, mine)}
    print(f"{len(sequences)} sequences: {len(let_in)} let a user in, {len(unlike)} differ")
    assert not unlike, "\n".join(
        f"{' > '.join(names)}: {mine}, at Kafka {other}" for names, (mine, other) in unlike.items()
    )
    assert all({"token", "bare token"} & set(names) for names in let_in)
    assert let_in
