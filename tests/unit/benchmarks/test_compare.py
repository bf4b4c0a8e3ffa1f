"""In what order a comparison drives its brokers."""

from benchmarks import compare
from benchmarks.harness import brokers

RUNNING = [
    brokers.Running(name=name, bootstrap="127.0.0.1:1", pid=1, spawned_at=0.0) for name in "abcdef"
]


def test_the_order_of_a_seed_is_always_the_same_and_complete() -> None:
    first = compare.shuffled(RUNNING, "1/0/0")
    assert first == compare.shuffled(RUNNING, "1/0/0")
    assert sorted(broker.name for broker in first) == list("abcdef")


def test_a_broker_follows_another_one_from_cell_to_cell() -> None:
    orders = [[b.name for b in compare.shuffled(RUNNING, f"1/1/{place}")] for place in range(27)]
    before_a = {order[order.index("a") - 1] for order in orders if order[0] != "a"}
    assert before_a == set("bcdef")
