"""Apache Kafka's own command-line tools, run against the broker: what an operator would type.

Each case is one tool. The answer is read from what the tool prints, because that is what people
and their scripts read. One JVM at a time; they are started with small heaps.
"""

import asyncio
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pytest

from protocol import streams
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.support import kafka_peer
from tests.support.broker import RawClient

pytestmark = pytest.mark.timeout(300)

TOOL_TIMEOUT_S = 120
TOPICS = "org.apache.kafka.tools.TopicCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ALL_GROUPS = "org.apache.kafka.tools.GroupsCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END = "org.apache.kafka.tools.EndToEndLatency"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
SHARE_CONSUMER_PERF = "org.apache.kafka.tools.ShareConsumerPerformance"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the tools see every topic and group there is."""
    with TidelogProcess(tmp_path_factory.mktemp("tools") / "data") as broker:
        yield broker.bootstrap


def run(name: str, *arguments: str, stdin: str = "") -> str:
    """What the tool printed; it must end well."""
    code, text = ended(name, *arguments, stdin=stdin)
    assert code == 0, text[-3000:]
    assert "Exception" not in text, text[-3000:]
    return text


def refused(name: str, *arguments: str) -> str:
    """What the tool printed when it was refused."""
    code, text = ended(name, *arguments)
    assert code == 1, text[-3000:]
    return text


def ended(name: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """The tool's exit code and what it printed."""
    command = kafka_peer.tool_command(name, *arguments, heap="128m")
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def topic(address: str) -> str:
    """A topic of three partitions, a record a minute in partition 0, made with the tools."""
    name = harness.unique("tools")
    run(
        TOPICS,
        *("--bootstrap-server", address, "--create", "--topic", name, "--partitions", "3"),
        *("--config", "retention.ms=-1"),
    )
    lines = "".join(f"k{i}:v{i}\n" for i in range(30))
    run(
        CONSOLE_PRODUCER,
        *("--bootstrap-server", address, "--topic", name, "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=:"),
        stdin=lines,
    )
    return name


