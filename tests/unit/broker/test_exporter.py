"""The library that writes the exposition is imported once, in one thread."""

import threading
from typing import Any, cast

from broker.operator import exporter
from broker.threads import IMPORTING


def test_a_scrape_waits_for_the_import_of_another_thread() -> None:
    class Nothing:
        def collect(self, *, shows_names: bool) -> list[Any]:
            return []

    pieces: list[bytes] = []
    collector = cast(exporter.BrokerCollector, Nothing())
    scrape = threading.Thread(
        target=lambda: pieces.extend(exporter.render(collector, shows_names=False))
    )
    with IMPORTING:
        scrape.start()
        scrape.join(0.2)
        assert scrape.is_alive()
    scrape.join(30)
    assert pieces == [b""]
