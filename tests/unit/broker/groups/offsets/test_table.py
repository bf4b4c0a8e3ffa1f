from __future__ import annotations

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import ExpiryRule, OffsetTable

TP = ("t", 0)


def _everywhere(group_id: str) -> bool:
    return True


def _at(offset: int, *, ms: int = 0, expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", ms, expire_ms)


def test_what_has_an_unknown_group() -> None:
    table = OffsetTable()
    assert dict(table.of_group("g")) == {}
    assert not table.has_offsets("g")
    assert not table.is_unstable("g", TP)


def test_does_the_latest_commit_win() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1))
    table.commit("g", TP, _at(2))
    assert table.of_group("g")[TP].offset == 2


def test_is_a_group_gone_with_its_last_offset() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1))
    table.remove("g", ("t", 9))
    assert table.has_offsets("g")
    table.remove("g", TP)
    table.remove("g", TP)
    assert not table.has_offsets("g")


def test_is_a_prepared_offset_unstable_and_invisible() -> None:
    table = OffsetTable()
    table.prepare(7, "g", TP, _at(5))
    assert table.is_unstable("g", TP)
    assert not table.is_unstable("g", ("t", 1))
    assert TP not in table.of_group("g")
    assert table.has_offsets("g")
    assert list(table.groups()) == ["g"]


def test_does_a_commit_marker_make_it_count() -> None:
    table = OffsetTable()
    table.prepare(7, "g", TP, _at(5))
    table.complete(7, is_commit=True, has_ended=_everywhere)
    assert table.of_group("g")[TP].offset == 5
    assert not table.is_unstable("g", TP)


def test_does_an_abort_marker_drop_it() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1))
    table.prepare(7, "g", TP, _at(5))
    table.complete(7, is_commit=False, has_ended=_everywhere)
    assert table.of_group("g")[TP].offset == 1


def test_does_a_marker_touch_only_its_own_producer() -> None:
    table = OffsetTable()
    table.prepare(7, "g", TP, _at(5))
    table.prepare(8, "g", ("t", 1), _at(6))
    table.prepare(7, "h", TP, _at(9))
    table.complete(7, is_commit=True, has_ended=_everywhere)
    assert table.is_unstable("g", ("t", 1))
    assert table.of_group("h")[TP].offset == 9


def test_is_a_marker_without_offsets_nothing() -> None:
    OffsetTable().complete(7, is_commit=True, has_ended=_everywhere)


def test_does_a_plain_commit_overtake_a_prepared_one() -> None:
    """It lies later in the log than the prepared one, so it is the newer truth."""
    table = OffsetTable()
    table.prepare(7, "g", TP, _at(5))
    table.commit("g", TP, _at(9))
    assert table.is_unstable("g", TP)
    table.complete(7, is_commit=True, has_ended=_everywhere)
    assert table.of_group("g")[TP].offset == 9


def test_does_a_marker_touch_only_the_groups_it_was_written_for() -> None:
    """Each partition of the offsets topic has a marker of its own."""
    table = OffsetTable()
    table.prepare(7, "g", TP, _at(5))
    table.prepare(7, "h", TP, _at(6))
    table.complete(7, is_commit=True, has_ended=lambda group_id: group_id == "g")
    assert (table.has_pending("g"), table.has_pending("h")) == (False, True)
    table.complete(7, is_commit=True, has_ended=_everywhere)
    assert table.of_group("h")[TP].offset == 6


def test_does_a_tombstone_take_a_prepared_offset_away() -> None:
    """As it does when the log is read again: the marker that comes later brings nothing back."""
    table = OffsetTable()
    table.commit("g", TP, _at(1))
    table.prepare(7, "g", TP, _at(5))
    table.prepare(7, "g", ("u", 0), _at(5))
    table.prepare(8, "g", TP, _at(6))
    assert sorted(table.partitions_of("g")) == [TP, ("u", 0)]
    table.remove("g", TP)
    assert not table.is_unstable("g", TP)
    table.complete(7, is_commit=True, has_ended=_everywhere)
    table.complete(8, is_commit=True, has_ended=_everywhere)
    assert set(table.of_group("g")) == {("u", 0)}
    assert not table.has_pending("g")


def test_do_offsets_of_a_group_without_members_age_from_their_commit() -> None:
    table = OffsetTable()
    table.commit("g", ("t", 0), _at(1, ms=100))
    table.commit("g", ("t", 1), _at(1, ms=101))
    rule = ExpiryRule(now_ms=1100, retention_ms=1000)
    assert table.find_expired("g", rule) == [("t", 0)]


def test_do_offsets_of_an_empty_group_age_from_its_emptying() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1, ms=0))
    rule = ExpiryRule(now_ms=1100, retention_ms=1000, ages_since_ms=101)
    assert table.find_expired("g", rule) == []
    rule = ExpiryRule(now_ms=1101, retention_ms=1000, ages_since_ms=101)
    assert table.find_expired("g", rule) == [TP]


def test_does_a_retention_of_its_own_go_first() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1, ms=0, expire_ms=50))
    assert table.find_expired("g", ExpiryRule(now_ms=50, retention_ms=1000)) == [TP]
    assert table.find_expired("g", ExpiryRule(now_ms=49, retention_ms=10)) == []


def test_do_offsets_in_use_never_age() -> None:
    table = OffsetTable()
    table.commit("g", TP, _at(1))
    table.commit("g", ("u", 0), _at(1))
    table.prepare(7, "g", ("u", 0), _at(2))
    rule = ExpiryRule(now_ms=10_000, retention_ms=1, subscribed_topics=frozenset({"t"}))
    assert table.find_expired("g", rule) == []
