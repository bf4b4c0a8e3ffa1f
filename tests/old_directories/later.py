"""Directories of features younger than 33ee9fd: `python -m tests.old_directories.later NAME`.

A run makes four archives, each with what the broker said of its contents before it stopped:
NAME-features-stopped and NAME-features-killed have a share group, a streams group, users, rules,
limits and a topic whose closed segments are in a bucket, which is in the archive too;
NAME-workers-stopped and NAME-workers-killed are those of three workers.
"""

import asyncio
import json
import os
import signal
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from protocol import streams
from protocol.api import alter_client_quotas, describe_client_quotas
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.api.metadata import MetadataRequest, MetadataResponseTopic
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.compat.brokers import TidelogProcess
from tests.integration.workers.support import pid_of
from tests.old_directories.write import ARCHIVES, PATIENCE_S, wait_for
from tests.support.broker import RawClient, batch
from tests.support.requests import create_topic, fetch, produce, values_of
from tests.support.share_group import ShareMember, set_group

SHARED, STREAM, TIERED, SPREAD = "shared", "lines", "tiered", "spread"
SHARE_GROUP, STREAMS_GROUP = "sharers", "word-count"
RECORDS = 20
ACCEPTED = 5
COMMITTED = 7
PARTITIONS = 6
WORKERS = 3
ACCEPT, RELEASE = 1, 2
ANY, LITERAL, ALLOW, TOPIC_RESOURCE, READ = 1, 3, 3, 2, 3
SCRAM_SHA_256 = 1
_SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
}
_TOPOLOGY = streams.Topology(
    epoch=0, subtopologies=[streams.Subtopology(subtopology_id="0", source_topics=[STREAM])]
)


def settings(kind: str, home: Path) -> dict[str, str]:
    """With which settings a broker starts on the directory of this kind in `home`."""
    if kind == "workers":
        return {**_SECURITY, "workers": str(WORKERS)}
    return {**_SECURITY, "remote.storage.url": f"file://{home}/bucket"}


def main() -> int:
    """Write the archives of the name on the command line."""
    (name,) = sys.argv[1:]
    for kind in ("features", "workers"):
        write(f"{name}-{kind}-stopped", kind, lambda broker: broker.stop())
        write(f"{name}-{kind}-killed", kind, _kill)
    return 0


