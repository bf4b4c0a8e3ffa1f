"""Every client of the matrix, every scenario it has: what it did must be what was asked.

The test ids read `test_<scenario>[<client>]`; `tests.compat.report` turns a run of this module
into docs/compatibility-clients.md.
"""

import time
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.conftest import Seeder
from tests.compat.matrix import CLIENTS, CORE, PENDING, Client

pytestmark = pytest.mark.timeout(600)

PRODUCED = 60
PARTITIONS = 3


def _core_marks(client: Client) -> list[pytest.MarkDecorator]:
    return [pytest.mark.core] if client.name in CORE else []


def clients_with(scenario: str) -> pytest.MarkDecorator:
    """One case per client that has the scenario; what the broker still lacks is a strict xfail."""
    cases = []
    for client in CLIENTS:
        if scenario in client.scenarios:
            reason = PENDING.get((client.name, scenario)) or PENDING.get(("*", scenario))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            marks += _core_marks(client)
            cases.append(pytest.param(client, id=client.name, marks=marks))
    return pytest.mark.parametrize("client", cases)


def _codec_cases() -> list[object]:
    return [
        pytest.param(client, codec, id=f"{client.name}-{codec}", marks=_core_marks(client))
        for client in CLIENTS
        for codec in client.codecs
    ]


@pytest.mark.parametrize(("client", "codec"), _codec_cases())
def test_produce(client: Client, codec: str, bootstrap: str) -> None:
    topic = harness.unique("produce")
    harness.create_topic(bootstrap, topic, PARTITIONS)
    before = int(time.time() * 1000)
    base = before - 3_600_000
    result = harness.run(
        client,
        "produce",
        bootstrap=bootstrap,
        topic=topic,
        count=PRODUCED,
        partitions=PARTITIONS,
        codec=codec,
        base=base,
    )
    assert result == {"acked": PRODUCED}
    stored = harness.read_topic(bootstrap, topic, PARTITIONS)
    expected = sorted(harness.expected_records(PRODUCED, PARTITIONS, base), key=lambda r: r[0])
    assert [(r.partition, r.key, r.value) for r in stored] == [(r[0], *r[2:]) for r in expected]
    if client.timestamps:
        assert [record.timestamp for record in stored] == [record[1] for record in expected]
        if client.headers:
            numbers = [record[2].removeprefix("key-").encode() for record in expected]
            assert [record.headers for record in stored] == [(("n", n),) for n in numbers]
    else:
        # The client's own clock, or none at all (-1) before message format v1 reached the client.
        assert {r.timestamp for r in stored if not before <= r.timestamp <= before + 60_000} <= {-1}


@clients_with("consume")
def test_consume(client: Client, bootstrap: str, seeder: Seeder) -> None:
    """Half of the topic, a commit, and a second process that goes on where the first stopped."""
    seeded = seeder.topic_for(client)
    group = harness.unique("group")
    half = len(seeded.records) // 2
    seen = []
    for _ in range(2):
        result = harness.run(
            client, "consume", bootstrap=bootstrap, topic=seeded.name, group=group, count=half
        )
        seen += result["records"]
    expected = [
        [r.partition, r.offset, r.timestamp if client.reads_timestamps else None, r.key, r.value]
        for r in seeded.records
    ]
    assert sorted(seen, key=lambda record: record[:2]) == expected


@clients_with("member")
def test_member(client: Client, bootstrap: str, folder: Path, seeder: Seeder) -> None:
    """A second member takes over a share of the partitions, and all of them when the first left."""
    seeded = seeder.topic_for(client)
    arguments = {"bootstrap": bootstrap, "topic": seeded.name, "group": harness.unique("group")}
    everything = list(range(seeded.partitions))
    with harness.Member(client, folder, **arguments) as first:
        harness.wait_until(lambda: first.assigned == everything, "the first member owning all")
        with harness.Member(client, folder, **arguments) as second:

            def shared() -> bool:
                one, other = first.assigned or [], second.assigned or []
                return bool(one) and bool(other) and sorted(one + other) == everything

            harness.wait_until(shared, "the partitions being shared")
            first.stop()
            harness.wait_until(lambda: second.assigned == everything, "the survivor owning all")
            second.stop()


@clients_with("times")
def test_times(client: Client, bootstrap: str, seeder: Seeder) -> None:
    """offsetsForTimes at, between, before and after the timestamps equals a brute-force scan."""
    seeded = seeder.topic_for(client)
    stamps = sorted({record.timestamp for record in seeded.records})
    asked = [0, stamps[0] - 1, *stamps[::9], stamps[5] + 1, stamps[-1], stamps[-1] + 1]
    result = harness.run(
        client,
        "times",
        bootstrap=bootstrap,
        topic=seeded.name,
        partitions=seeded.partitions,
        timestamps=",".join(map(str, asked)),
    )
    assert result["found"] == harness.brute_force(seeded.records, seeded.partitions, asked)


@clients_with("admin")
def test_admin(client: Client, bootstrap: str) -> None:
    result = harness.run(client, "admin", bootstrap=bootstrap, topic=harness.unique("admin"))
    assert result == {"partitions": 3, "config": "3600000", "deleted": True}


@clients_with("transact")
def test_transact(client: Client, bootstrap: str) -> None:
    """A read_committed consumer of the same client sees what was committed and nothing else."""
    topic = harness.unique("transact")
    harness.create_topic(bootstrap, topic, PARTITIONS)
    result = harness.run(
        client,
        "transact",
        bootstrap=bootstrap,
        topic=topic,
        id=harness.unique("transaction"),
        partitions=PARTITIONS,
    )
    assert result == {"committed": 20, "aborted": 10 if client.aborts else 0}
    consumed = harness.run(
        client,
        "consume",
        bootstrap=bootstrap,
        topic=topic,
        group=harness.unique("group"),
        count=20,
        isolation="read_committed",
    )
    values = {record[4] for record in consumed["records"]}
    assert values == {f"committed-{i}" for i in range(20)}
    stored = harness.read_topic(bootstrap, topic, PARTITIONS)
    assert len(stored) == result["committed"] + result["aborted"]


def test_every_client_is_in_some_scenario() -> None:
    orphans = [client.name for client in CLIENTS if not client.scenarios]
    assert not orphans
    names = [client.name for client in CLIENTS]
    assert len(set(names)) == len(names)
