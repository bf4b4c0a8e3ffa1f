"""Share groups with Apache Kafka's own command-line tools, and its readers of our stored states."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.test_kafka_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    SHARE_GROUPS,
    TOPICS,
    run,
)
from tests.roundtrip.judge import findings
from tests.support import kafka_peer

pytestmark = pytest.mark.timeout(300)

CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE_SHARE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"
STATE_FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORDS = 30


def test_tools_of_share_groups(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with TidelogProcess(data) as broker:
        where = ("--bootstrap-server", broker.bootstrap)
        topic, group = harness.unique("shared"), harness.unique("sharers")
        run(TOPICS, *where, "--create", "--topic", topic, "--partitions", "2")
        lines = "".join(f"k{number}:v{number}\n" for number in range(RECORDS))
        keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        run(CONSOLE_PRODUCER, *where, "--topic", topic, *keyed, stdin=lines)
        reset = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
        run(CONFIGS, *where, "--entity-type", "groups", "--entity-name", group, *reset)
        _consumers(where, topic, group)
        _groups(where, topic, group)
        _states(where, group)
    _files(data, group)


def _consumers(where: tuple[str, str], topic: str, group: str) -> None:
    """The two consumers share the records: each record comes once."""
    text = run(
        CONSOLE_SHARE_CONSUMER,
        *(*where, "--topic", topic, "--group", group, "--max-messages", "10"),
        *("--timeout-ms", "30000"),
    )
    first = set(re.findall(r"^v\d+$", text, re.M))
    assert len(first) == 10
    left = RECORDS - 10
    text = run(
        VERIFIABLE_SHARE_CONSUMER,
        *(*where, "--topic", topic, "--group-id", group, "--max-messages", str(left)),
        *("--acknowledgement-mode", "sync", "--verbose"),
    )
    second = set(re.findall(r'"value":"(v\d+)"', text))
    assert first | second == {f"v{number}" for number in range(RECORDS)}
    assert first & second == set()
    assert "offsets_acknowledged" in text


def _groups(where: tuple[str, str], topic: str, group: str) -> None:
    """Every verb of the tool."""
    assert group in run(SHARE_GROUPS, *where, "--list")
    assert "Empty" in run(SHARE_GROUPS, *where, "--list", "--state")
    named = (*where, "--group", group)
    run(SHARE_GROUPS, *named, "--describe", "--offsets", "--verbose")
    described = run(SHARE_GROUPS, *named, "--describe")
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted(int(row[2]) for row in rows) == [0, 1]
    assert {row[4] for row in rows} == {"0"}, described
    assert "Empty" in run(SHARE_GROUPS, *named, "--describe", "--state")
    run(SHARE_GROUPS, *named, "--describe", "--members")
    scope = ("--reset-offsets", "--topic", topic)
    for target in (
        ("--to-latest", "--dry-run"),
        ("--to-datetime", "2020-01-01T00:00:00.000", "--execute"),
        ("--to-earliest", "--execute"),
    ):
        run(SHARE_GROUPS, *named, *scope, *target)
    described = run(SHARE_GROUPS, *named, "--describe")
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {row[3] for row in rows} == {"0"}
    assert group in run(SHARE_GROUPS, *where, "--describe", "--all-groups")
    run(SHARE_GROUPS, *named, "--delete-offsets", "--topic", topic)
    assert topic not in run(SHARE_GROUPS, *named, "--describe")
    run(SHARE_GROUPS, *named, "--delete")
    assert group not in run(SHARE_GROUPS, *where, "--list")


def _states(where: tuple[str, str], group: str) -> None:
    """Kafka's formatter reads snapshots and updates of the state topic."""
    text = run(
        CONSOLE_CONSUMER,
        *(*where, "--topic", "__share_group_state", "--from-beginning", "--timeout-ms", "8000"),
        *("--formatter", STATE_FORMATTER),
    )
    lines = [line for line in text.splitlines() if group in line]
    assert any('"snapshotEpoch":0' in line and '"startOffset":-1' in line for line in lines)
    assert any('"deliveryState":2' in line for line in lines)


def _files(data: Path, group: str) -> None:
    """Kafka's tool decodes the records in our files, and finds nothing wrong with them."""
    assert findings(data) == []
    for name, decoder, wanted in (
        ("__share_group_state-0", "--share-group-state-decoder", '{"type":"1",'),
        ("__consumer_offsets-0", "--offsets-decoder", '{"type":"11",'),
    ):
        files = ",".join(str(file) for file in sorted((data / name).glob("*.log")))
        command = kafka_peer.tool_command(DUMP, decoder, "--files", files)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout, done.stdout[-3000:]
        assert group in done.stdout
