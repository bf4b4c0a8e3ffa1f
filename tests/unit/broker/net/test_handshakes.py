"""Places of handshakes: a share for each address, a bound for all."""

import asyncio

import pytest

from broker.net.handshakes import Handshakes


def places(*, at_once: int = 8, waiting_max: int = 16) -> Handshakes:
    return Handshakes(lambda *_: True, at_once=at_once, waiting_max=waiting_max)


class Shaking:
    """Clients in the middle of a handshake, until the test ends it."""

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes
        self._ends = asyncio.Event()
        self.inside: list[str] = []
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *hosts: str) -> None:
        self._tasks += [asyncio.create_task(self._shake(host)) for host in hosts]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def end(self) -> None:
        self._ends.set()
        await asyncio.gather(*self._tasks)

    async def _shake(self, host: str) -> None:
        try:
            async with self._handshakes.turn(host):
                self.inside.append(host)
                await self._ends.wait()
        except ConnectionRefusedError as error:
            self.refused.append(str(error))


async def test_one_address_gets_a_quarter_of_the_places() -> None:
    shaking = Shaking(places())
    await shaking.start("a", "a", "a", "a", "a", "b")
    assert shaking.inside == ["a", "a", "b"]
    assert shaking.refused == ["4 clients of this address wait for a handshake"]
    await shaking.start("c", "c", "d", "d", "b", "e")
    assert shaking.inside[3:] == ["c", "c", "d", "d", "b"], "eight at once in all"
    await shaking.end()
    assert sorted(shaking.inside) == list("aaaabbccdde"), "those that waited had their turn"


async def test_all_addresses_together_are_bounded() -> None:
    shaking = Shaking(places())
    await shaking.start(*(f"host-{number}" for number in range(17)))
    assert shaking.refused == ["16 clients wait for a handshake"]
    await shaking.end()
    await shaking.start("later")
    assert shaking.inside[-1] == "later", "places come back"


async def test_nothing_is_remembered_of_those_that_have_gone() -> None:
    handshakes = places()
    shaking = Shaking(handshakes)
    assert handshakes.begin("a", "SSL")
    await shaking.start("a")
    handshakes.end("a")
    await shaking.end()
    assert not any((handshakes._free_of_host, handshakes._started, handshakes._accepted))


@pytest.mark.parametrize("has_room", [True, False])
def test_a_client_is_counted_in_where_there_is_room(has_room: bool) -> None:
    asked = []

    def room(*counts: object) -> bool:
        asked.append(counts)
        return has_room

    handshakes = Handshakes(room, at_once=8, waiting_max=16)
    assert handshakes.begin("a", "SSL") is has_room
    handshakes.begin("b", "SSL")
    assert asked == [("a", "SSL", 0, 0), ("b", "SSL", int(has_room), 0)]
    handshakes.begin("a", "SSL")
    assert asked[2] == ("a", "SSL", 2 * has_room, int(has_room))
