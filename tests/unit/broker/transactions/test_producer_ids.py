from __future__ import annotations

from broker.groups.coordinator import GroupCoordinator
from broker.transactions.coordinator import TransactionCoordinator
from tests.unit.broker.groups.fakes import World

BLOCK_SIZE = 1000


def _coordinator(world: World) -> TransactionCoordinator:
    services = world.services()
    return TransactionCoordinator(services, GroupCoordinator(services))


def test_is_one_block_reserved_for_many_ids() -> None:
    world = World()
    ids = _coordinator(world)
    assert [ids.allocate_producer_id() for _ in range(BLOCK_SIZE)] == list(range(BLOCK_SIZE))
    assert world.topics.next_producer_id == BLOCK_SIZE
    assert ids.allocate_producer_id() == BLOCK_SIZE


def test_are_ids_never_repeated_after_a_restart() -> None:
    world = World()
    _coordinator(world).allocate_producer_id()
    assert _coordinator(world).allocate_producer_id() == BLOCK_SIZE