def test_topics_are_described_grown_and_deleted(address: str, topic: str) -> None:
    described = run(TOPICS, "--bootstrap-server", address, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=-1" in described
    name = harness.unique("grown")
    run(TOPICS, "--bootstrap-server", address, "--create", "--topic", name)
    run(TOPICS, "--bootstrap-server", address, "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in run(
        TOPICS, "--bootstrap-server", address, "--describe", "--topic", name
    )
    run(TOPICS, "--bootstrap-server", address, "--delete", "--topic", name)
    assert name not in run(TOPICS, "--bootstrap-server", address, "--list")


def test_offsets_are_shown_by_time(address: str, topic: str) -> None:
    def offsets(when: str) -> int:
        text = run(GET_OFFSETS, "--bootstrap-server", address, "--topic", topic, "--time", when)
        return sum(int(line.rsplit(":", 1)[1] or 0) for line in text.split())

    assert offsets("-1") == 30
    assert offsets("-2") == 0
    assert offsets(str(int(time.time() * 1000) - 3_600_000)) == 0


def test_a_group_consumes_and_is_reset_to_a_date(address: str, topic: str) -> None:
    group = harness.unique("console")
    run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", address, "--topic", topic, "--group", group),
        *("--from-beginning", "--max-messages", "30", "--timeout-ms", "30000"),
    )
    described = run(GROUPS, "--bootstrap-server", address, "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if topic in line]
    assert lags == ["0", "0", "0"]
    hour_ago = datetime.fromtimestamp(time.time() - 3600, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    reset = run(
        GROUPS,
        *("--bootstrap-server", address, "--group", group, "--topic", topic),
        *("--reset-offsets", "--to-datetime", hour_ago, "--execute"),
    )
    new_offsets = [line.split()[3] for line in reset.splitlines() if topic in line]
    assert new_offsets == ["0", "0", "0"]
    assert group in run(GROUPS, "--bootstrap-server", address, "--list")
    assert "Empty" in run(
        GROUPS, "--bootstrap-server", address, "--describe", "--group", group, "--state"
    )
    run(GROUPS, "--bootstrap-server", address, "--delete", "--group", group)
    assert group not in run(GROUPS, "--bootstrap-server", address, "--list")


def test_settings_of_every_kind_are_shown_and_changed(address: str, topic: str) -> None:
    where = ("--bootstrap-server", address, "--entity-type", "topics", "--entity-name", topic)
    run(CONFIGS, *where, "--alter", "--add-config", "segment.ms=3600000")
    assert "segment.ms=3600000" in run(CONFIGS, *where, "--describe")
    run(CONFIGS, *where, "--alter", "--delete-config", "segment.ms")
    assert "segment.ms=3600000" not in run(CONFIGS, *where, "--describe")
    node = ("--bootstrap-server", address, "--entity-name", "1", "--describe")
    assert "log.retention.ms" in run(CONFIGS, *node, "--entity-type", "brokers", "--all")
    assert "root=" in run(CONFIGS, *node, "--entity-type", "broker-loggers")
    group = ("--bootstrap-server", address, "--entity-type", "groups", "--entity-name", "g")
    assert "consumer.session.timeout.ms=45000" in run(CONFIGS, *group, "--describe", "--all")
    for kind in ("users", "clients", "client-metrics"):
        run(CONFIGS, "--bootstrap-server", address, "--entity-type", kind, "--describe")


def test_log_dirs_and_records_deleted(address: str, topic: str, tmp_path: Path) -> None:
    sizes = run(LOG_DIRS, "--bootstrap-server", address, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in sizes
    request = tmp_path / "delete.json"
    name = harness.unique("trimmed")
    run(TOPICS, "--bootstrap-server", address, "--create", "--topic", name)
    run(CONSOLE_PRODUCER, "--bootstrap-server", address, "--topic", name, stdin="a\nb\nc\n")
    request.write_text(
        f'{{"partitions":[{{"topic":"{name}","partition":0,"offset":2}}],"version":1}}'
    )
    deleted = run(DELETE_RECORDS, "--bootstrap-server", address, "--offset-json-file", str(request))
    assert "low_watermark: 2" in deleted


def test_the_cluster_tells_about_itself(address: str, topic: str) -> None:
    assert "Cluster ID:" in run(CLUSTER, "cluster-id", "--bootstrap-server", address)
    assert "id: 1" in run(API_VERSIONS, "--bootstrap-server", address)
    status = run(QUORUM, "--bootstrap-server", address, "describe", "--status")
    assert "LeaderId:" in status
    replicas = run(QUORUM, "--bootstrap-server", address, "describe", "--replication")
    assert "Leader" in replicas
    features = run(FEATURES, "--bootstrap-server", address, "describe")
    assert "metadata.version" in features


def test_transactions_are_listed(address: str, topic: str) -> None:
    listed = run(TRANSACTIONS, "--bootstrap-server", address, "list")
    assert "TransactionalId" in listed
    producers = run(
        TRANSACTIONS,
        *("--bootstrap-server", address, "describe-producers", "--topic", topic),
        *("--partition", "0"),
    )
    assert "ProducerId" in producers
    run(TRANSACTIONS, "--bootstrap-server", address, "find-hanging", "--broker-id", "1")


def test_moves_and_elections_have_nothing_to_do(address: str, topic: str, tmp_path: Path) -> None:
    assert "No partition reassignments found" in run(
        REASSIGN, "--bootstrap-server", address, "--list"
    )
    run(
        ELECTION,
        *("--bootstrap-server", address, "--election-type", "preferred"),
        "--all-topic-partitions",
    )


def test_moves_to_where_everything_is_are_done_at_once(
    address: str, topic: str, tmp_path: Path
) -> None:
    where = ("--bootstrap-server", address)
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(f'{{"topics":[{{"topic":"{topic}"}}],"version":1}}')
    proposed = run(
        REASSIGN,
        *(*where, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"),
    )
    plan.write_text(proposed.rstrip().rsplit("\n", 1)[1])
    moved = ("--execute", "--reassignment-json-file", str(plan), "--throttle", "1000000")
    said = run(REASSIGN, *where, *moved)
    assert "Successfully started" in said
    assert "throttle limit was set to 1000000 B/s" in said
    done = run(REASSIGN, *where, "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed" in done


@contextmanager
def open_transaction(address: str, topic: str) -> Iterator[tuple[str, int]]:
    """A transactional id and the first offset of its transaction, which has no end."""
    name = harness.unique("open")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": name, "log_level": 2}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    offsets: list[int] = []

    def delivered(_: object, message: confluent_kafka.Message) -> None:
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)

    producer.produce(topic, b"x", on_delivery=delivered)
    producer.flush(20)
    yield name, offsets[0]


def test_open_transactions_are_described_and_aborted(address: str) -> None:
    topic = harness.unique("transactions")
    harness.create_topic(address, topic, 1)
    where = ("--bootstrap-server", address)
    with open_transaction(address, topic) as (name, offset):
        assert name in run(TRANSACTIONS, *where, "list")
        described = run(TRANSACTIONS, *where, "describe", "--transactional-id", name)
        assert "Ongoing" in described
        assert f"{topic}-0" in described
        partition = ("--topic", topic, "--partition", "0")
        producers = run(TRANSACTIONS, *where, "describe-producers", *partition)
        assert str(offset) in producers.splitlines()[1].split()
        hanging = run(TRANSACTIONS, *where, "find-hanging", "--broker-id", "1")
        assert topic not in hanging, "its coordinator knows it"
        run(TRANSACTIONS, *where, "abort", *partition, "--start-offset", str(offset))
        after = run(TRANSACTIONS, *where, "describe-producers", *partition)
        assert "None" in after.splitlines()[1].split()
        run(TRANSACTIONS, *where, "forceTerminateTransaction", "--transactionalId", name)
        ends = run(TRANSACTIONS, *where, "describe", "--transactional-id", name)
        assert "Empty" in ends.splitlines()[1].split()


def test_access_control_is_refused_by_name(address: str) -> None:
    where = ("--bootstrap-server", address)
    new = ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    for arguments in (("--list",), new):
        assert "SecurityDisabledException" in refused(ACLS, *where, *arguments)


def test_users_are_added_described_and_removed(address: str) -> None:
    user = ("--bootstrap-server", address, "--entity-type", "users", "--entity-name", "scram")
    credential = "SCRAM-SHA-256=[iterations=8192,password=a]"
    assert "password" not in run(CONFIGS, *user, "--alter", "--add-config", credential)
    assert "SCRAM-SHA-256=iterations=8192" in run(CONFIGS, *user, "--describe")
    run(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in run(CONFIGS, *user, "--describe")


def test_quotas_are_set_described_and_removed(address: str) -> None:
    where = ("--bootstrap-server", address)
    user = (*where, "--entity-type", "users", "--entity-name", "quoted")
    run(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=1000,request_percentage=5")
    shown = run(CONFIGS, *user, "--describe")
    assert "producer_byte_rate=1000.0" in shown
    assert "request_percentage=5.0" in shown
    run(CONFIGS, *user, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in run(CONFIGS, *user, "--describe")
    added = ("--alter", "--add-config", "connection_creation_rate=1000")
    run(CONFIGS, *where, "--entity-type", "ips", "--entity-default", *added)
    removed = ("--alter", "--delete-config", "connection_creation_rate")
    run(CONFIGS, *where, "--entity-type", "ips", "--entity-default", *removed)


def test_features_keep_their_levels(address: str) -> None:
    where = ("--bootstrap-server", address)
    run(FEATURES, *where, "upgrade", "--feature", "transaction.version=2")
    assert "cannot be changed" in refused(
        FEATURES, *where, "downgrade", "--feature", "transaction.version=0"
    )
    assert "metadata.version=" in run(FEATURES, *where, "version-mapping")
    endpoints = run(CLUSTER, "list-endpoints", *where)
    assert "broker" in endpoints.splitlines()[1].split()


def test_groups_of_every_type_are_listed(address: str, topic: str) -> None:
    where = ("--bootstrap-server", address)
    group = harness.unique("newer")
    run(
        CONSOLE_CONSUMER,
        *(*where, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "30"),
        *("--command-property", "group.protocol=consumer", "--timeout-ms", "30000"),
    )
    (line,) = (line for line in run(ALL_GROUPS, *where, "--list").splitlines() if group in line)
    assert line.split()[1:] == ["Consumer", "consumer"]
    for listing in (SHARE_GROUPS, STREAMS_GROUPS, CLIENT_METRICS):
        assert group not in run(listing, *where, "--list")


def test_a_streams_application_is_reset(address: str, topic: str) -> None:
    group = harness.unique("streams")
    run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", address, "--topic", topic, "--group", group),
        *("--from-beginning", "--max-messages", "30", "--timeout-ms", "30000"),
    )
    reset = run(
        STREAMS_RESET,
        *("--bootstrap-server", address, "--application-id", group, "--input-topics", topic),
        *("--to-earliest", "--force"),
    )
    assert "Topic: " + topic in reset
    described = run(GROUPS, "--bootstrap-server", address, "--describe", "--group", group)
    assert {line.split()[3] for line in described.splitlines() if topic in line} == {"0"}


def test_performance_tools_measure(address: str) -> None:
    name, where = harness.unique("perf"), ("--bootstrap-server", address)
    harness.create_topic(address, name, 2)
    size = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    for more in ((), ("--transactional-id", name, "--transaction-duration-ms", "200")):
        assert "20000 records sent" in run(PRODUCER_PERF, *where, "--topic", name, *size, *more)
    read = run(CONSUMER_PERF, *where, "--topic", name, "--num-records", "40000")
    assert int(read.splitlines()[1].split(", ")[4]) >= 40_000
    few = ("--num-records", "50", "--producer-acks", "all", "--record-size", "100")
    assert "Percentiles" in run(END_TO_END, *where, "--topic", harness.unique("latency"), *few)


def test_verifiable_clients_see_what_they_send(address: str) -> None:
    name, where = harness.unique("verified"), ("--bootstrap-server", address)
    harness.create_topic(address, name, 1)
    sent = run(VERIFIABLE_PRODUCER, *where, "--topic", name, "--max-messages", "100")
    assert '"sent":100,"acked":100' in sent
    for protocol in ("classic", "consumer"):
        seen = run(
            VERIFIABLE_CONSUMER,
            *(*where, "--topic", name, "--group-id", f"{name}-{protocol}", "--group-protocol"),
            *(protocol, "--reset-policy", "earliest", "--max-messages", "100"),
        )
        counts = re.findall(r'"name":"records_consumed","count":(\d+)', seen)
        assert sum(map(int, counts)) == 100, seen[-2000:]


def test_delegation_tokens_need_a_secured_listener(address: str) -> None:
    where = ("--bootstrap-server", address, "--command-config", "/dev/null")
    renewal = ("--renew", "--hmac", "AAAA", "--renew-time-period", "-1")
    for asked in (("--create", "--max-life-time-period", "-1"), ("--describe",), renewal):
        said = refused(DELEGATION_TOKENS, *where, *asked)
        assert "Delegation Token requests are not allowed" in said


def test_other_brokers_and_controllers_are_not_there(address: str) -> None:
    where = ("--bootstrap-server", address)
    said = refused(CLUSTER, "unregister", *where, "--id", "9")
    assert "BrokerIdNotRegisteredException" in said
    said = refused(CLUSTER, "unregister", *where, "--id", "1")
    assert "Broker 1 is running, so it stays registered" in said
    removal = ("remove-controller", "--controller-id", "9")
    said = refused(QUORUM, *where, *removal, "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    assert "UnsupportedVersionException" in said


def test_replicas_are_verified(address: str, topic: str) -> None:
    """The tool runs until it is stopped; a first report says that no replica is behind."""
    command = kafka_peer.tool_command(
        REPLICA_VERIFICATION,
        *("--broker-list", address, "--topics-include", topic),
        *("--report-interval-ms", "500"),
        heap="128m",
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(TOOL_TIMEOUT_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    said = []
    with process:
        for line in process.stdout:
            said.append(line)
            if "max lag is 0 for partition" in line:
                break
        else:
            raise AssertionError("".join(said))
        process.kill()
    watchdog.cancel()


def test_share_consumers_are_measured(address: str) -> None:
    name, where = harness.unique("share-perf"), ("--bootstrap-server", address)
    harness.create_topic(address, name, 1)
    earliest = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    run(CONFIGS, *where, "--entity-type", "groups", "--entity-name", name, *earliest)
    size = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    run(PRODUCER_PERF, *where, "--topic", name, *size)
    read = run(
        SHARE_CONSUMER_PERF,
        *(*where, "--topic", name, "--group", name, "--num-records", "20000"),
        *("--threads", "2", "--timeout", "60000"),
    )
    names, figures = (line.split(", ") for line in read.splitlines()[-2:])
    assert int(figures[names.index("data.consumed.in.nMsg")]) >= 20_000, read


def test_streams_groups_are_described_reset_and_deleted(address: str) -> None:
    where, group = ("--bootstrap-server", address), harness.unique("streaming")
    topic = harness.unique("streamed")
    harness.create_topic(address, topic, 1)
    run(CONSOLE_PRODUCER, *where, "--topic", topic, stdin="".join(f"{n}\n" for n in range(9)))
    asyncio.run(leave_a_streams_group(address, topic, group))
    named = (*where, "--group", group)
    assert group in run(STREAMS_GROUPS, *where, "--list", "--state", "Empty")
    assert "Empty" in run(STREAMS_GROUPS, *named, "--describe", "--state", "--verbose")

    def reset(*target: str) -> str:
        """The offset that the tool shows."""
        said = run(STREAMS_GROUPS, *named, "--reset-offsets", "--input-topic", topic, *target)
        (row,) = (line.split() for line in said.splitlines() if line.startswith(group))
        return row[3]

    assert reset("--to-current", "--dry-run") == "7"
    assert reset("--shift-by", "-4", "--execute") == "3"
    assert reset("--to-current", "--dry-run") == "3"
    deleted = run(STREAMS_GROUPS, *named, "--delete-offsets", "--input-topic", topic)
    assert "Successful" in deleted
    run(STREAMS_GROUPS, *named, "--delete")
    assert group not in run(STREAMS_GROUPS, *where, "--list")


async def leave_a_streams_group(address: str, topic: str, group: str) -> None:
    """A group of Kafka Streams that has committed offset 7 of partition 0, and no member left."""
    host, port = address.split(":")
    client = await RawClient.connect(host, int(port))
    reads = streams.Subtopology(subtopology_id="0", source_topics=[topic])
    joins = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="member",
        rebalance_timeout_ms=1000,
        topology=streams.Topology(epoch=0, subtopologies=[reads]),
        process_id="process",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    joined = await client.request(joins, 0)
    assert joined.error_code == 0, joined
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    committed = await client.request(
        OffsetCommitRequest(
            group_id=group,
            member_id="member",
            generation_id_or_member_epoch=joined.member_epoch,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        ),
        9,
    )
    assert committed.topics[0].partitions[0].error_code == 0, committed
    leaves = StreamsGroupHeartbeatRequest(group_id=group, member_id="member", member_epoch=-1)
    assert (await client.request(leaves, 0)).error_code == 0
    await client.close()
