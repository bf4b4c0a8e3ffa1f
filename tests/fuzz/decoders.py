"""Malformed bytes for every reader of bytes by the million: `python -m tests.fuzz.decoders`.

What peers send (frames, headers, each version of each API, batches of records in their three
formats, the four codecs, certificates, key stores, tokens, pushes of metrics) and what files have
that something else may have changed (snapshots, checkpoints, journals, indexes, records of internal
topics, settings). Each may refuse its input with the errors of its own kind; another exception is a
finding, and so are 50 ms of CPU for one input. Where a format has a checksum, half of the inputs
get the right one, so that damage comes past it.

`--inputs N` for each machine (3 % of them for whole files of settings), or `--cpu-seconds S`, the
same time for each of them: the fast ones get more inputs then. `--only WORD` one of them,
`--guided` with libFuzzer (`make fuzz-guided` installs it). Prints one line of JSON for each
machine; the exit code is 1 when anything was found.
"""

import argparse
import hashlib
import json
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from broker.groups.offsets import records as offset_records
from broker.net.receive import FrameReceiver
from broker.principal import parse_principals
from broker.security.acls import parse_acl
from broker.security.credentials import UnreadableCredential, parse_credential
from broker.security.jaas import parse_jaas
from broker.security.oauth.keys import KeysUnusable, parse_keys
from broker.security.tls.certificate import read_certificate
from broker.security.tls.distinguished_name import MalformedName
from broker.security.tls.keystores import StoreUnusable, read_store
from broker.security.tls.principal_mapping import NoRuleMatches, PrincipalMapping, RuleRefused
from broker.telemetry import otlp
from broker.transactions import records as transaction_records
from broker.transactions.state import TxnSnapshot, TxnState
from config import ConfigErrors, load
from protocol import registry
from protocol.declare.primitives import Direction
from protocol.errors import MalformedFrame, MalformedRequest, RecordsError
from protocol.headers import decode_response_header
from protocol.patterns import PatternRefused, compile_pattern
from protocol.records.checksums import crc32c
from protocol.records.compression import compress, decompress
from protocol.records.layout import Codec
from protocol.stored.codec import UnknownRecord
from protocol.stored.consumer_protocol import decode_assignment, decode_subscription
from protocol.time_windows import MalformedWindow, parse_window
from storage.directory.metadata_journal import damage_position, read_documents, read_topics
from storage.disk import checkpoints
from storage.kafka import kraft_records
from storage.log.leader_epochs import parse_leader_epochs
from storage.producers.snapshots import CorruptSnapshot, decode_snapshot, encode_snapshot
from storage.producers.state import ProducerEntry
from storage.segment.auxiliary_index import DamagedAuxiliaryIndex
from storage.segment.density import parse_density
from storage.segment.time_counts import parse_counts
from tests.fuzz import sasl
from tests.fuzz.driving import Machine, drive, drive_guided
from tests.property.test_records_mutation import FORMATS, REFUSED, readers, sealed, sound
from tests.support.certificates import authority, der_of
from tests.support.codec import decode_request, decode_request_header, encode_body
from tests.support.identity_provider import SigningKey, jwks
from tests.support.keystores import jks
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

NUMBERS = (
    *(struct.pack(">i", value) for value in (-(2**31), -2, -1, 0, 1, 2**15 - 1, 2**31 - 1)),
    *(struct.pack(">h", value) for value in (-(2**15), -1, 0, 2**15 - 1)),
    *(struct.pack(">q", value) for value in (-(2**63), -1, 2**63 - 1)),
    b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 5, b"\x00", b"\x7f",
    b"x" * 300, b"\xed\xa0\x80",
)  # fmt: skip
TEXTS = (
    b"\0", b"\n", b"\r\n", b" ", b"=", b":", b",", b";", b"/", b"\\", b"\\u", b"\\ud800", b"$",
    b"$9", b"${", b"}", b"{", b"[", b"[" * 200, b"]", b'"', b"'", b"null", b"true", b"-1",
    b"1e400", b"NaN", b"9" * 40, b"\xff", b"\xc3\xa4", b"\xed\xa0\x80", b"%", b"(", b")", b"*",
    b"(?=", b"RULE:",
    b"DEFAULT", b"listener.name.", b"ssl.", b"file:", b"env:", b"://", b"x" * 2000,
)  # fmt: skip
DECOMPRESSED_MAX = 1 << 20
PASSWORD = "changeit"


