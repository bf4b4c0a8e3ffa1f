"""The order of Java's collections, against what Java 17 gives."""

import pytest

from broker.groups.streams.order import LoadQueue, hash_order


def filled(*loads: float) -> LoadQueue[str]:
    """A queue of "a", "b" and so on."""
    queue: LoadQueue[str] = LoadQueue()
    for name, load in zip("abcdefgh", loads, strict=False):
        queue.push(load, name)
    return queue


def emptied(queue: LoadQueue[str]) -> str:
    """All that is left, in the order in which it leaves."""
    left = ""
    while queue:
        left += queue.pop()
    return left


@pytest.mark.parametrize(
    ("names", "capacity", "expected"),
    [
        ("one two three four", 16, "four one two three"),
        ("one two three four five six seven", 4, "six four one seven two three five"),
        ("Aa BB C", 16, "Aa BB C"),
        ("BB Aa C", 16, "BB Aa C"),
        ("p-é p-\U0001f600 p-z", 3, "p-z p-é p-\U0001f600"),
    ],
)
def test_names_have_the_order_of_a_hash_map(names: str, capacity: int, expected: str) -> None:
    assert " ".join(hash_order(names.split(), capacity)) == expected


def test_equals_leave_a_queue_as_they_leave_a_binary_heap() -> None:
    assert emptied(filled(0, 0, 0, 0, 0)) == "aedcb"
    queue = filled(0, 0, 0, 0)
    given = ""
    for load in (1, 1, 1, 1, 2, 2, 2, 2):
        name = queue.pop()
        given += name
        queue.push(load, name)
    assert given == "adbcbcad"


def test_a_queue_gives_the_smallest_first() -> None:
    assert emptied(filled(3, 1, 4, 1.5, 9, 2, 6)) == "bdfacge"
