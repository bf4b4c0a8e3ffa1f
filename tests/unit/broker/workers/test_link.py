"""Messages of a link arrive whole, in order and with their descriptors; a lost one says so."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from broker.workers.link import Link, Message

LARGE = "x" * 3_000_000
"""More than a socket holds, so that it is sent and received in parts."""


class End:
    """One end and what has arrived there."""

    def __init__(self, connected: socket.socket) -> None:
        self.messages: list[Message] = []
        self.descriptors: list[int | None] = []
        self.is_lost = False
        self.link = Link(connected, self._received, self._lost)

    def _received(self, message: Message, descriptor: int | None) -> None:
        self.messages.append(message)
        self.descriptors.append(descriptor)

    def _lost(self) -> None:
        self.is_lost = True


def pair() -> tuple[End, End]:
    one, other = socket.socketpair()
    return End(one), End(other)


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_messages_arrive_whole_and_in_order() -> None:
    one, other = pair()
    one.link.send({"n": 0})  # before the loop receives
    one.link.open()
    other.link.open()
    for number, text in enumerate(("a", LARGE, "b"), start=1):
        one.link.send({"n": number, "text": text})
    await until(lambda: len(other.messages) == 4)
    assert [message["n"] for message in other.messages] == [0, 1, 2, 3]
    assert other.messages[2]["text"] == LARGE
    one.link.close()
    other.link.close()


async def test_a_descriptor_arrives_with_its_message_even_after_a_large_one() -> None:
    one, other = pair()
    one.link.open()
    other.link.open()
    reading, writing = os.pipe()
    one.link.send({"text": LARGE})
    one.link.send({"client": 1}, writing)
    one.link.send({"after": 1})
    await until(lambda: len(other.messages) == 3)
    assert [one is None for one in other.descriptors] == [True, False, True]
    (received,) = [one for one in other.descriptors if one is not None]
    os.write(received, b"x")
    os.close(received)
    assert os.read(reading, 2) == b"x"
    assert os.read(reading, 2) == b"", "the sender has closed its own"
    os.close(reading)
    one.link.close()
    other.link.close()


async def test_calls_get_their_own_replies() -> None:
    one, other = pair()
    one.link.open()
    other.link.open()
    answers: list[Any] = []
    for number in range(3):
        one.link.call({"ask": number}, answers.append)
    await until(lambda: len(other.messages) == 3)
    for message in reversed(other.messages):
        other.link.reply(message, message["ask"] * 10)
    await until(lambda: len(answers) == 3)
    assert answers == [20, 10, 0]
    one.link.close()
    other.link.close()


async def test_a_lost_link_answers_its_calls_with_none() -> None:
    one, other = pair()
    one.link.open()
    answers: list[Any] = []
    one.link.call({"ask": 1}, answers.append)
    other.link.close()
    await until(lambda: one.is_lost)
    assert answers == [None]
    one.link.call({"ask": 2}, answers.append)
    one.link.send({"n": 1})
    assert answers == [None, None]
    assert not other.is_lost, "that end was closed on purpose"
