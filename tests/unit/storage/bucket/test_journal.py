"""The journal of a bucket: a chain of entries by conditional writes, over a store that fails."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from storage.bucket import journal as journals
from storage.bucket.journal import (
    BucketJournal,
    catch_up,
    decode_entry,
    encode_entry,
    entry_key,
    follow,
    last_write_ms,
    read_state,
)
from storage.bucket.map import JournalEntry, parse_key
from storage.directory.metadata import Json
from storage.disk.steps import run_steps
from storage.errors import Fenced, StoreFailed, UnknownBucketFormat
from tests.support.simulated_store import SimulatedStore, StoreFault

A, B = "a" * 22, "b" * 22


def owner(store: SimulatedStore, name: str = A, seed: int = 1) -> BucketJournal:
    journal = BucketJournal(store, name, Random(seed))
    run_steps(journal.read())
    run_steps(journal.take_over())
    return journal


def put(journal: BucketJournal, key: str, value: object, records: bytes = b"") -> None:
    while run_steps(journal.append(lambda _: {key: value}, [records])) is None:  # type: ignore[dict-item]
        pass


def test_a_reader_gets_what_was_written() -> None:
    store = SimulatedStore()
    journal = owner(store)
    put(journal, "meta/topic/t", {"id": 1}, b"records")
    put(journal, "meta/topic/u", {"id": 2})
    put(journal, "meta/topic/t", None)
    state = read_state(store)
    assert state.documents == journal.state.documents
    assert list(state.documents) == ["owner", "meta/topic/u"]
    assert (state.owner_id, state.epoch, state.number) == (A, 1, 3)
    assert store.objects[entry_key(1)].startswith(b"records")


def test_keys_are_parsed() -> None:
    for text in (f"log/{'0a' * 16}/3", f"segment/{'0a' * 16}/3/90", f"tail/{'0a' * 16}/3/0/7"):
        key = parse_key(text)
        assert key is not None
        assert str(key) == text
    assert parse_key("meta/topic/log") is None


def test_a_former_owner_is_fenced() -> None:
    store = SimulatedStore()
    first, second = owner(store), owner(store, B)
    with pytest.raises(Fenced, match=f"{B}.*epoch 2"):
        put(first, "meta/x/y", 1)
    assert not first.is_owner
    put(second, "meta/x/y", 2)
    assert read_state(store).documents["meta/x/y"] == 2
    run_steps(first.read())
    assert run_steps(first.take_over()) == 3
    with pytest.raises(Fenced):
        run_steps(second.check())


def test_a_copy_of_the_directory_is_fenced_too() -> None:
    store = SimulatedStore()
    first, _ = owner(store), owner(store, seed=2)
    with pytest.raises(Fenced):
        put(first, "meta/x/y", 1)


def test_a_former_owner_is_fenced_however_late_it_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next number stays taken, also when the entries around it were deleted."""
    monkeypatch.setattr(journals, "CHECKPOINT_ENTRIES", 2)
    store = SimulatedStore()
    first = owner(store)
    put(first, "meta/x/y", 1)
    # The first attempt of the second owner is torn, so its entry is the one after it.
    store.faults = {"PUT": [StoreFault.TORN]}
    second = owner(store, B)
    for number in range(10):
        put(second, "meta/x/y", number)
        if second.wants_checkpoint:
            run_steps(second.checkpoint())
    assert entry_key(second.state.number - 6) not in store.objects
    with pytest.raises(Fenced):
        put(first, "meta/x/y", "zombie")
    assert read_state(store).documents["meta/x/y"] == 9


