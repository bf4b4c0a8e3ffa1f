"""Conversations about groups of Kafka Streams with Apache Kafka and with us.

`STREAMS_WALKS=50` sets the number of random walks.
"""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.compat.brokers import TidelogProcess
from tests.requests_differential.share_conversation import Line, differing
from tests.requests_differential.streams_conversation import (
    CHAPTERS,
    SETTINGS,
    read_chapter,
    read_walk,
)
from tests.support.kafka_peer import KafkaPeer

WALKS: Final = int(os.environ.get("STREAMS_WALKS", "4"))
STEPS: Final = 80

INTENDED: Final = {
    ("refusals", "an id twice|a place out of range"): (
        "A topology that is wrong in itself is STREAMS_INVALID_TOPOLOGY; Kafka fails inside"
    ),
    ("refusals", "m owns nothing of it"): (
        "A member that lists a subtopology without a task of it owns nothing; Kafka looks it up"
    ),
}
"""What is meant to differ: the chapter, what was done, and why."""


def unexplained(chapter: str, ours: list[Line], theirs: list[Line]) -> list[str]:
    """What differs and is not meant to."""
    return [
        f"{chapter}: {done}\n  ours  {mine}\n  kafka {other}"
        for done, mine, other in differing(ours, theirs)
        if not any(name == chapter and re.fullmatch(what, done) for name, what in INTENDED)
    ]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streams_groups_differ_only_as_intended(tmp_path: Path) -> None:
    settings = {**SETTINGS, "metrics.listener": ""}
    with (
        TidelogProcess(tmp_path / "tide", settings=settings) as broker,
        KafkaPeer(tmp_path / "kafka", settings=SETTINGS, heap="512m") as peer,
    ):

        def both(
            read: Callable[[str], Coroutine[None, None, list[Line]]],
        ) -> tuple[list[Line], list[Line]]:
            return asyncio.run(read(broker.bootstrap)), asyncio.run(read(peer.bootstrap))

        left = []
        for chapter in CHAPTERS:
            ours, theirs = both(partial(read_chapter, chapter=chapter))
            left += unexplained(chapter.__name__, ours, theirs)
        for seed in range(WALKS):
            ours, theirs = both(partial(read_walk, seed=seed, steps=STEPS))
            left += unexplained("walk", ours, theirs)
    assert left == []
