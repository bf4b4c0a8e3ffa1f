"""Questions to all workers, asked until the parts fit together, or refused."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.operator.queries import Asked, Document, TopicQuery
from broker.operator.worker_queries import ROUNDS_MAX, WorkerQueries


class Counted(TopicQuery):
    """A question whose parts fit together from round `fitting` on."""

    parameters = ("topic", "round")
    is_of_disk = False

    def __init__(self, fitting: int) -> None:
        self.fitting = fitting
        self.asked: list[Asked] = []

    async def part(self, asked: Asked) -> Document:
        self.asked.append(asked)
        return {"round": int(asked.get("round", 1))}

    def again(self, asked: Asked, parts: Sequence[Document]) -> Asked | None:
        number = parts[0]["round"]
        return None if number >= self.fitting else {**asked, "round": str(number + 1)}

    def whole(
        self, asked: Asked, parts: Sequence[Document], unanswered: Sequence[Document]
    ) -> Document:
        return {"asked": asked.get("round"), "parts": parts}


async def ask(question: Counted) -> tuple[int, Any]:
    topics = SimpleNamespace(workers_of=lambda topic, partition: {1})
    asking = WorkerQueries(1, 2, cast(Any, topics), {"/count": question}, lambda *_: None)
    viewer = SimpleNamespace(refusal_of_topic=lambda topic: None)
    status, document = await asking.answer("/count", "topic=t", cast(Any, viewer))
    return status, json.loads(document)


@pytest.mark.parametrize("fitting", range(1, ROUNDS_MAX + 1))
async def test_the_parts_of_the_round_in_which_they_fit_are_joined(fitting: int) -> None:
    question = Counted(fitting)
    asked = None if fitting == 1 else str(fitting)
    assert await ask(question) == (200, {"asked": asked, "parts": [{"round": fitting}]})
    assert len(question.asked) == fitting


async def test_parts_that_never_fit_are_refused_and_not_joined() -> None:
    """A sum over different bars would be wrong without a word."""
    question = Counted(ROUNDS_MAX + 1)
    status, document = await ask(question)
    assert len(question.asked) == ROUNDS_MAX
    assert status == 503
    assert document == {
        "error": "the parts of worker 1 did not fit together in 3 rounds, because the topic "
        "changed meanwhile; ask again"
    }
