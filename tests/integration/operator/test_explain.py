"""Explained lookups: over HTTP, by the client, on the command line."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import ExitCode
from cli.main import run
from client import this_machine
from client.admin import Admin
from client.aio.explain import MetricsPort
from client.core.configs import metrics_address
from client.errors import BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.this_machine import is_here
from client.types import TopicPartition
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.explain import explain_lookup
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


@pytest.mark.parametrize(
    "answer", [b"", b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"\0" * 9]
)
async def test_another_server_is_no_metrics_port(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnsupportedByBroker, match="is no Tidelog metrics port"):
            await MetricsPort(f"127.0.0.1:{port}").document("/explain", {"topic": "t"})


def url_of(running: RunningBroker) -> str:
    return f"127.0.0.1:{running.ready.metrics_port}"


async def test_the_answer_comes_with_its_neighbours_and_its_cost(served: RunningBroker) -> None:
    document = await explain_lookup(url_of(served), "t", 0, 201)
    assert (document["found"]["timestamp"], document["found"]["offset"]) == (300, 1)
    assert (document["before"]["offset"], document["after"]["offset"]) == (0, 2)
    assert document["visible"]
    assert document["bytes_read"] > 0
    (search,) = document["searched"]
    assert search["base_offset"] == 0
    assert search["batches_scanned"] >= 1


async def test_the_three_binary_searches_show_what_they_looked_at(tmp_path: Path) -> None:
    """Halving 40 segments takes six looks at most, and each look decides the next one."""
    async with running_broker(tmp_path / "data", metrics_listener="127.0.0.1:0") as running:
        client = await running.client()
        await create_topic(client, "t", segment_bytes="2000", index_interval_bytes="0")
        for number in range(400):
            await produce(client, "t", batch(str(number), timestamp=1000 + number * 10))
        document = await explain_lookup(url_of(running), "t", 0, 3001)
        steps = [(one["base_offset"], one["newest_so_far"]) for one in document["segment_steps"]]
        assert 1 < len(steps) <= 6 < document["segments"]
        (search,) = document["searched"]
        reaching = min(base for base, newest in steps if newest >= 3001)
        assert search["base_offset"] == reaching
        assert all(newest >= 3001 for base, newest in steps if base >= reaching)
        looked = {one["slot"]: one for one in search["time_steps"]}
        assert 1 < len(looked) < search["time_entries"]
        floor = max(one["timestamp"] for one in looked.values() if one["timestamp"] <= 3001)
        assert floor == search["time_entry"]["timestamp"]
        places = {one["slot"]: one for one in search["offset_steps"]}
        assert 1 < len(places) < search["offset_entries"]
        assert search["offset_entry"] in [
            {"offset": one["offset"], "position": one["position"]} for one in places.values()
        ]
        after_all = await explain_lookup(url_of(running), "t", 0, 9999)
        assert after_all["segment_steps"][-1]["newest_so_far"] == 4990


async def test_nothing_as_new_is_explained_too(served: RunningBroker) -> None:
    document = await explain_lookup(url_of(served), "t", 0, 501)
    assert (document["found"], document["searched"]) == (None, [])


@pytest.mark.parametrize(("topic", "partition", "at"), [("u", 0, 1), ("t", 9, 1), ("t", 0, -5)])
async def test_a_question_that_cannot_be_answered_is_refused(
    served: RunningBroker, topic: str, partition: int, at: int
) -> None:
    with pytest.raises(InvalidUse):
        await explain_lookup(url_of(served), topic, partition, at)


async def test_no_server_at_the_address() -> None:
    with pytest.raises(BrokerUnreachable):
        await explain_lookup("http://127.0.0.1:1", "t", 0, 1)


async def test_the_command_tells_it_in_sentences(
    served: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["offsets", "t", "--at", "201", "--bootstrap", served.bootstrap]
    code = await asyncio.to_thread(run, [*command, "--explain"])
    shown = capsys.readouterr().out
    assert code == ExitCode.OK
    assert "t-0: offset 1, " in shown
    assert "1 of 1 segments searched" in shown
    assert "before: offset 0" in shown


async def test_the_admin_client_finds_the_port_by_itself(served: RunningBroker) -> None:
    async with Admin(served.bootstrap) as admin:
        document = await admin.explain_lookup(TopicPartition("t", 0), 201)
        with pytest.raises(BrokerUnreachable):
            await admin.explain_lookup(TopicPartition("t", 0), 201, metrics_url="127.0.0.1:1")
    assert document["found"]["offset"] == 1


async def test_a_broker_without_a_metrics_port_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        await create_topic(await running.client(), "t")
        async with Admin(running.bootstrap) as admin:
            with pytest.raises(UnsupportedByBroker, match=r"metrics\.listener is empty"):
                await admin.explain_lookup(TopicPartition("t", 0), 201)


@pytest.mark.parametrize(
    ("listener", "host", "address"),
    [
        ("127.0.0.1:9464", "localhost", "127.0.0.1:9464"),
        ("0.0.0.0:9464", "broker-1", "broker-1:9464"),
        ("[::]:9464", "2001:db8::1", "[2001:db8::1]:9464"),
        ("10.0.0.7:9464", "broker-1", "10.0.0.7:9464"),
    ],
)
def test_where_the_port_is_reached(listener: str, host: str, address: str) -> None:
    assert metrics_address(listener, host, is_here) == address


def test_a_port_for_its_own_machine_is_not_asked_from_another() -> None:
    with pytest.raises(UnsupportedByBroker, match=r"for that machine only.*--metrics HOST:PORT"):
        metrics_address("127.0.0.1:9464", "198.51.100.7", is_here)


def test_a_port_for_its_own_machine_is_asked_there_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that others reach announces a name that is not loopback."""

    def found(host: str, _: int, *, type: socket.SocketKind) -> list[Any]:
        assert host == "broker-1"
        return [(socket.AF_INET, type, 0, "", ("127.0.0.3", 0))]

    monkeypatch.setattr(this_machine, "getaddrinfo", found)
    assert metrics_address("127.0.0.1:9464", "broker-1", is_here) == "127.0.0.1:9464"
