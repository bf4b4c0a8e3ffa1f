"""What security costs: `python -m benchmarks.security_cost [--seconds S] [--rounds N]`.

Five brokers, alike but for their security, get the same requests in turns; each row is the median
of the CPU of the broker's process, as in `request_cost`. Then clients connect, log in and leave:
CPU of the broker for each login, and how many a single client after the other got in a second. Last
comes what 10,000 rules cost, measured in this process.
"""

import argparse
import base64
import contextlib
import hashlib
import hmac
import itertools
import random
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import brokers, loads, machine, report, wire
from benchmarks.request_cost import (
    FILL_BYTES,
    KIB_BATCH,
    Row,
    cpu_ns,
    drive,
    framed,
    produce_rows,
    read_rows,
)
from broker.principal import user
from broker.security.acls import Access, format_acl, parse_acl
from cli.security.offline_users import add_user
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.describe_client_quotas import EntityData
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.declare.primitives import message_spec
from protocol.headers import decode_response_header
from protocol.registry import decode_response
from tests.compat.brokers import TidelogProcess
from tests.support.certificates import authority, signed
from tests.support.kafka_peer import free_ports

USER, PASSWORD, ITERATIONS = "ann", "correct-horse-42", 8192
TOPIC, WIDE_TOPIC = "cost", "cost-wide"
RULES = 10_000
IN_FLIGHT = 5
MORE_THAN_ANYTHING = 1e12
REQUESTS = (
    "Produce 16 KB of 1024 B",
    "Produce 1000 KB of 1024 B",
    "Produce 16 x 16 KB of 1024 B",
    "Fetch 17 KB",
    "Fetch 1000 KB",
    "Metadata of one topic",
    "Heartbeat",
)

_PLAIN, _SCRAM = "PLAIN", "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to secure a broker; its clients use the listener of this protocol."""

    title: str
    protocol: str
    has_rules: bool = False
    has_quotas: bool = False


VARIANTS = (
    Variant(title="nothing", protocol="PLAINTEXT"),
    Variant(title="rules", protocol="SASL_PLAINTEXT", has_rules=True),
    Variant(title="quotas", protocol="PLAINTEXT", has_quotas=True),
    Variant(title="TLS", protocol="SSL"),
    Variant(title="TLS, rules, quotas", protocol="SASL_SSL", has_rules=True, has_quotas=True),
)


class Secured:
    """A running broker of one variant, and how its clients connect."""

    def __init__(self, variant: Variant, pid: int, address: str, tls: ssl.SSLContext) -> None:
        self.title = variant.title
        self.address = address
        self._process = brokers.Running(
            name=variant.title, bootstrap=address, pid=pid, spawned_at=0.0
        )
        self._tls = tls if variant.protocol.endswith("SSL") else None
        self.has_users = variant.protocol.startswith("SASL")

    def connect(self, mechanism: str = _PLAIN) -> wire.Connection:
        """A connection that has logged in, where the listener has users."""
        connection = wire.Connection(self.address, tls=self._tls)
        if self.has_users:
            log_in(connection, mechanism)
        return connection

    def cpu_ns(self) -> int:
        """What its process has used."""
        return cpu_ns([self._process])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints three Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security_cost")
    parser.add_argument("--rows", default="", help="only requests whose title contains this")
    parser.add_argument("--seconds", type=float, default=0.7, help="per request and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--logins", type=int, default=200, help="per kind and round")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-security-")))
        signer = authority(folder)
        certificate = signed(folder, signer, "server")
        tls = ssl.create_default_context(cafile=str(signer))
        running = [stack.enter_context(_started(folder, one, certificate, tls)) for one in VARIANTS]
        print(machine.markdown(machine.describe(folder)))
        print("\nCPU of the broker in microseconds per request.\n")
        print(_requests(running, options.rows, options.seconds, options.rounds))
        print("\nConnections that log in once and leave, one after the other.\n")
        print(_logins(running, options.logins, options.rounds))
    print(f"\n{RULES:,} rules, in this process.\n")
    print(_rules())
    return 0


