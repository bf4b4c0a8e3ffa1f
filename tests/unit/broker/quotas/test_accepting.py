"""The rates of accepted connections by a clock of the test."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from broker.metrics import Metrics
from broker.quotas.accepting import AcceptRates
from broker.quotas.book import QuotaBook, checked_entity
from broker.quotas.throttle import Mutes, Throttle, windows_of
from config import load
from tests.support.clock import FrozenClock

RATE = "max.connection.creation.rate"


class Scene:
    """Rates of a broker whose settings a test may change."""

    def __init__(self, **settings: str) -> None:
        self.clock = FrozenClock(monotonic_ms=0)
        self.config = load(
            command_line={name.replace("_", "."): text for name, text in settings.items()}
        )
        self.throttle: Throttle | None = None
        self.metrics = Metrics()
        self.rates = AcceptRates(
            lambda: self.config,
            lambda: self.throttle,
            windows_of(self.config),
            clock=self.clock,
            metrics=self.metrics,
        )

    def limit_addresses(self, bound: float) -> None:
        book = QuotaBook({})
        book.put(checked_entity([("ip", None)]), {"connection_creation_rate": bound})
        self.throttle = Throttle(
            book,
            windows_of(self.config),
            Mutes(self.clock),
            clock=self.clock,
            metrics=self.metrics,
        )


def test_the_delay_is_that_of_the_rate_and_at_most_a_window() -> None:
    # Kafka: (rate - bound) / bound * window; ten seconds have passed or are taken as passed.
    scene = Scene(max_connection_creation_rate="10")
    assert [scene.rates.delay_ms("A") for _ in range(100)] == [0] * 100
    assert [scene.rates.delay_ms("A") for _ in range(3)] == [100, 200, 300]
    assert max(scene.rates.delay_ms("A") for _ in range(20)) == 1_000
    scene.clock.advance(11_000)
    assert scene.rates.delay_ms("A") == 0


def test_without_a_limit_no_clock_is_read() -> None:
    scene = Scene()
    scene.rates.clock = cast(Any, None)
    assert scene.rates.delay_ms("PLAINTEXT") == 0
    assert scene.rates.address_delay_ms("PLAINTEXT", "127.0.0.1") == 0


def test_a_listener_has_a_rate_of_its_own() -> None:
    scene = Scene()
    name = f"listener.name.plaintext.{RATE}"
    scene.config = replace(scene.config, dynamic=MappingProxyType({name: "1"}))
    assert [scene.rates.delay_ms("OTHER") for _ in range(20)] == [0] * 20
    assert [scene.rates.delay_ms("PLAINTEXT") for _ in range(11)] == [0] * 10 + [1_000]


def test_the_longer_delay_counts() -> None:
    scene = Scene(max_connection_creation_rate="5")
    name = f"listener.name.plaintext.{RATE}"
    scene.config = replace(scene.config, dynamic=MappingProxyType({name: "10"}))
    assert [scene.rates.delay_ms("PLAINTEXT") for _ in range(51)][-1] == 200


def test_a_client_that_is_held_does_not_count_for_others() -> None:
    scene = Scene(max_connection_creation_rate="10")
    scene.limit_addresses(1.0)
    for _ in range(10):
        assert scene.rates.delay_ms("PLAINTEXT") == 0
        assert scene.rates.address_delay_ms("PLAINTEXT", "10.0.0.1") == 0
    for _ in range(200):
        assert scene.rates.delay_ms("PLAINTEXT") == 0
        assert scene.rates.address_delay_ms("PLAINTEXT", "10.0.0.1") > 0
    for number in range(2, 92):
        assert scene.rates.delay_ms("PLAINTEXT") == 0
        assert scene.rates.address_delay_ms("PLAINTEXT", f"10.0.0.{number}") == 0
    assert scene.rates.delay_ms("PLAINTEXT") > 0


def test_a_limit_that_is_lifted_is_forgotten() -> None:
    scene = Scene(max_connection_creation_rate="1")
    limited = scene.config
    assert [scene.rates.delay_ms("A") for _ in range(11)][-1] == 1_000
    scene.config = replace(limited, max_connection_creation_rate=2**31 - 1)
    assert scene.rates.delay_ms("A") == 0
    scene.config = limited
    assert scene.rates.delay_ms("A") == 0