def _kill(broker: TidelogProcess) -> None:
    """SIGKILL all processes, so that none of them writes any more."""
    numbers = range(2, int(broker.settings.get("workers", "1")) + 1)
    pids = [pid_of(broker.data_dir, number) for number in numbers]
    os.kill(broker.pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    broker.kill()
    for pid in pids:
        wait_for(partial(_has_ended, pid), f"process {pid} has ended")


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def write(name: str, kind: str, end: Callable[[TidelogProcess], None]) -> None:
    """Fill a directory, ask what is in it, `end` the broker and pack what it left."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "bucket").mkdir()
        broker = TidelogProcess(home / "data", settings=settings(kind, home))
        broker.start()
        asyncio.run(_filled(broker.bootstrap, kind))
        if kind == "features":
            first = home / "data" / f"{TIERED}-0" / f"{0:020d}.log"
            wait_for(lambda: not first.exists(), "the first segment is in the bucket only")
        expected = asyncio.run(contents(broker.bootstrap, kind))
        end(broker)
        (home / "expected.json").write_text(json.dumps(expected), encoding="utf-8")
        with tarfile.open(ARCHIVES / f"{name}.tar.xz", "w:xz") as archive:
            for member in ("data", "bucket", "expected.json"):
                archive.add(home / member, member)


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[dict[int, RawClient]]:
    """A client of each broker by its id; that of the first one is also number 0."""
    host, _, port = bootstrap.rpartition(":")
    first = await RawClient.connect(host, int(port))
    clients = {0: first}
    try:
        for broker in (await first.request(MetadataRequest(topics=[]), 12)).brokers:
            clients[broker.node_id] = await RawClient.connect(broker.host, broker.port)
        yield clients
    finally:
        for client in clients.values():
            await client.close()


async def topics(client: RawClient) -> list[MetadataResponseTopic]:
    """All topics as Metadata describes them."""
    return list((await client.request(MetadataRequest(topics=None), 12)).topics)


async def leaders(client: RawClient, topic: str) -> dict[int, int]:
    """The leader of each partition."""
    (found,) = (one for one in await topics(client) if one.name == topic)
    return {one.partition_index: one.leader_id for one in found.partitions}


async def _filled(bootstrap: str, kind: str) -> None:
    async with connected(bootstrap) as clients:
        await _secure(clients[0])
        if kind == "workers":
            await create_topic(clients[0], SPREAD, PARTITIONS, retention_ms="-1")
            for partition, leader in (await leaders(clients[0], SPREAD)).items():
                for number in range(RECORDS):
                    await append(clients[leader], SPREAD, b"%d" % number, partition=partition)
            return
        await _share(clients[0])
        await _stream(clients[0])
        await create_topic(
            clients[0],
            TIERED,
            segment_bytes="400",
            remote_storage_enable="true",
            local_retention_ms="0",
            retention_ms="-1",
            file_delete_delay_ms="0",
        )
        for number in range(RECORDS):
            await append(clients[0], TIERED, b"%d" % number + b"x" * 150)


async def append(client: RawClient, topic: str, value: bytes, *, partition: int = 0) -> int:
    """Append one record, also to a partition that was created only now; its offset."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        answer = await produce(client, topic, batch(value), partition=partition)
        if answer.error_code == 0 or asyncio.get_running_loop().time() > end:
            assert answer.error_code == 0, answer
            return int(answer.base_offset)
        await asyncio.sleep(0.05)


async def _secure(client: RawClient) -> None:
    """A user, a rule and a limit."""
    user = ScramCredentialUpsertion(
        name="alice",
        mechanism=SCRAM_SHA_256,
        iterations=4096,
        salt=b"salt of alice",
        salted_password=bytes(32),
    )
    changed = await client.request(AlterUserScramCredentialsRequest(upsertions=[user]), 0)
    rule = AclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name=SHARED,
        resource_pattern_type=LITERAL,
        principal="User:alice",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    created = await client.request(CreateAclsRequest(creations=[rule]), 3)
    limit = alter_client_quotas.EntryData(
        entity=[describe_client_quotas.EntityData(entity_type="user", entity_name="alice")],
        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e6)],
    )
    limited = await client.request(alter_client_quotas.AlterClientQuotasRequest(entries=[limit]), 1)
    errors = [one.error_code for one in (*changed.results, *created.results, *limited.entries)]
    assert errors == [0, 0, 0], (changed, created, limited)


async def _share(client: RawClient) -> None:
    """A share group: some records accepted, the others given back by a member that left."""
    topic_id = await create_topic(client, SHARED, retention_ms="-1")
    for number in range(RECORDS):
        await append(client, SHARED, b"%d" % number)
    await set_group(client, SHARE_GROUP, share_auto_offset_reset="earliest")
    member = ShareMember(client, SHARE_GROUP, topic_id)
    assert (await member.heartbeat(SHARED, epoch=0)).error_code == 0
    acquired = await acquire(member)
    assert acquired == dict.fromkeys(range(RECORDS), 1)
    answer = await member.acknowledge(
        (0, ACCEPTED - 1, [ACCEPT]), (ACCEPTED, RECORDS - 1, [RELEASE])
    )
    assert answer.responses[0].partitions[0].error_code == 0, answer
    assert (await member.heartbeat(epoch=-1)).error_code == 0


async def acquire(member: ShareMember) -> dict[int, int]:
    """What a member gets until nothing more comes: offsets, and how often they were delivered."""
    found: dict[int, int] = {}
    while True:
        got = await member.fetch(max_wait_ms=2_000)
        if not got.acquired:
            return found
        for first, last, count in got.acquired:
            found |= dict.fromkeys(range(first, last + 1), count)