@contextlib.contextmanager
def _started(
    folder: Path, variant: Variant, certificate: Path, tls: ssl.SSLContext
) -> Iterator[Secured]:
    data = folder / variant.title.replace(", ", "-")
    add_user(str(data), USER, PASSWORD, _SCRAM, ITERATIONS)
    open_port, port = free_ports(2)
    settings = {
        "listeners": f"OPEN://127.0.0.1:{open_port},OWN://127.0.0.1:{port}",
        "listener.security.protocol.map": f"OPEN:PLAINTEXT,OWN:{variant.protocol}",
        "log.flush.policy": "os",
        "log.segment.delete.delay.ms": "1000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "sasl.enabled.mechanisms": f"{_PLAIN},{_SCRAM}",
    }
    if variant.has_rules:
        settings["authorizer.class.name"] = (
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
        settings["super.users"] = "User:ANONYMOUS"
    with TidelogProcess(data, settings=settings) as process:
        _prepare(variant, process.bootstrap)
        yield Secured(variant, process.pid, f"127.0.0.1:{port}", tls)


def _prepare(variant: Variant, bootstrap: str) -> None:
    """Topics with records, rules and quotas, by the listener that asks nothing."""
    loads.create_topic(bootstrap, TOPIC, 1, retention_bytes="2000000000")
    loads.create_topic(bootstrap, WIDE_TOPIC, 16, retention_bytes="200000000")
    loads.raw_produce(bootstrap, TOPIC, total_bytes=FILL_BYTES, batch_bytes=KIB_BATCH)
    connection = wire.Connection(bootstrap)
    if variant.has_rules:
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name="*",
                principal=f"User:{USER}",
                host="*",
                operation=Operation.ALL,
                permission_type=Permission.ALLOW,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        ]
        answer = ask(connection, CreateAclsRequest(creations=creations), 3)
        assert not any(result.error_code for result in answer.results), answer
    if variant.has_quotas:
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        entry = EntryData(
            entity=[EntityData(entity_type="user", entity_name=None)],
            ops=[OpData(key=key, value=MORE_THAN_ANYTHING) for key in keys],
        )
        answer = ask(connection, AlterClientQuotasRequest(entries=[entry]), 1)
        assert not any(result.error_code for result in answer.entries), answer
    connection.close()


# --- requests -----------------------------------------------------------------------------------


def _requests(running: Sequence[Secured], wanted: str, seconds: float, rounds: int) -> str:
    rows = [
        row
        for row in itertools.chain(produce_rows(TOPIC, WIDE_TOPIC), read_rows(TOPIC))
        if row.title in REQUESTS and wanted in row.title
    ]
    costs: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for row in rows:
            for secured in random.sample(running, len(running)):
                cost = _cost(secured, row, seconds)
                if number:  # the first round warms up
                    costs.setdefault(row.title, {}).setdefault(secured.title, []).append(cost)
    lines = [
        [title, *(f"{statistics.median(found[one.title]):,.1f}" for one in running)]
        for title, found in costs.items()
    ]
    return report.table(["request", *(one.title for one in running)], lines)


def _cost(secured: Secured, row: Row, seconds: float) -> float:
    connection = secured.connect()
    begun = secured.cpu_ns()
    sent = drive([(connection, row.frame)], seconds, IN_FLIGHT)
    used = secured.cpu_ns() - begun
    connection.close()
    return used / sent / 1_000


# --- logins -------------------------------------------------------------------------------------


