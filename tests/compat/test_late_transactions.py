"""A producer ends a transaction that the coordinator has aborted for its age.

Java's newest producer, librdkafka and franz-go begin, write, sleep past `transaction.timeout.ms`
and then commit or abort. What they make of it is what they make of it on Apache Kafka 4.3.1
(`COMPAT_BROKER=kafka-4.3.1` proves the table), and the next transaction is whole: read_committed
shows `next` and nothing else. librdkafka does not speak transaction version 2, and is fenced on
both.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from protocol.api.describe_transactions import DescribeTransactionsRequest
from protocol.api_keys import ApiKey
from tests.compat import harness
from tests.compat.matrix import CLIENTS
from tests.compat.test_transactions_killed import read_committed
from tests.support.wire import Wire

pytestmark = pytest.mark.timeout(200)

TIMEOUT_MS = 1_000
WAIT_S = 60

OUTCOMES = {
    ("Java 4.3.1", "abort"): ("done", True),
    ("Java 4.3.1", "commit"): ("InvalidTxnStateException", False),
    ("confluent-kafka newest", "abort"): ("_FENCED", False),
    ("confluent-kafka newest", "commit"): ("_FENCED", False),
    ("franz-go 1.22", "abort"): ("done", True),
    ("franz-go 1.22", "commit"): ("INVALID_TXN_STATE", False),
}
"""(client, end) -> how it ended, and whether the same producer can go on."""


def wait_for_the_abort(bootstrap: str, transactional_id: str) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with Wire(bootstrap) as wire:

        def is_aborted() -> bool:
            (found,) = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, 0).transaction_states
            return str(found.transaction_state) == "CompleteAbort"

        harness.wait_until(is_aborted, "the abort", WAIT_S)


@pytest.mark.parametrize(("name", "end"), OUTCOMES, ids=lambda each: each)
def test_what_follows_a_transaction_that_timed_out(
    bootstrap: str, tmp_path: Path, name: str, end: str
) -> None:
    client = next(each for each in CLIENTS if each.name == name)
    topic, transactional_id = harness.unique("late"), harness.unique("late-id")
    harness.create_topic(bootstrap, topic, 1)
    go = tmp_path / "go"
    facts = {"bootstrap": bootstrap, "topic": topic, "id": transactional_id, "end": end, "go": go}
    process = subprocess.Popen(
        harness.command_line(client, "late", {**facts, "timeout_ms": TIMEOUT_MS}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **client.environment()},
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert json.loads(first or "{}") == {"written": True}, process.communicate()[1][-2000:]
        wait_for_the_abort(bootstrap, transactional_id)
        time.sleep(0.1)
        go.touch()
        output, errors = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors[-2000:]
    result = json.loads(output.splitlines()[-1])
    assert (result["ended"], result["survives"]) == OUTCOMES[name, end]
    assert read_committed(bootstrap, topic, 0) == ["next"]