@pytest.mark.parametrize("fault", [StoreFault.LOST, StoreFault.LATE])
def test_a_former_owner_that_lost_its_last_answer_is_fenced(fault: StoreFault) -> None:
    """It tries that number again: the entry was there, and went with the next checkpoint."""
    store = SimulatedStore()
    first = owner(store)
    put(first, "meta/x/y", 1)
    store.faults = {"PUT": [fault], "HEAD": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        put(first, "meta/x/y", 2)
    store.faults = {}
    store.settle()
    second = owner(store, B)
    for number in range(10):
        put(second, "meta/x/y", number)
        run_steps(second.checkpoint())
    with pytest.raises(Fenced):
        put(first, "meta/x/y", "zombie")
    assert read_state(store).documents["meta/x/y"] == 9


def test_a_store_that_loses_every_answer_of_a_put_gets_an_owner_and_its_entries() -> None:
    store = SimulatedStore()
    store.faults = {"PUT": [StoreFault.LOST] * 1_000}
    journal = owner(store)
    assert (read_state(store).owner_id, journal.epoch, journal.state.number) == (A, 1, 0)
    for number in range(3):
        put(journal, "meta/x/y", number)
    assert run_steps(journal.checkpoint()) == 0
    assert journal.is_settled
    assert owner(store, B).epoch == 2
    with pytest.raises(Fenced, match=f"{B}.*epoch 2"):
        put(journal, "meta/x/y", "zombie")
    assert read_state(store).documents["meta/x/y"] == 2


def test_a_put_without_an_answer_says_why_when_the_look_at_it_fails_too() -> None:
    store = SimulatedStore()
    journal = owner(store)
    store.faults = {"PUT": [StoreFault.REFUSED], "HEAD": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed, match="PUT"):
        put(journal, "meta/x/y", 1)
    outcomes = [journal.is_settled]
    store.faults = {"PUT": [StoreFault.REFUSED]}
    with pytest.raises(StoreFailed, match="PUT"):
        put(journal, "meta/x/y", 2)
    outcomes.append(journal.is_settled)
    put(journal, "meta/x/z", 3)
    assert [*outcomes, journal.is_settled] == [False, False, True]
    assert read_state(store).documents == journal.state.documents


@pytest.mark.parametrize("fault", StoreFault)
@pytest.mark.parametrize("kind", ["PUT", "GET", "HEAD"])
def test_each_fault_leaves_one_entry_of_each_change(kind: str, fault: StoreFault) -> None:
    store = SimulatedStore()
    journal = owner(store)
    counted = 0
    for number in range(12):
        store.faults = {kind: [fault if number % 3 == 1 else None]}
        for _ in range(5):
            try:
                put(journal, f"meta/n/{number}", number)
            except StoreFailed:
                continue
            counted += 1
            break
    store.faults = {}
    store.settle()
    state = read_state(store)
    assert counted == 12
    assert [state.documents[f"meta/n/{n}"] for n in range(12)] == list(range(12))


def test_random_faults_and_owners_keep_what_counted() -> None:
    """Whatever fails: what `append` returned counts, in order, until the next owner took over."""
    for seed in range(60):
        rng = Random(seed)
        store = SimulatedStore()
        counted: dict[str, int] = {}
        brokers: list[BucketJournal] = []
        for step in range(40):
            store.faults = {
                k: [rng.choice([*[None] * 6, *StoreFault]) for _ in range(3)]
                for k in ("PUT", "GET", "HEAD", "LIST", "DELETE")
            }
            try:
                if not brokers or rng.random() < 0.1:
                    journal = BucketJournal(store, f"{len(brokers)}", rng)
                    run_steps(journal.read())
                    run_steps(journal.take_over())
                    brokers.append(journal)
                journal = rng.choice([*brokers, brokers[-1]])
                if not journal.is_owner:
                    continue
                key = f"meta/n/{step % 7}"
                if run_steps(journal.append(lambda _, k=key, s=step: {k: s})) is not None:  # type: ignore[misc]
                    assert journal is brokers[-1], "a fenced broker got it as written"
                    counted[key] = step
                if rng.random() < 0.2:
                    run_steps(journal.checkpoint())
            except StoreFailed:
                continue
        store.faults = {}
        store.settle()
        found = read_state(store).documents
        for key, step in counted.items():
            # An attempt without an answer may count all the same.
            assert isinstance(found[key], int)
            assert found[key] >= step, (seed, key)  # type: ignore[operator]


def test_checkpoints_replace_entries() -> None:
    store = SimulatedStore()
    journal = owner(store)
    piece = [2, 0, 7, 0]
    put(journal, "meta/a/b", 0)
    put(journal, f"tail/{'00' * 16}/0/0/0", piece, b"records")
    for number in range(70):
        put(journal, "meta/a/b", number)
    assert journal.wants_checkpoint
    # The first one has none before it: all entries stay for a reader that cannot read it.
    assert run_steps(journal.checkpoint()) == 0
    for number in range(5):
        put(journal, "meta/a/b", number)
    assert run_steps(journal.checkpoint()) == 70
    left = sorted(key for key in store.objects if key.startswith("journal/"))
    assert left == [entry_key(number) for number in (0, 2, *range(72, 78))]
    checkpoints = sorted(key for key in store.objects if key.startswith("checkpoint/"))
    assert [journals.checkpoint_number(key) for key in checkpoints] == [72, 77]
    assert run_steps(journal.checkpoint()) == 0
    assert read_state(store).documents == journal.state.documents
    put(journal, "meta/a/b", "after")
    reader = read_state(store)
    put(journal, "meta/a/c", 1)
    changed: dict[str, Json] = {}
    follow(store, reader, changed)
    assert changed == {"meta/a/c": 1}
    assert reader.documents == journal.state.documents


@pytest.mark.parametrize("entries", [0, 3])
def test_a_damaged_newest_checkpoint_loses_nothing(entries: int) -> None:
    """Neither the first one of a journal nor a later one; `entries` come after it."""
    store = SimulatedStore()
    journal = owner(store)
    for turn in range(4):
        for number in range(5):
            put(journal, f"meta/{turn}/{number}", number)
        run_steps(journal.checkpoint())
        for number in range(entries):
            put(journal, f"meta/{turn}/after/{number}", number)
        newest = max(key for key in store.objects if key.startswith("checkpoint/"))
        for damaged in (b"", store.objects[newest][:-1], None):
            kept = store.objects.pop(newest)
            if damaged is not None:
                store.objects[newest] = damaged
            assert read_state(store).documents == journal.state.documents
            store.objects[newest] = kept
    checkpoints = [key for key in store.objects if key.startswith("checkpoint/")]
    assert len(checkpoints) == 2


def test_files_that_others_have_put_beside_the_journal_are_left_alone() -> None:
    store = SimulatedStore()
    journal = owner(store)
    strange = ("journal/README", "journal/1", f"{entry_key(7)}.bak", "checkpoint/README")
    for key in strange:
        store.create(key, b"hello")
    for number in range(3):
        put(journal, "meta/a/b", number)
        run_steps(journal.checkpoint())
    put(journal, "meta/a/b", "after")
    assert read_state(store).documents == journal.state.documents
    assert last_write_ms(store, journal.state) == store.now_ms
    assert owner(store).epoch == 2
    assert set(strange) <= store.objects.keys()


@pytest.mark.parametrize("read", [follow, catch_up])
def test_what_was_read_before_a_failure_is_not_lost(read: Callable[..., None]) -> None:
    """A standby would lack it for good, and give its offsets to other records."""
    store = SimulatedStore()
    journal = owner(store)
    reader = read_state(store)
    for number in range(3):
        put(journal, f"meta/a/{number}", number)
    changed: dict[str, Json] = {}
    store.faults = {"GET": [None, StoreFault.REFUSED]}
    with pytest.raises(StoreFailed):
        read(store, reader, changed)
    store.faults = {"LIST": [StoreFault.REFUSED]} if read is catch_up else {}
    with suppress(StoreFailed):
        read(store, reader, changed)
    assert changed == {f"meta/a/{number}": number for number in range(3)}
    assert reader.documents == journal.state.documents


def test_an_entry_that_only_this_reader_could_not_read_is_read_again() -> None:
    store = SimulatedStore()
    journal = owner(store)
    reader, changed = read_state(store), dict[str, Json]()
    put(journal, "meta/a/b", 1)
    store.faults = {"GET": [StoreFault.TORN] * 3}
    follow(store, reader, changed)
    assert (changed, reader.voids) == ({}, [1])
    put(journal, "meta/a/c", 2)
    follow(store, reader, changed)
    assert changed == {"meta/a/b": 1, "meta/a/c": 2}
    assert reader.documents == journal.state.documents


def test_what_is_damaged_in_the_middle_is_refused() -> None:
    store = SimulatedStore()
    journal = owner(store)
    put(journal, "meta/a/b", 1)
    put(journal, "meta/a/b", 2)
    store.objects[entry_key(1)] = b"x" + store.objects[entry_key(1)]
    with pytest.raises(StoreFailed, match=r"entry 1 is damaged"):
        read_state(store)


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "JOURNAL_VERSION", 2)
    newer = b"".join(encode_entry(JournalEntry(number=0, epoch=1, owner=A, nonce=0, changes={})))
    monkeypatch.undo()
    with pytest.raises(UnknownBucketFormat, match="format 2, and this program knows 1"):
        decode_entry(newer)
