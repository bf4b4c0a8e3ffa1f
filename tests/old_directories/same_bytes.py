"""The bytes of a data directory after a fixed workload, for comparing two commits.

`python -m tests.old_directories.same_bytes CHECKOUT` prints the digest of each file that the broker
of CHECKOUT, a built working tree, wrote; `--keep DIRECTORY` keeps the files. The client and the
workload are always those of this commit. The broker's clocks stand still and its random numbers
have a seed (`frozen_broker`), so two runs of one commit write the same files.

Two runs of the broker, each with a clean stop: the first takes all writes, with cleaner and
retention off; the second compacts and deletes. Each pass of the second has the whole log before it,
so the result does not depend on when a pass begins.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.leave_group import LeaveGroupRequest
from protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from protocol.structs import ProtocolMetadata, TopicPartitions
from tests.old_directories.write import VARIANTS, wait_for
from tests.roundtrip import workload
from tests.support.wire import Wire

FROZEN_BROKER = Path(__file__).parent / "frozen_broker.py"
WALL_MS = workload.START_MS + 2 * 3_600_000
STOP_TIMEOUT_S = 60
_NEVER_MS = str(10**12)
QUIET = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": _NEVER_MS,
    "offsets.retention.check.interval.ms": _NEVER_MS,
}
BUSY = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "100",
    "offsets.retention.check.interval.ms": _NEVER_MS,
}
_LEFT_OUT = frozenset({".lock", ".deleted"})
"""The lock has the process id; a deleted segment waits for a clock that stands still."""

_DIGEST_LETTERS = 16
_MANIFEST_TAIL = re.compile(r"( min_timestamp=-?\d+)?( data_max_timestamp=-?\d+)? [0-9a-f]{8}$")
"""What is left out of manifest lines: a field that a background job fills in at a time of its own
after compaction, a field that 33ee9fd does not write, and the checksum over them."""

_CURRENT_ASSIGNMENT = (8).to_bytes(2, "big")
"""How the keys of a member's current assignment begin. Its value has the epochs of partitions now,
as in Kafka 4.3 (KIP-1251)."""

Digests = dict[str, str]


def _is_shorter(wire: Wire, topic: str) -> bool:
    return wire.offset_at(topic, -2).offset > 0


def digests(checkout: Path, directory: Path) -> Digests:
    """Run the workload on the broker of `checkout`; a digest of each file, by its path."""
    with _broker(checkout, directory, seed=1, settings=QUIET) as bootstrap, Wire(bootstrap) as wire:
        _fill(wire)
    with _broker(checkout, directory, seed=2, settings=BUSY) as bootstrap, Wire(bootstrap) as wire:
        wait_for(lambda: _is_compacted(directory), "the cleaner has compacted")
        for topic in ("aged", "crowded"):
            wait_for(partial(_is_shorter, wire, topic), f"{topic} is shorter")
    return {
        str(path.relative_to(directory)): _digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix not in _LEFT_OUT and path.name not in _LEFT_OUT
    }


def _digest(path: Path) -> str:
    """SHA-256, shortened.

    Of a manifest only the facts that count, since it is a journal. Of the offsets topic the records
    without the values of the one kind that has grown.
    """
    content = path.read_bytes()
    if path.parent.name.startswith("__consumer_offsets-") and path.suffix == ".log":
        entries = scan_entries(content)
        records = (it for entry in entries for it in iter_records(content, entry.position))
        content = "\n".join(map(_stored, records)).encode()
    elif path.name == "segment-manifest":
        lines = [_MANIFEST_TAIL.sub("", line) for line in content.decode().splitlines()]
        content = "\n".join(sorted({_subject(line): line for line in lines}.values())).encode()
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LETTERS]


def _stored(record: Record) -> str:
    is_grown = record.key is not None and record.key.startswith(_CURRENT_ASSIGNMENT)
    value = "" if is_grown and record.value is not None else repr(record.value)
    return f"{record.offset} {record.timestamp} {record.key!r} {value} {record.headers!r}"


def _subject(line: str) -> str:
    """What a line of a manifest is about; the last line about it counts."""
    kind, _, rest = line.partition(" ")
    return f"{kind} {rest.partition(' ')[0]}" if kind == "segment" else kind


def _fill(wire: Wire) -> None:
    """All formats and codecs, rolls, density files, transactions, one open, and groups."""
    sizes = workload.SMALL
    made = workload.topics(sizes)
    made["compacted"] = (1, {**sizes, "cleanup.policy": "compact", "segment.bytes": "300"})
    for variant in VARIANTS:
        made[f"density-{variant}"] = (1, {**sizes, "time.index.variant": variant})
    made["aged"] = (1, {**sizes, "segment.bytes": "5000", "retention.ms": "6000000"})
    made["crowded"] = (1, {**sizes, "segment.bytes": "5000", "retention.bytes": "12000"})
    workload.write(wire, made, rounds=8, old_formats=True)
    for topic in (*(f"density-{variant}" for variant in VARIANTS), "aged", "crowded"):
        workload.timed(wire, topic, rounds=90)
    workload.leave_open(wire, Random(5))
    _classic_group(wire)
    _consumer_group(wire)


def _classic_group(wire: Wire) -> None:
    """One member that joins, gets an assignment and leaves."""
    wire.find_coordinator("classic")
    join = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[ProtocolMetadata(name="range", metadata=b"metadata")],
    )
    joined = wire.ask_settled(ApiKey.JOIN_GROUP, join, 3, lambda got: got.error_code)
    sync = SyncGroupRequest(
        group_id="classic",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"assignment")
        ],
    )
    assert wire.ask(ApiKey.SYNC_GROUP, sync, 2).assignment == b"assignment"
    leave = LeaveGroupRequest(group_id="classic", member_id=joined.member_id)
    assert wire.ask(ApiKey.LEAVE_GROUP, leave, 1).error_code == ErrorCode.NONE


def _consumer_group(wire: Wire) -> None:
    """One member of the consumer protocol that subscribes, owns its partitions and leaves."""
    wire.find_coordinator("consumers")
    member = "AAAAAAAAAAAAAAAAAAAAAQ"
    join = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["formats"],
        topic_partitions=[],
    )
    got = wire.ask_settled(ApiKey.CONSUMER_GROUP_HEARTBEAT, join, 1, lambda got: got.error_code)
    topic_id, _partitions = wire.topics()["formats"]
    owned = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id=member,
        member_epoch=got.member_epoch,
        topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0, 1])],
    )
    leave = ConsumerGroupHeartbeatRequest(group_id="consumers", member_id=member, member_epoch=-1)
    for request in (owned, leave):
        assert wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, 1).error_code == ErrorCode.NONE


def _is_compacted(directory: Path) -> bool:
    """Whether the cleaner has reached the active segment and its last swap is complete."""
    partition = directory / "compacted-0"
    checkpoint = directory / "cleaner-offset-checkpoint"
    if not checkpoint.exists() or any(partition.glob("*.cleaned")):
        return False
    cleaned = re.search(r"^compacted 0 (\d+)$", checkpoint.read_text(encoding="utf-8"), re.M)
    active = max(int(path.stem) for path in partition.glob("*.log"))
    return cleaned is not None and int(cleaned[1]) >= active


@contextmanager
def _broker(
    checkout: Path, directory: Path, *, seed: int, settings: Mapping[str, str]
) -> Iterator[str]:
    """The address of a broker with the code of `checkout`, stopped cleanly at the end."""
    python = checkout / ".venv" / "bin" / "python"
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ["serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0", "--json", *pairs]
    command = [
        str(python if python.exists() else sys.executable),
        str(FROZEN_BROKER),
        str(WALL_MS),
        str(seed),
        *words,
    ]
    with (
        directory.with_suffix(".log").open("ab") as log,
        subprocess.Popen(
            command, cwd=checkout, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield f"{ready['host']}:{ready['port']}"
        finally:
            process.terminate()
            assert process.wait(STOP_TIMEOUT_S) == 0


def main() -> int:
    """Print the digests of one checkout as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--keep", type=Path, help="a new directory for the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        directory = (options.keep or Path(home, "data")).absolute()
        print(json.dumps(digests(options.checkout.absolute(), directory), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