def binary(
    target: Callable[[bytes], object], seeds: list[bytes], *refusals: type[Exception]
) -> Machine:
    return Machine(target=target, seeds=seeds, refusals=refusals, pieces=NUMBERS)


def text(
    target: Callable[[str], object],
    seeds: list[str],
    *refusals: type[Exception],
    share: float = 1.0,
) -> Machine:
    """A reader of text gets what is UTF-8, and else each byte as a character."""

    def of_bytes(message: bytes) -> object:
        try:
            return target(message.decode())
        except UnicodeDecodeError:
            return target(message.decode("latin-1"))

    good = [seed.encode() for seed in seeds]
    return Machine(target=of_bytes, seeds=good, refusals=refusals, pieces=TEXTS, share=share)


# --- what peers send ------------------------------------------------------------------------------


def messages(direction: Direction) -> Machine:
    """The first two bytes choose the API and its version."""
    layouts = [layout for layout in LAYOUTS if layout.direction is direction]

    def target(message: bytes) -> object:
        layout = layouts[int.from_bytes(message[:2], "big") % len(layouts)]
        if direction is Direction.REQUEST:
            return decode_request(layout.key, layout.version, message[2:])
        return registry.decode_response(layout.key, layout.version, memoryview(message), 2)

    def seed(number: int, layout: Layout, length: int) -> bytes:
        message = sample(layout, nulls=length == 0, length=length)
        return number.to_bytes(2, "big") + encode_body(message, layout.version)

    seeds = [
        seed(number, layout, length) for number, layout in enumerate(layouts) for length in (2, 0)
    ]
    return binary(target, seeds, MalformedRequest)


def read_headers(message: bytes) -> object:
    header, _ = decode_request_header(message)
    return header, decode_response_header(message, header.api_key, header.api_version)


