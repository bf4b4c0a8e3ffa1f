"""The stored form of groups of Kafka Streams: both ways, golden bytes, strange ones."""

from dataclasses import replace

import pytest

from broker.groups.record_keys import RecordKey
from broker.groups.streams.records import (
    KEYS,
    encode_change,
    take_record,
)
from broker.groups.streams.values import (
    CurrentTasks,
    Endpoint,
    GroupFacts,
    MemberFacts,
    MemberState,
    StoredStreamsGroup,
    StreamsChange,
    StreamsChangeKind,
    TaskSet,
)
from protocol.stored.codec import UnknownRecord
from protocol.streams import Subtopology, TopicInfo, Topology

_Kind = StreamsChangeKind
GROUP = GroupFacts(epoch=7, metadata_hash=-5, validated_topology_epoch=1, standby_replicas=2)
MEMBER = MemberFacts(
    rack_id="r",
    client_id="c",
    client_host="h",
    rebalance_timeout_ms=1000,
    topology_epoch=1,
    process_id="p",
    endpoint=Endpoint("host", 65_535),
    tags={"zone": "a"},
)
TARGET = TaskSet(frozenset({("0", 1), ("1", 0)}), frozenset({("1", 2)}))
CURRENT = CurrentTasks(
    member_epoch=3,
    previous_epoch=2,
    state=MemberState.UNREVOKED,
    assigned=TaskSet(frozenset({("0", 0), ("0", 1)}), frozenset({("1", 2)})),
    pending_revocation=TaskSet(frozenset({("0", 2)}), frozenset({("1", 3)})),
    since={("0", 0): 1, ("0", 1): 3, ("0", 2): 2},
)
TOPOLOGY = Topology(
    epoch=1,
    subtopologies=[
        Subtopology(
            subtopology_id="0",
            source_topics=["a"],
            state_changelog_topics=[TopicInfo(name="c", partitions=0)],
        )
    ],
)
CHANGES = {
    "group": StreamsChange(_Kind.GROUP, None, GROUP),
    "facts": StreamsChange(_Kind.MEMBER, "m", MEMBER),
    "assignment_epoch": StreamsChange(_Kind.ASSIGNMENT_EPOCH, None, 9),
    "targets": StreamsChange(_Kind.TARGET, "m", TARGET),
    "current": StreamsChange(_Kind.CURRENT, "m", CURRENT),
    "topology": StreamsChange(_Kind.TOPOLOGY, None, TOPOLOGY),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_change_is_read_as_it_was_written(field: str) -> None:
    change = CHANGES[field]
    key, value = encode_change("g", change)
    assert KEYS.includes(key)
    assert KEYS.decode(key) == RecordKey(change.kind, "g", change.member_id)
    found = StoredStreamsGroup()
    assert value is not None
    take_record(found, KEYS.decode(key), value)
    read = getattr(found, field)
    assert (read if change.member_id is None else read["m"]) == change.value


def test_the_bytes_are_those_of_kafka() -> None:
    key, value = encode_change("g", CHANGES["group"])
    assert key.hex() == "0011" + "000167"
    tags = "02" + "00" + "0400000001" + "01" + "19" + "02" + "15"
    configs = b"num.standby.replicas".hex() + "02" + "32" + "00"
    assert value is not None
    assert value.hex() == "0000" + "00000007" + "fffffffffffffffb" + tags + configs
    key, value = encode_change("g", CHANGES["assignment_epoch"])
    assert value is not None
    assert (key.hex(), value.hex()) == ("0014" + "000167", "0000" + "00000009" + "00")
    key, _ = encode_change("g", CHANGES["current"])
    assert key.hex() == "0016" + "000167" + "00016d"


def test_a_tombstone_has_no_value() -> None:
    assert encode_change("g", StreamsChange(_Kind.TOPOLOGY, None, None))[1] is None


def test_current_tasks_without_epochs_came_with_the_members_epoch() -> None:
    key, value = encode_change("g", StreamsChange(_Kind.CURRENT, "m", replace(CURRENT, since={})))
    found = StoredStreamsGroup()
    assert value is not None
    take_record(found, KEYS.decode(key), value)
    assert found.current["m"].had_since(("0", 0)) == 3
    assert found.current["m"].had_since(("1", 2)) is None


def test_an_unknown_state_of_a_member_is_not_read() -> None:
    key, value = encode_change("g", CHANGES["current"])
    assert value is not None
    strange = value[:10] + b"\x7f" + value[11:]
    with pytest.raises(UnknownRecord, match="state 127"):
        take_record(StoredStreamsGroup(), KEYS.decode(key), strange)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x12\x00\x01g", b"\x00\x03\x00\x01g"])
def test_keys_of_other_records_are_not_ours(key: bytes) -> None:
    assert not KEYS.includes(key)
