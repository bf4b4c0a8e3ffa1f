"""How long instances are remembered, and what a change of subscriptions does to them."""

from collections.abc import Mapping
from typing import Any, cast

from broker.telemetry.instances import Instances
from broker.telemetry.subscriptions import Subscriptions
from protocol.error_codes import ErrorCode
from storage.directory.metadata import Json

FACTS = {"client_id": "a", "client_instance_id": "i"}


class Documents:
    """A journal in memory."""

    def __init__(self, stored: Mapping[str, Json]) -> None:
        self.stored = dict(stored)

    def documents(self, kind: str) -> dict[str, Json]:
        assert kind == "client-metrics"
        return dict(self.stored)

    def put_documents(self, kind: str, documents: Mapping[str, Json]) -> None:
        self.stored.update(documents)


def subscriptions(interval_ms: int = 1000) -> Subscriptions:
    documents = Documents({"s": {"metrics": "*", "interval.ms": str(interval_ms)}})
    return Subscriptions(cast(Any, documents))


def test_a_silent_instance_is_forgotten_after_three_intervals_and_a_minute() -> None:
    for interval_ms, kept_ms in ((1000, 60_000), (100_000, 300_000)):
        instances = Instances(subscriptions(interval_ms))
        instances.get(b"i", FACTS, 0)
        assert instances.forget(kept_ms - 1) == []
        assert instances.forget(kept_ms) == [b"i"]
        assert len(instances) == 0


def test_the_one_that_was_silent_for_longest_goes_first() -> None:
    instances = Instances(subscriptions(), limit=10)
    names = [bytes([number]) for number in range(11)]
    for now_ms, name in enumerate([*names[:10], names[0]]):
        instances.get(name, FACTS, now_ms)
    assert len(instances) == 10
    instances.get(names[10], FACTS, 11)
    assert instances.are_too_many
    assert instances.forget(12) == [names[1], names[2]]
    assert len(instances) == 9


def test_a_stored_subscription_that_is_not_valid_has_no_effect() -> None:
    stored: dict[str, Json] = {
        "bad": {"metrics": "*", "interval.ms": "1"},
        "worse": {"metrics": "*", "match": "client_id=("},
        "good": {"metrics": "m"},
    }
    known = Subscriptions(cast(Any, Documents(stored)))
    assert known.wanted(FACTS).metrics == ("m",)
    assert set(known.overrides) == {"bad", "worse", "good"}


def test_a_subscription_is_named_alike_by_every_broker() -> None:
    ids = [Instances(subscriptions()).get(b"i", FACTS, 0).subscription_id for _ in range(2)]
    assert ids[0] == ids[1]
    assert -(2**31) <= ids[0] < 2**31
    assert Instances(subscriptions(2000)).get(b"i", FACTS, 0).subscription_id != ids[0]
    assert Instances(subscriptions()).get(b"j", FACTS, 0).subscription_id != ids[0]


def test_another_subscription_may_be_asked_for_at_once() -> None:
    known = subscriptions()
    instances = Instances(known)
    early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    first = instances.get(b"i", FACTS, 0)
    assert first.check_question(0) is ErrorCode.NONE
    assert instances.get(b"i", FACTS, 1).check_question(1) is early
    # Of no concern to this client: it still has to wait.
    known.replace("other", {"metrics": "x", "match": "client_id=b"})
    assert instances.get(b"i", FACTS, 2).check_question(2) is early
    known.replace("s", {"metrics": "y"})
    again = instances.get(b"i", FACTS, 3)
    assert again.check_question(3) is ErrorCode.NONE
    assert again.wanted.metrics == ("y",)
    known.replace("s", {})
    assert instances.get(b"i", FACTS, 4).wanted.metrics == ()