def cut_frames(message: bytes) -> object:
    """In reads of the size that the first byte says, but in a hundred at most."""
    receiver = FrameReceiver(1 << 16)
    size = max(1, message[0] if message else 1, len(message) // 100)
    frames: list[bytes] = []
    for start in range(1, len(message), size):
        part = message[start : start + size]
        while part:
            place = receiver.buffer()
            fitting = part[: len(place)]
            place[: len(fitting)] = fitting
            frames += map(bytes, receiver.received(len(fitting)))
            while receiver.rest:
                frames += map(bytes, receiver.cut_rest())
            part = part[len(fitting) :]
    assert sum(map(len, frames)) <= len(message)
    return frames


def read_batches(message: bytes) -> object:
    """By every way in which the product looks at records; with an even first byte sealed."""
    data = message[1:]
    if message and message[0] % 2 == 0 and len(data) > 60:
        data = sealed(bytearray(data))
    refusals = 0
    for read in readers(data):
        try:
            read()
        except REFUSED:
            refusals += 1
    return refusals or None


def unpack(message: bytes) -> object:
    codec = list(Codec)[message[0] % len(Codec)] if message else Codec.NONE
    out = decompress(codec, message[1:], max_bytes=DECOMPRESSED_MAX)
    assert len(out) <= DECOMPRESSED_MAX
    return out


def of_peers() -> Iterator[tuple[str, Machine]]:
    yield "requests", messages(Direction.REQUEST)
    yield "answers", messages(Direction.RESPONSE)
    heads = [bytes.fromhex("0003 000c 00000007 0002 6d65 01 05 01 00 0102"), bytes(14)]
    yield "headers", binary(read_headers, heads, MalformedRequest)
    frames = [
        b"\x03" + b"\0\0\0\x05hello" * 3,
        b"\xff" + b"\0\0\x10\0" + bytes(4096) + b"\0\0\0\1a",
    ]
    yield "frames", binary(cut_frames, frames, MalformedFrame)
    batches = [bytes([first]) + sound(*form) for form in FORMATS for first in (0, 1)]
    yield "batches", binary(read_batches, batches)
    packed = [
        bytes([number]) + bytes(compress(codec, b"tide " * 40))
        for number, codec in enumerate(Codec)
        if codec is not Codec.NONE
    ]
    yield "codecs", binary(unpack, packed, RecordsError)
    subscriptions = [
        bytes.fromhex("0000 00000001 0001 74 00000001 61"),
        bytes.fromhex("0001 00000001 0001 74 ffffffff 00000001 0001 74 00000001 00000000"),
    ]
    yield "subscriptions", binary(decode_subscription, subscriptions, UnknownRecord)
    assignments = [bytes.fromhex("0000 00000001 0001 74 00000002 00000000 00000001 ffffffff")]
    yield "assignments", binary(decode_assignment, assignments, UnknownRecord)
    if otlp.is_installed():
        yield "pushes", binary(lambda message: otlp.read(message), [_push()], otlp.Unreadable)
    yield (
        "patterns",
        text(lambda word: compile_pattern(word), ["flights-.*", "(a|b)+$"], PatternRefused),
    )
    windows = ["t.__t__20261101T100000Z__20261101T110000Z", "t.__t__20261101T100000Z__"]
    yield "windows", text(parse_window, windows, MalformedWindow)
    with sasl.machines() as machines:
        for name, machine in machines.items():
            yield f"sasl {name}", machine


def _push() -> bytes:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_double=1.5, time_unix_nano=5)
    return bytes(data.SerializeToString())


# --- what files have ------------------------------------------------------------------------------


def summed(
    target: Callable[[bytes], object], seal: Callable[[bytes], bytes]
) -> Callable[[bytes], object]:
    """With an even first byte the right checksum, else what is there."""

    def one(message: bytes) -> object:
        data = message[1:]
        return target(seal(data) if message and message[0] % 2 == 0 else data)

    return one


def both(seeds: list[bytes]) -> list[bytes]:
    return [bytes([first]) + seed for seed in seeds for first in (0, 1)]


