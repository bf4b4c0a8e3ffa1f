"""Explained lookups: over HTTP, by the client, on the command line."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from client.errors import BrokerUnreachable, InvalidUse
from client.explain import explain_lookup
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce

TIMES = (100, 300, 200, 500, 400)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        client = await running.client()
        await create_topic(client, "t")
        for time in TIMES:
            await produce(client, "t", batch(str(time), timestamp=time))
        yield running


def url_of(running: RunningBroker) -> str:
    return f"127.0.0.1:{running.ready.metrics_port}"


async def test_the_answer_comes_with_its_neighbours_and_its_cost(served: RunningBroker) -> None:
    told = await explain_lookup(url_of(served), "t", 0, 201)
    assert (told["found"]["timestamp"], told["found"]["offset"]) == (300, 1)
    assert (told["before"]["offset"], told["after"]["offset"]) == (0, 2)
    assert told["visible"]
    assert told["bytes_read"] > 0
    (search,) = told["searched"]
    assert search["base_offset"] == 0
    assert search["batches_scanned"] >= 1


async def test_nothing_as_new_is_explained_too(served: RunningBroker) -> None:
    told = await explain_lookup(url_of(served), "t", 0, 501)
    assert (told["found"], told["searched"]) == (None, [])


@pytest.mark.parametrize(("topic", "partition", "at"), [("u", 0, 1), ("t", 9, 1), ("t", 0, -5)])
async def test_a_question_that_cannot_be_answered_is_refused(
    served: RunningBroker, topic: str, partition: int, at: int
) -> None:
    with pytest.raises(InvalidUse):
        await explain_lookup(url_of(served), topic, partition, at)


async def test_nobody_there() -> None:
    with pytest.raises(BrokerUnreachable):
        await explain_lookup("http://127.0.0.1:1", "t", 0, 1)


async def test_the_command_tells_it_in_sentences(
    served: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["offsets", "t", "--at", "201", "--bootstrap", served.bootstrap]
    code = await asyncio.to_thread(run, [*command, "--explain", url_of(served)])
    shown = capsys.readouterr().out
    assert code == ExitCode.OK
    assert "t-0: offset 1, " in shown
    assert "1 of 1 segments searched" in shown
    assert "before: offset 0" in shown
