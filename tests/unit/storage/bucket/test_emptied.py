"""A bucket that is emptied, or set back to a backup, while its owner goes on writing."""

import pytest

from storage.bucket import journal as journals
from storage.bucket.journal import JOURNAL_PREFIX
from storage.disk.steps import run_steps
from storage.errors import BucketEmptied, StoreFailed
from tests.support.simulated_store import StoreFault
from tests.unit.storage.bucket.test_audit import Machine as TieredMachine
from tests.unit.storage.bucket.test_audit import filled
from tests.unit.storage.bucket.test_rounds import NOW_MS, Machine, restored_ends


def restart(machine: Machine) -> None:
    machine.dir.close(NOW_MS)
    machine.open()


def shipped() -> Machine:
    """A machine whose bucket has only tails."""
    machine = Machine()
    machine.append("t", 3)
    machine.ship()
    return machine


@pytest.mark.parametrize("is_set_back", [False, True])
@pytest.mark.parametrize("rounds", [1, 5])
def test_it_is_noticed_after_more_was_written(is_set_back: bool, rounds: int) -> None:
    """The last entry is there then, and those before it are not."""
    machine = shipped()
    backup = dict(machine.store.objects) if is_set_back else {}
    machine.append("t")
    machine.ship()
    run_steps(machine.shipper.check())
    machine.store.objects = backup
    for _ in range(rounds):
        machine.append("t")
        machine.ship()
    with pytest.raises(BucketEmptied):
        run_steps(machine.shipper.check())
    assert not machine.journal.is_owner


def test_it_is_noticed_after_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints leave the entry that is looked for, and no more of them than that."""
    monkeypatch.setattr(journals, "CHECKPOINT_ENTRIES", 1)
    machine = shipped()
    for is_emptied in (False, False, True):
        if is_emptied:
            machine.store.objects.clear()
        for _ in range(20):
            machine.append("t")
            machine.ship()
            run_steps(machine.journal.checkpoint())
        if not is_emptied:
            run_steps(machine.shipper.check())
            assert sum(key.startswith(JOURNAL_PREFIX) for key in machine.store.objects) < 25
    with pytest.raises(BucketEmptied):
        run_steps(machine.shipper.check())


def test_objects_that_a_log_does_not_want_say_nothing() -> None:
    """A DELETE was done, and the broker ended before its manifest said so."""
    machine: TieredMachine = filled()
    machine.delete()
    machine.ship()
    objects = machine.dir.topics["t"].logs[0].manifest.remote
    assert objects
    for where in objects.values():
        machine.store.delete(where.key)
    for key in [key for key in machine.store.objects if key.startswith(JOURNAL_PREFIX)]:
        machine.store.delete(key)
    machine.dir.close(1_000)
    machine.open()
    assert run_steps(machine.shipper.begin()) == 1
    assert machine.erase() == 3


def test_a_start_that_is_repeated_does_not_ask_for_the_objects_of_all_logs() -> None:
    machine: TieredMachine = filled()
    machine.dir.close(1_000)
    machine.open()
    machine.store.faults = {"PUT": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed, match="PUT"):
        run_steps(machine.shipper.begin())
    machine.store.operations.clear()
    assert run_steps(machine.shipper.begin()) == 2
    asked = [one for one in machine.store.operations if one.startswith("HEAD")]
    assert not any(one.endswith(".segment") for one in asked)


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_no_journal_is_begun_beside_the_rest_of_another(
    monkeypatch: pytest.MonkeyPatch, has_checkpoint: bool, restarts: bool
) -> None:
    """What was written between the emptying and the look is in the way of new entries."""
    machine = shipped()
    restart(machine)
    machine.ship()
    machine.store.objects.clear()
    machine.append("t")
    machine.ship()
    if has_checkpoint:
        run_steps(machine.journal.checkpoint())
    machine.append("t")
    machine.ship()
    with pytest.raises(BucketEmptied):
        run_steps(machine.shipper.check())
    if restarts:
        restart(machine)
    rest = dict(machine.store.objects)
    for _ in range(2):
        with pytest.raises(BucketEmptied, match="journal/"):
            run_steps(machine.shipper.begin())
    assert machine.store.objects == rest
    # Emptied once more, it is filled.
    machine.store.objects.clear()
    machine.ship()
    assert restored_ends(machine.store) == machine.ends()


def test_a_listing_that_is_late_says_nothing() -> None:
    """A start finds the entries by their names."""
    machine = shipped()
    for late in range(1, 4):
        machine.append("t")
        machine.ship()
        restart(machine)
        machine.store.unlisted = set(list(machine.store.objects)[-late:])
        machine.ship()
        assert restored_ends(machine.store) == machine.ends()