def seal_snapshot(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def seal_end(data: bytes) -> bytes:
    return data[:-4] + crc32c(data[:-4]).to_bytes(4, "big")


def seal_store(data: bytes) -> bytes:
    """The checksum of JKS, which needs the password."""
    covered = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + data[:-20]
    return data[:-20] + hashlib.sha1(covered).digest()


def seal_lines(data: bytes) -> bytes:
    lines = (line[9:] for line in data.split(b"\n") if line)
    return b"".join(b"%08x %b\n" % (crc32c(line), line) for line in lines)


def read_journal(data: bytes) -> object:
    for kind in ("scram", "acl", "quota", "token"):
        for key, document in read_documents(data, kind).items():
            read_security(kind, key, document)
    return damage_position(data), read_topics(data)


def read_security(kind: str, key: str, document: object) -> None:
    """What a start makes of it; it refuses with ValueError."""
    try:
        if kind == "scram":
            parse_credential(key, document)
        elif kind == "acl":
            parse_acl(document)
    except (UnreadableCredential, ValueError):
        pass


def of_files() -> Iterator[tuple[str, Machine]]:
    entry = ProducerEntry(producer_id=7, producer_epoch=1)
    snapshots = [encode_snapshot([entry]), encode_snapshot([])]
    yield (
        "snapshots",
        binary(summed(decode_snapshot, seal_snapshot), both(snapshots), CorruptSnapshot),
    )
    corrupt = checkpoints.CorruptCheckpoint
    offsets = [checkpoints.format_offsets({("t", 0): 5, ("u-1", 3): 2**40}), b""]
    yield "offsets", binary(checkpoints.parse_offsets, offsets, corrupt)
    yield "epochs", binary(parse_leader_epochs, [b"0\n2\n0 0\n3 17\n"], corrupt)
    ids = [checkpoints.format_partition_metadata(bytes(range(16)))]
    yield "topic ids", binary(checkpoints.parse_partition_metadata, ids, corrupt)
    owner = checkpoints.MetaProperties(node_id=1, cluster_id="c", directory_id=bytes(range(16)))
    owners = [checkpoints.format_meta_properties(owner)]
    yield "owners", binary(checkpoints.parse_meta_properties, owners, corrupt)
    journal = seal_lines(
        b'00000000 {"kind":"journal","key":"format","value":1}\n'
        b'00000000 {"kind":"topic","key":"t","value":{"topic_id":"AAECAwQFBgcICQoLDA0ODw"}}\n'
        b'00000000 {"kind":"changes","key":"","value":[["scram","SCRAM-SHA-256/ann",{"salt":"YQ==",'
        b'"stored":"YQ==","server":"YQ==","iterations":4096}]]}\n'
        b'00000000 {"kind":"acl","key":"1","value":{"resource_type":2,"resource_name":"t",'
        b'"pattern_type":3,"principal":"User:a","host":"*","operation":3,"permission":3}}\n'
    )
    yield "journals", binary(summed(read_journal, seal_lines), both([journal]))
    damaged = DamagedAuxiliaryIndex
    yield "time counts", binary(summed(parse_counts, seal_end), both([_counts()]), damaged)
    yield "densities", binary(parse_density, [_density()], damaged)
    yield (
        "metadata log",
        binary(
            kraft_records.decode, _metadata_records(), kraft_records.CorruptMetadata, UnknownRecord
        ),
    )
    yield "stored offsets", binary(_stored_offset, _stored_offsets(), UnknownRecord)
    snapshot = TxnSnapshot(
        transactional_id="tx", producer_id=7, producer_epoch=1, timeout_ms=60_000,
        state=TxnState.ONGOING, partitions=frozenset({("t", 0), ("u", 3)}), updated_ms=5,
    )  # fmt: skip
    values = [transaction_records.encode_key("tx"), transaction_records.encode_value(snapshot)]
    yield "stored transactions", binary(_stored_transaction, values, UnknownRecord)


def _stored_offset(message: bytes) -> object:
    for read in (
        offset_records.decode_key,
        offset_records.decode_offset_value,
        offset_records.decode_group_value,
    ):
        try:
            read(message)
        except UnknownRecord:
            continue
    return None


def _stored_transaction(message: bytes) -> object:
    try:
        return transaction_records.decode_key(message)
    except UnknownRecord:
        return transaction_records.decode_value("tx", message)


def _stored_offsets() -> list[bytes]:
    return [
        offset_records.encode_offset_key("g", "t", 0),
        offset_records.encode_group_key("g"),
        bytes.fromhex("0003 0000000000000005 ffffffff 0000 0000018000000000"),
    ]


def _counts() -> bytes:
    from storage.segment import time_counts

    head = time_counts.HEADER.pack(
        time_counts.MAGIC, time_counts.VERSION, 1000, 1, 0, 0, 0, 100, 5, 7
    )
    return seal_end(head + struct.pack(">qI", 5000, 3) + bytes(4))


def _density() -> bytes:
    from storage.segment import density

    head = density.HEADER.pack(density.MAGIC, density.VERSION, 1, 0, 1000, 5, 0)
    return seal_end(head) + bytes(density.ENTRY.size * 2)


def _metadata_records() -> list[bytes]:
    return [bytes([1, kind, version]) + bytes(24) for kind in range(30) for version in (0, 1)]


# --- settings and secrets -------------------------------------------------------------------------


SETTINGS = """\
listeners=SASL_SSL://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093
listener.security.protocol.map=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT
listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms=60000
ssl.keystore.location=server.pem
super.users=User:admin;User:CN=a\\,b
max.connections.per.ip.overrides=127.0.0.1:5,10.0.0.1:6
log.retention.hours=5
"""


def settings_of(syntax: str) -> Callable[[str], object]:
    return lambda words: load(file_text=words, file_name=f"server.{syntax}")


def map_principal(words: str) -> object:
    rules, _, subject = words.partition("\n")
    return PrincipalMapping(rules).name_of(subject)


def of_settings() -> Iterator[tuple[str, Machine]]:
    yield "properties", text(settings_of("properties"), [SETTINGS], ConfigErrors, share=0.03)
    toml = '"log.retention.hours" = 5\n[log]\ndirs = ["a"]\nsegment.bytes = 1048576\n'
    yield "toml", text(settings_of("toml"), [toml], ConfigErrors, share=0.03)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    line = f'{module} required username="a\\"b" password=\'c\' tokenauth=true;'
    yield "jaas", text(parse_jaas, [line])
    rules = "RULE:^CN=(.*?),OU=.*$/$1/L,RULE:(a|b)/x\\/$1/,DEFAULT\nCN=ann,OU=x"
    yield "principal rules", text(map_principal, [rules], RuleRefused, NoRuleMatches)
    yield "principals", text(parse_principals, ["User:a;User:CN=a\\,b,O=c"], ValueError)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ca = authority(place)
        der = der_of(ca)
        stores = [
            jks(PASSWORD, trusted=[der]),
            jks(PASSWORD, key=bytes(100), chain=[der]),
            b"\x30\x82\x01\x00" + bytes(200),
        ]
        keys = jwks(SigningKey())
    yield "certificates", binary(read_certificate, [der], MalformedName)
    yield (
        "key stores",
        binary(lambda content: read_store(content, PASSWORD, None), stores, StoreUnusable),
    )
    yield (
        "key sets",
        Machine(
            target=lambda document: parse_keys(document, "here"),
            seeds=[keys],
            refusals=(KeysUnusable,),
            pieces=TEXTS,
        ),
    )


def machines() -> Mapping[str, Machine]:
    """Every reader by its name."""
    return dict((*of_peers(), *of_files(), *of_settings()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="for each machine")
    parser.add_argument("--cpu-seconds", type=float, help="for each machine, instead of --inputs")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--only", default="", help="a part of the names of machines")
    parser.add_argument("--guided", action="store_true", help="with libFuzzer, by what is reached")
    parser.add_argument("--machine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = machines()
    if options.machine is not None:
        drive_guided(known[options.machine], options.inputs, options.seed)
        return 0
    found = total = 0
    for name, machine in known.items():
        if options.only not in name:
            continue
        if options.guided:
            found += _guided(name, int(options.inputs * machine.share), options.seed)
            continue
        if options.cpu_seconds is not None:
            tally = drive(machine, sys.maxsize, options.seed, cpu_s=options.cpu_seconds)
        else:
            tally = drive(machine, int(options.inputs * machine.share), options.seed)
        total += tally.inputs
        found += len(tally.findings)
        counts = {key: getattr(tally, key) for key in type(tally).__slots__}
        print(json.dumps({"machine": name, "seed": options.seed, **counts}), flush=True)
    if not options.guided:
        print(json.dumps({"inputs": total, "findings": found}), flush=True)
    return 1 if found else 0


def _guided(name: str, inputs: int, seed: int) -> bool:
    """In a process of its own, which libFuzzer ends; whether anything was found."""
    words = ["--machine", name, "--inputs", str(inputs), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.decoders", *words],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    stats = dict(
        line.removeprefix("stat::").split(":", 1)
        for line in done.stderr.splitlines()
        if line.startswith("stat::")
    )
    counts = {key: int(value) for key, value in stats.items() if value.strip().isdigit()}
    print(
        json.dumps({"machine": name, "seed": seed, "code": done.returncode, **counts}), flush=True
    )
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