async def _stream(client: RawClient) -> None:
    """A streams group: its topology and a committed offset; its member has left."""
    await create_topic(client, STREAM, retention_ms="-1")
    beat: dict[str, Any] = {"group_id": STREAMS_GROUP, "member_id": "member-1"}
    answer = await client.request(
        StreamsGroupHeartbeatRequest(
            **beat,
            member_epoch=0,
            topology=_TOPOLOGY,
            process_id="process-1",
            rebalance_timeout_ms=30_000,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        ),
        0,
    )
    assert answer.error_code == 0, answer
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=COMMITTED)
    committed = await client.request(
        OffsetCommitRequest(
            group_id=STREAMS_GROUP,
            member_id="member-1",
            generation_id_or_member_epoch=answer.member_epoch,
            topics=[OffsetCommitRequestTopic(name=STREAM, partitions=[part])],
        ),
        9,
    )
    assert committed.topics[0].partitions[0].error_code == 0, committed
    left = await client.request(StreamsGroupHeartbeatRequest(**beat, member_epoch=-1), 0)
    assert left.error_code == 0, left


async def contents(bootstrap: str, kind: str) -> dict[str, Any]:
    """Everything that clients can learn of the directory, as JSON."""
    async with connected(bootstrap) as clients:
        found: dict[str, Any] = await _security(clients[0])
        if kind == "workers":
            by_partition = await leaders(clients[0], SPREAD)
            found["leaders"] = {str(one): leader for one, leader in by_partition.items()}
            found["spread"] = {
                str(one): await values(clients[leader], SPREAD, one)
                for one, leader in by_partition.items()
            }
            return found
        found["tiered"] = await values(clients[0], TIERED)
        found["shared"] = await values(clients[0], SHARED)
        return found | await _groups(clients[0])


async def values(client: RawClient, topic: str, partition: int = 0) -> list[str]:
    """All values of a partition, those in a bucket too."""
    found: list[str] = []
    while len(found) < RECORDS:
        data = await fetch(client, topic, {partition: len(found)}, max_wait_ms=20_000)
        assert data.error_code == 0, data
        # Bytes from the bucket wake the request; what does not come within its time is not there.
        assert values_of(data), f"{topic}-{partition} ends at {len(found)}"
        found += [(value or b"").decode().rstrip("x") for value in values_of(data)]
    return found


async def _security(client: RawClient) -> dict[str, Any]:
    users = await client.request(DescribeUserScramCredentialsRequest(users=None), 0)
    rules = await client.request(
        DescribeAclsRequest(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
        3,
    )
    limits = await client.request(describe_client_quotas.DescribeClientQuotasRequest(), 1)
    return {
        "users": {
            user.user: [[one.mechanism, one.iterations] for one in user.credential_infos]
            for user in users.results
        },
        "rules": [
            [one.resource_name, rule.principal, rule.host, rule.operation, rule.permission_type]
            for one in rules.resources
            for rule in one.acls
        ],
        "limits": [
            [[part.entity_name for part in one.entity], [[v.key, v.value] for v in one.values]]
            for one in limits.entries or []
        ],
    }


async def _groups(client: RawClient) -> dict[str, Any]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=None)
    shares = await client.request(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    (stream,) = (
        await client.request(StreamsGroupDescribeRequest(group_ids=[STREAMS_GROUP]), 0)
    ).groups
    wanted = OffsetFetchRequestGroup(group_id=STREAMS_GROUP, topics=None)
    offsets = (await client.request(OffsetFetchRequest(groups=[wanted]), 9)).groups[0].topics
    assert stream.topology is not None
    return {
        "share starts": {
            topic.topic_name: [part.start_offset for part in topic.partitions]
            for topic in shares.groups[0].topics
        },
        "stream": [stream.group_state, stream.group_epoch, stream.topology.epoch],
        "subtopologies": {
            one.subtopology_id: one.source_topics for one in stream.topology.subtopologies or []
        },
        "stream offsets": {
            topic.name: [part.committed_offset for part in topic.partitions] for topic in offsets
        },
    }


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that are not as before."""
    return {
        name: (fact, found.get(name)) for name, fact in expected.items() if found.get(name) != fact
    }


if __name__ == "__main__":
    sys.exit(main())
