"""The lag of groups in partitions of other workers, which measure them for the next scrape."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from broker.groups.offsets.lag import LOOKUPS_MAX, GroupLag, Position
from broker.groups.offsets.records import CommittedOffset
from broker.topics.peers import Measured
from protocol.records.layout import NO_TIMESTAMP

NOW_MS = 100_000
WINDOW = "flights.__t__1000__2000"


class Peers:
    """Worker 2, which has measured every partition when it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[Position]] = []
        self.timestamp = NOW_MS - 5_000

    def measure(
        self,
        worker: int,
        positions: list[Position],
        found: Callable[[dict[Position, Measured]], object],
    ) -> None:
        assert worker == 2
        self.asked.append(positions)
        found(dict.fromkeys(positions, Measured(0, 10, self.timestamp)))


class Scene:
    """Committed offsets in partitions that worker 2 keeps."""

    def __init__(self, name: str, partitions: int) -> None:
        self.peers = Peers()
        topic = SimpleNamespace(
            name=name, partitions=[None] * partitions, workers=(2,) * partitions
        )
        self.topics: dict[str, Any] = {name: topic}
        self.committed = {
            (name, number): CommittedOffset(4, -1, "", 0, NO_TIMESTAMP)
            for number in range(partitions)
        }
        offsets = SimpleNamespace(groups=lambda: ["g"], of_group=lambda _: self.committed)
        registry = SimpleNamespace(find=self.topics.get, peers=self.peers)
        self.lag = GroupLag(cast(Any, registry), cast(Any, offsets), lambda: NOW_MS)


def test_two_readers_of_the_figures_leave_each_other_the_times() -> None:
    scene = Scene("flights", 1)
    assert list(scene.lag.figures()) == []
    scene.peers.measure = lambda *_: None  # type: ignore[method-assign]
    for _ in range(2):
        (lag,) = scene.lag.figures()
        assert (lag.records, lag.seconds) == (6, 5.0)


def test_each_scrape_asks_for_the_next_of_many_partitions() -> None:
    scene = Scene("flights", 2 * LOOKUPS_MAX + 10)
    for _ in range(3):
        list(scene.lag.figures())
    assert [len(asked) for asked in scene.peers.asked] == [LOOKUPS_MAX] * 3
    lags = list(scene.lag.figures())
    assert len(lags) == 2 * LOOKUPS_MAX + 10
    assert {lag.seconds for lag in lags} == {5.0}


def test_a_window_of_another_worker_has_a_lag() -> None:
    scene = Scene(WINDOW, 1)
    scene.peers.timestamp = NO_TIMESTAMP
    list(scene.lag.figures())
    (lag,) = scene.lag.figures()
    assert (lag.topic, lag.records, lag.seconds) == (WINDOW, 6, None)


def test_measures_of_deleted_topics_are_dropped() -> None:
    scene = Scene("flights", 1)
    list(scene.lag.figures())
    del scene.topics["flights"]
    assert list(scene.lag.figures()) == []
    assert not scene.lag._ends
    assert not scene.lag._elsewhere