def _logins(running: Sequence[Secured], count: int, rounds: int) -> str:
    kinds = [
        (secured, mechanism)
        for secured in running
        for mechanism in ((_PLAIN, _SCRAM) if secured.has_users else ("",))
        if secured.title != "quotas"
    ]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for secured, mechanism in random.sample(kinds, len(kinds)):
            begun, started = secured.cpu_ns(), time.perf_counter()
            for _ in range(count):
                secured.connect(mechanism).close()
            elapsed = time.perf_counter() - started
            used = secured.cpu_ns() - begun
            if number:
                figures = used / count / 1_000, count / elapsed
                found.setdefault((secured.title, mechanism), []).append(figures)
    lines = []
    for secured, mechanism in kinds:
        cpu, rate = zip(*found[secured.title, mechanism], strict=True)
        median = statistics.median(cpu), statistics.median(rate)
        lines.append([secured.title, mechanism, f"{median[0]:,.0f}", f"{median[1]:,.0f}"])
    return report.table(["security", "login", "CPU of the broker, µs", "logins/s"], lines)


def log_in(connection: wire.Connection, mechanism: str) -> None:
    """Log in as the user, with PLAIN or SCRAM-SHA-512."""
    answer = ask(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
    assert answer.error_code == 0, answer
    if mechanism == _PLAIN:
        _send(connection, f"\0{USER}\0{PASSWORD}".encode())
        return
    bare = f"n={USER},r=nonce".encode()
    first = _send(connection, b"n,," + bare)
    nonce, salt, iterations = (field.partition(b"=")[2] for field in first.split(b","))
    key = _salted(base64.b64decode(salt), int(iterations))
    client_key = hmac.digest(key, b"Client Key", "sha512")
    unproved = b"c=biws,r=" + nonce
    signature = hmac.digest(
        hashlib.sha512(client_key).digest(), b",".join([bare, first, unproved]), "sha512"
    )
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    _send(connection, unproved + b",p=" + base64.b64encode(proof))


@cache
def _salted(salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, iterations)


def _send(connection: wire.Connection, token: bytes) -> bytes:
    answer = ask(connection, SaslAuthenticateRequest(auth_bytes=token), 2)
    assert answer.error_code == 0, answer
    return bytes(answer.auth_bytes)


def ask(connection: wire.Connection, message: object, version: int) -> Any:
    """The decoded answer to one request."""
    frame = connection.ask(framed(message, version))
    key = message_spec(type(message)).api_key
    _, position = decode_response_header(frame, key, version)
    return decode_response(key, version, memoryview(frame), position)


# --- rules --------------------------------------------------------------------------------------


def _rules() -> str:
    source = random.Random(1)
    documents = [
        format_acl(
            Acl(
                resource_type=ResourceType.TOPIC,
                name=f"team-{number % 500}.topic-{number}",
                pattern=PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL,
                principal=f"User:user-{number % 200}",
                host="*",
                operation=Operation.READ,
                permission=Permission.ALLOW,
            )
        )
        for number in range(RULES)
    ]
    access = Access()

    def load() -> None:
        nonlocal access
        access = Access(parse_acl(one) for one in documents)

    asked = [
        (user(f"user-{number % 200}"), "10.0.0.1", Operation.READ, ResourceType.TOPIC,
         f"team-{number % 500}.topic-{number}")
        for number in source.sample(range(RULES), 5_000)
    ]  # fmt: skip
    once = _cpu_us(load, 1)
    first = _cpu_us(lambda: [access.decide(*one) for one in asked], len(asked))
    pairs = [(access.decided(*one[:2]), one) for one in asked]
    again = _cpu_us(lambda: [known.get(one[2:]) for known, one in pairs], len(asked))
    lines = [
        ["read and index all", f"{once:,.0f}"],
        ["decide about a topic the first time", f"{first:.1f}"],
        ["look a kept decision up", f"{again:.2f}"],
    ]
    return report.table(["what", "CPU, µs"], lines)


def _cpu_us(what: Callable[[], object], count: int) -> float:
    """The least of five runs, by one of `count`."""
    found = []
    for _ in range(5):
        begun = time.process_time_ns()
        what()
        found.append(time.process_time_ns() - begun)
    return min(found) / count / 1_000


if __name__ == "__main__":
    sys.exit(main())
