"""Unread answers: what a fetch may have, who is cut, and how seldom anybody is asked."""

import pytest

from broker.requests.answers import FETCH_SHARE, AnswerMemory

MIB = 1 << 20


class Peer:
    """A connection that leaves answers unread."""

    def __init__(self, unread_bytes: int = 0) -> None:
        self.unread = unread_bytes
        self.looks = 0
        self.reason = ""

    @property
    def unread_bytes(self) -> int:
        self.looks += 1
        return self.unread

    def cut(self, reason: str) -> None:
        self.reason = reason
        self.unread = 0


def memory(*peers: Peer, limit: int = 100 * MIB) -> AnswerMemory:
    return AnswerMemory(limit, lambda: peers)


def test_fetch_gets_what_it_wants_while_there_is_room() -> None:
    assert memory().fetch_bytes(10 * MIB) == 10 * MIB


def test_fetch_gets_a_share_of_what_is_left() -> None:
    answers = memory(Peer(60 * MIB))
    answers.made_bytes = 60 * MIB
    assert answers.fetch_bytes(50 * MIB) == 40 * MIB // FETCH_SHARE
    assert memory(Peer(200 * MIB)).fetch_bytes(50 * MIB) <= 100 * MIB // FETCH_SHARE


def test_nothing_but_a_batch_is_left_beyond_the_limit() -> None:
    answers = memory(Peer(200 * MIB))
    answers.made_bytes = 200 * MIB
    assert answers.fetch_bytes(50 * MIB) == 0


def test_what_is_being_made_counts() -> None:
    answers = memory()
    answers.reserve(80 * MIB)
    assert answers.fetch_bytes(50 * MIB) == 20 * MIB // FETCH_SHARE
    answer = object()
    answers.lease(answer, 80 * MIB)
    answers.release(answer)
    answers.release(answer)
    assert answers.unread_bytes == 0


def test_memory_is_not_given_back_twice() -> None:
    with pytest.raises(AssertionError, match="twice"):
        memory().reserve(-1)


def test_who_left_most_unread_is_cut_until_there_is_room() -> None:
    modest, greedy, other = Peer(20 * MIB), Peer(90 * MIB), Peer(30 * MIB)
    answers = memory(modest, greedy, other)
    answers.made_bytes = 140 * MIB
    answers.check(Peer())
    assert (modest.reason, other.reason) == ("", "")
    assert "queued.max.response.bytes" in greedy.reason
    assert (answers.cut, answers.unread_bytes) == (1, 50 * MIB)


def test_peer_that_is_being_answered_is_spared() -> None:
    answered, stalled = Peer(120 * MIB), Peer(10 * MIB)
    answers = memory(answered, stalled)
    answers.made_bytes = 130 * MIB
    answers.check(answered)
    assert (answered.reason, bool(stalled.reason)) == ("", True)


def test_no_connection_is_asked_before_it_could_be_too_much() -> None:
    """The cost of an answer is an addition and a comparison."""
    peer = Peer()
    answers = memory(peer)
    looks = []
    for _ in range(1000):
        answers.made_bytes += MIB
        if answers.made_bytes >= answers.look_at:
            answers.check(Peer())
        looks.append(peer.looks)
    assert looks[-1] <= 1000 // 100 + 2
