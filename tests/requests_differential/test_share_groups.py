"""Conversations about share groups with Apache Kafka and with us: no difference that is not meant.

`SHARE_WALKS=50` sets the number of random walks.
"""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from protocol.api.share_fetch import AcquiredRecords
from tests.compat.brokers import TidelogProcess
from tests.requests_differential.share_conversation import (
    CHAPTERS,
    SETTINGS,
    Line,
    differing,
    joined,
    read_chapter,
    read_walk,
)
from tests.requests_differential.share_state_conversation import states
from tests.support.kafka_peer import KafkaPeer

WALKS: Final = int(os.environ.get("SHARE_WALKS", "4"))
STEPS: Final = 150


class Intended(NamedTuple):
    """A difference that is meant: its chapter, what was done, and why."""

    chapter: str
    done: str
    reason: str


INTENDED: Final = (
    Intended(
        "sessions",
        "odd mode: .*",
        "An acquire mode that does not exist is INVALID_REQUEST; Kafka fails inside",
    ),
    Intended(
        "sessions",
        "no group: .*",
        "An empty group id is INVALID_REQUEST; Kafka refuses each partition",
    ),
    Intended(
        "acknowledgements",
        "negative offset: .*",
        "A negative offset is INVALID_REQUEST; Kafka takes it for one that is done",
    ),
    Intended(
        "acquiring",
        "(strict, small batches|no batch size|all again): .*",
        "With strict limits Kafka adds the rest of the last batch to the window, which may then "
        "exceed its limit, and cuts ranges there",
    ),
    Intended(
        "deliveries",
        "where it stands",
        "The start passes records that are archived by their last release at once; Kafka stores "
        "it with the next change",
    ),
    Intended(
        "expiry",
        "(all|turn \\d): .*|where it stands",
        "Records that were delivered often come alone; Kafka decides that for a whole batch",
    ),
    Intended(
        "offsets",
        "topic that is not there",
        "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; Kafka knows no offset of it",
    ),
    Intended(
        "offsets",
        "nothing",
        "A topic without partitions is left out of the answer; Kafka names it if the group has it",
    ),
    Intended(
        "offsets",
        "beyond the end",
        "The lag of a group beyond the end is 0; in Kafka it is negative",
    ),
    Intended(
        "topic_deleted",
        "deleted: .* fetches .*",
        "A deleted topic is UNKNOWN_TOPIC_ID for its partitions; Kafka fails inside",
    ),
    Intended(
        "states",
        "refused: .*",
        "Ranges and starts that no broker stores are INVALID_REQUEST; Kafka stores them",
    ),
    Intended(
        "walk",
        "in the end",
        "The start passes deleted records at once; Kafka stores it with the next change",
    ),
    Intended(
        "walk",
        "walk, at random: .*",
        "Offsets beyond the window are INVALID_REQUEST; the window of Kafka may end later",
    ),
)


def unexplained(chapter: str, ours: list[Line], theirs: list[Line]) -> list[str]:
    """What differs and is not meant to."""
    return [
        f"{chapter}: {done}\n  ours  {mine}\n  kafka {other}"
        for done, mine, other in differing(ours, theirs)
        if not any(
            row.chapter == chapter and re.fullmatch(row.done, done, re.S) for row in INTENDED
        )
    ]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_share_groups_differ_only_as_intended(tmp_path: Path) -> None:
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
        for chapter in (*CHAPTERS, states):
            ours, theirs = both(partial(read_chapter, chapter=chapter))
            left += unexplained(chapter.__name__, ours, theirs)
        for seed in range(WALKS):
            ours, theirs = both(partial(read_walk, seed=seed, steps=STEPS))
            left += unexplained("walk", ours, theirs)
    assert left == []


def test_neighbours_of_one_count_are_joined() -> None:
    def ranges(*bounds: tuple[int, int, int]) -> list[AcquiredRecords]:
        return [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in bounds
        ]

    assert joined(ranges((0, 1, 1), (2, 3, 1), (4, 4, 2), (6, 6, 2))) == ranges(
        (0, 3, 1), (4, 4, 2), (6, 6, 2)
    )
