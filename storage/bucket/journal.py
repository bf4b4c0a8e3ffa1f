"""The journal of a bucket: what a machine that has nothing else needs, and which broker owns it.

Owns a chain of numbered objects, `journal/<number>`, and the map that they make. Each entry is
created under a condition (the name must be free), so of two brokers that write the same number one
fails: an entry is written only after all entries before it were read.

    | records of tails | changes, JSON | length u32 | CRC-32C u32 | "TLJRN\\0\\0\\1" |

The checksum covers everything before it; integers are big-endian. The changes are those of
`storage.bucket.map`.

`checkpoint/<number>-<random>` has the whole map after an entry, so that a reader begins there. The
checkpoint before it stays, with the entries since that one: a reader begins there if the newest one
is damaged. The owner deletes what is older, apart from entries with records that are still needed,
the first one of each epoch, and the one before that: an owner that was fenced meets one of the two
when it continues, the latter if the answer to its last entry was lost.

**The fence.** The owner is the one that the last `owner` change names. A broker that takes over
writes the next entry with its own id and the next epoch. The former owner can write no entry after
that one: its next number is taken, it reads why, and raises `Fenced`. When to take over without a
command is the affair of `storage.bucket.lease`.

**What counts.** An entry counts when it was read back unchanged. An answer that was lost is settled
by a look at the number: an entry of the same attempt is there, or the number is free, or taken by
another one, which is then read and applied first. Until then `state` may not be what others read:
see `is_settled`. An entry that cannot be read is void if a later one says so, or if none follows:
it was never reported as written.

Source: ours (docs/adr/0028); SlateDB's manifest and Delta's log use the same condition.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from storage.bucket.map import OWNER, BucketState, JournalEntry
from storage.directory.metadata import Json
from storage.disk.files import Bytes
from storage.disk.steps import Steps, off_loop
from storage.errors import (
    Fenced,
    JournalDamaged,
    ObjectExists,
    ObjectMissing,
    StoreFailed,
    UnknownBucketFormat,
)
from storage.remote.object_store import ObjectStore, StoredObject
from storage.segment.remote.sealed import seal, unseal

JOURNAL_VERSION: Final = 1
JOURNAL_PREFIX: Final = "journal/"
CHECKPOINT_PREFIX: Final = "checkpoint/"

ENTRY_BYTES: Final = 8 * 1024 * 1024
"""Records that one entry takes; what is more goes to the next one."""

CHECKPOINT_ENTRIES: Final = 64
"""Entries after which a checkpoint is written; more when the map is large."""

_READS: Final = 3
_AHEAD_BYTES: Final = 64 * 1024 * 1024
"""What a reader of many entries has of them in memory."""

_VOIDS_MAX: Final = 8
_MAGIC: Final = b"TLJRN\x00\x00\x01"
_NONCE_BITS: Final = 64
_NAME: Final = re.compile(
    f"{JOURNAL_PREFIX}[0-9]{{20}}|{CHECKPOINT_PREFIX}[0-9]{{20}}-[0-9a-f]{{16}}"
)
_DELETED_AT_ONCE: Final = 16
"""Objects after whose deletion a broker that stops may leave the rest to the next checkpoint."""


def entry_key(number: int) -> str:
    """The name of an entry's object."""
    return f"{JOURNAL_PREFIX}{number:020d}"


def encode_entry(entry: JournalEntry, records: Sequence[Bytes] = ()) -> list[Bytes]:
    """The parts of the object of an entry, those of its records first."""
    text = json.dumps(
        {
            "version": JOURNAL_VERSION,
            "number": entry.number,
            "epoch": entry.epoch,
            "owner": entry.owner,
            "nonce": entry.nonce,
            "changes": entry.changes,
            "voids": entry.voids,
        },
        separators=(",", ":"),
    ).encode()
    return seal(records, text, _MAGIC)


def decode_entry(data: Bytes) -> JournalEntry | None:
    """The entry in an object; None when it is not what was written.

    Raises UnknownBucketFormat.
    """
    unsealed = unseal(data, _MAGIC)
    if unsealed is None:
        return None
    document = json.loads(unsealed[1])
    if document["version"] != JOURNAL_VERSION:
        raise UnknownBucketFormat(document["version"], JOURNAL_VERSION)
    return JournalEntry(
        number=document["number"],
        epoch=document["epoch"],
        owner=document["owner"],
        nonce=document["nonce"],
        changes=document["changes"],
        voids=tuple(document["voids"]),
    )


def read_object(store: ObjectStore, key: str) -> bytes | None:
    """The whole object, None when there is none. Raises StoreFailed."""
    size = store.size_of(key)
    try:
        return None if size is None else store.get(key, 0, size) if size else b""
    except ObjectMissing:
        return None


def _read_entry(store: ObjectStore, number: int) -> tuple[bool, JournalEntry | None]:
    """Whether the number is taken, and the entry there if it can be read. Raises StoreFailed."""
    for _ in range(_READS):
        data = read_object(store, entry_key(number))
        if data is None:
            return False, None
        entry = decode_entry(data)
        if entry is not None and entry.number == number:
            return True, entry
    return True, None


def read_state(store: ObjectStore) -> BucketState:
    """The map as it is now, from the newest checkpoint and the entries after it.

    Raises:
        StoreFailed: the store failed.
        JournalDamaged: what later entries need cannot be read.
        UnknownBucketFormat: a newer program wrote it.
    """
    for _ in range(_READS):
        state = BucketState()
        for key in reversed(_checkpoints(store)):
            found = _read_checkpoint(store, key)
            if found is not None:
                # A damaged one replaces nothing: entries are deleted when it was read back.
                state = found
                break
        _read_ahead(store, state)
        follow(store, state, {})
        # The entries after that checkpoint may have been deleted in the meantime.
        newest = newest_checkpoint(store)
        if newest <= state.number:
            return state
    raise JournalDamaged(f"the checkpoint after entry {newest} is damaged", state)


def _read_ahead(store: ObjectStore, state: BucketState) -> None:
    """Apply the entries that are listed, as far as they can be read, many of them at once.

    One after the other takes two round trips each, and a start may find a thousand of them. What
    cannot be read, or was written meanwhile, is left to `follow`. Raises StoreFailed.
    """
    sizes = {_number_of(one.key): one.size for one in _listed(store, JOURNAL_PREFIX)}
    while state.number + 1 in sizes:
        batch: list[tuple[str, int]] = []
        size = 0
        number = state.number + 1
        while number in sizes and (not batch or size + sizes[number] <= _AHEAD_BYTES):
            batch.append((entry_key(number), sizes[number]))
            size += sizes[number]
            number += 1
        for data in store.get_all(batch):
            entry = None if data is None else decode_entry(data)
            if entry is None or entry.number != state.number + 1:
                return
            state.apply(entry)


def follow(store: ObjectStore, state: BucketState, changed: dict[str, Json]) -> None:
    """Apply the entries that came after the state, and put the keys that they change in `changed`.

    After a failure the entries before it count, in both: the next call continues. Entries that a
    checkpoint has replaced are not seen: see `catch_up`. Raises StoreFailed, JournalDamaged,
    UnknownBucketFormat.
    """
    while True:
        is_taken, entry = _read_entry(store, state.number + 1)
        if not is_taken:
            return
        if entry is None:
            entry = _entry_after_voids(store, state)
            if entry is None:
                return
        elif wrong := set(state.voids).difference(entry.voids):
            # The writer of this entry has read what could not be read here: look again.
            state.number = min(wrong) - 1
            state.voids = [one for one in state.voids if one not in wrong]
            continue
        state.apply(entry)
        changed.update(entry.changes)


def catch_up(store: ObjectStore, state: BucketState, changed: dict[str, Json]) -> None:
    """As `follow`, for a reader that may be so late that the next entries were deleted.

    It lists the checkpoints, which `follow` does not.
    """
    follow(store, state, changed)
    if newest_checkpoint(store) <= state.number:
        return
    before, now = state.documents, read_state(store)
    changed |= {
        key: now.documents.get(key)
        for key in before.keys() | now.documents.keys()
        if before.get(key) != now.documents.get(key)
    }
    state.number, state.documents, state.voids = now.number, now.documents, now.voids


def _entry_after_voids(store: ObjectStore, state: BucketState) -> JournalEntry | None:
    """The next entry that can be read; None when those that cannot are the last ones."""
    voids = [state.number + 1]
    while len(voids) <= _VOIDS_MAX:
        number = voids[-1] + 1
        is_taken, entry = _read_entry(store, number)
        if not is_taken:
            state.number = voids[-1]
            state.voids = sorted({*state.voids, *voids})
            return None
        if entry is not None:
            if set(voids) <= set(entry.voids):
                return entry
            break
        voids.append(number)
    raise JournalDamaged(f"entry {voids[0]} is damaged", state, voids[0])


def last_write_ms(store: ObjectStore, state: BucketState) -> int:
    """The store's clock when the last entry was written; 0 when there is none."""
    key = entry_key(state.number)
    listed = _listed(store, JOURNAL_PREFIX)
    return next((it.modified_ms for it in listed if it.key == key), 0)


def _listed(store: ObjectStore, prefix: str) -> Iterator[StoredObject]:
    """The objects of the journal with this prefix; files that others have put there are not."""
    return (one for one in store.list_objects(prefix) if _NAME.fullmatch(one.key))


def entries_in(store: ObjectStore) -> set[int]:
    """The numbers of all entries that are listed. Raises StoreFailed."""
    return {_number_of(one.key) for one in _listed(store, JOURNAL_PREFIX)}


def has_journal(store: ObjectStore) -> bool:
    """Whether an entry or a checkpoint is there. Raises StoreFailed."""
    prefixes = JOURNAL_PREFIX, CHECKPOINT_PREFIX
    return any(True for prefix in prefixes for _ in _listed(store, prefix))


def _number_of(key: str) -> int:
    return int(key.removeprefix(JOURNAL_PREFIX))


def checkpoint_number(key: str) -> int:
    """The number of the entry after which a checkpoint was written."""
    return int(key.removeprefix(CHECKPOINT_PREFIX).partition("-")[0])


def newest_checkpoint(store: ObjectStore) -> int:
    """The number of the newest checkpoint that is listed, -1 if none is. Raises StoreFailed."""
    return max(map(checkpoint_number, _checkpoints(store)), default=-1)


def _checkpoints(store: ObjectStore) -> list[str]:
    return sorted(one.key for one in _listed(store, CHECKPOINT_PREFIX))


def _read_checkpoint(store: ObjectStore, key: str) -> BucketState | None:
    """The map of a checkpoint; None when it is gone or damaged."""
    for _ in range(_READS):
        data = read_object(store, key)
        if data is None:
            return None
        entry = decode_entry(data)
        if entry is not None:
            return BucketState(entry.number, dict(entry.changes))
    return None


def damaged_checkpoints(store: ObjectStore) -> list[str]:
    """The names of checkpoints that cannot be read. Raises StoreFailed."""
    return [
        key
        for key in _checkpoints(store)
        # One that is gone by now was replaced.
        if _read_checkpoint(store, key) is None and store.size_of(key) is not None
    ]


def _no_clock() -> int:
    return 0


def in_any_case(_: BucketState) -> None:
    """Take over whatever the map is: a command of the operator."""


def check_owner(owner_id: str, state: BucketState) -> None:
    """Take over only what `owner_id` has, or no broker. Raises Fenced."""
    if state.owner_id not in ("", owner_id):
        raise Fenced(state.owner_id, state.epoch)


class BucketJournal:
    """The journal as one broker writes it. One generator at a time, and beside it `checkpoint`.

    Attributes:
        state: the map as far as it was read or written.
        is_owner: whether this broker has taken the bucket over, and was not fenced since.
        epoch: the one in which it did.
        size_bytes, entries: what was written since the last checkpoint, also by earlier owners.
        collected: entries up to this one are gone if the map did not name them at a checkpoint.
        anchor: an entry that stays until a later look at the bucket (`storage.bucket.emptied`).
        lease_ms: the promise that it gives as the owner (`storage.bucket.lease`), 0 for none.
        sent_ms: when the last entry of ours that counts was sent, by `now_ms`; or None.
    """

    def __init__(
        self,
        store: ObjectStore,
        owner_id: str,
        random: Random,
        *,
        lease_ms: int = 0,
        now_ms: Callable[[], int] = _no_clock,
    ) -> None:
        """Make no request; `owner_id` names the data directory, `now_ms` is a monotonic clock."""
        self.store = store
        self.owner_id = owner_id
        self.state = BucketState()
        self.is_owner = False
        self.epoch = 0
        self.size_bytes = self.entries = 0
        self.collected = self.anchor = -1
        self.lease_ms = lease_ms
        self.sent_ms: int | None = None
        self._now_ms = now_ms
        self._is_uncertain = False
        self._random = random
        self._checkpoint_bytes = 0

    @property
    def is_settled(self) -> bool:
        """Whether all readers find `state`, now and later.

        An entry whose outcome is unknown may be there, or be created late. The next entry that is
        written settles it.
        """
        return not self._is_uncertain and not self.state.voids

    def read(self, check: Callable[[BucketState], None] = in_any_case) -> Steps[BucketState]:
        """Read the map. Raises StoreFailed, JournalDamaged, UnknownBucketFormat.

        `check` is called with the map, also with the part of one that cannot be read to its end,
        and raises to refuse it.
        """
        try:
            self.state = yield from off_loop(partial(read_state, self.store))
        except JournalDamaged as error:
            check(error.state)
            raise
        check(self.state)
        yield from off_loop(self._measure)
        return self.state

    def _measure(self) -> None:
        """Count what came after the newest checkpoint.

        Brokers that end before they have written many entries would never write one, and each
        start would read more of them.
        """
        number, self._checkpoint_bytes = -1, 0
        for one in _listed(self.store, CHECKPOINT_PREFIX):
            if checkpoint_number(one.key) >= number:
                number, self._checkpoint_bytes = checkpoint_number(one.key), one.size
        self.entries = self.size_bytes = 0
        for one in _listed(self.store, JOURNAL_PREFIX):
            if _number_of(one.key) > number:
                self.entries += 1
                self.size_bytes += one.size

    def take_over(self, check: Callable[[BucketState], None] = in_any_case) -> Steps[int]:
        """Become the owner, in the next epoch; returns it. The map is then the latest.

        `check` is called with the map that the entry would follow, before each try, and raises to
        prevent it: no entry that came meanwhile is then overlooked.

        Raises StoreFailed: call `read` and this one again. Raises what `check` raises.
        """
        self.is_owner = False
        while True:
            epoch = self.state.epoch + 1
            if (yield from self._append(self._next_owner, (), epoch, check)) is None:
                continue
            checkpoints = yield from off_loop(partial(_checkpoints, self.store))
            if any(checkpoint_number(key) >= self.state.number for key in checkpoints):
                # The number had been used, and deleted after that checkpoint: no reader sees it.
                yield from self.read()
                continue
            self.is_owner = True
            self.epoch = self.state.epoch
            self.anchor = self.state.number
            return self.epoch

    def _next_owner(self, number: int) -> dict[str, Json]:
        state = self.state
        # What is void before it stays as well: the former owner has to meet a taken number. So does
        # the last entry before that: its owner tries the number again if it has lost the answer.
        first = min([*state.voids, number])
        last = [first - 1] if first > 0 else []
        begun = sorted({*state.owner.get("begun", []), *last, *state.voids, number})
        owner: dict[str, Json] = {"id": self.owner_id, "epoch": state.epoch + 1}
        owner |= {"begun": begun, "released": False}
        if self.lease_ms:
            owner["lease_ms"] = self.lease_ms
        return {OWNER: owner}

    def release(self) -> Steps[None]:
        """Note that the owner has stopped, so that another may take over without a doubt."""
        owner: Json = {**self.state.owner, "released": True}
        yield from self.append(lambda _: {OWNER: owner})

    def append(
        self, changes: Callable[[int], Mapping[str, Json]], records: Sequence[Bytes] = ()
    ) -> Steps[int | None]:
        """Write the next entry; returns its number. `changes` are called with the number.

        `records` in parts, which are sent one after the other.

        None says that an earlier entry of this broker, whose answer was lost, turned up there: it
        is applied now, and the caller computes its changes again.

        Raises:
            Fenced: another broker has taken over.
            StoreFailed: it may have been written; the next call finds out.
        """
        assert self.is_owner, "only the owner writes entries"
        return (yield from self._append(changes, records, self.epoch))

    def check(self) -> Steps[None]:
        """Look whether another broker has taken over. Raises Fenced, StoreFailed."""
        number = self.state.number + 1
        if (yield from off_loop(partial(self.store.size_of, entry_key(number)))) is not None:
            yield from self._look(number, nonce=None)

    def _append(
        self,
        changes: Callable[[int], Mapping[str, Json]],
        records: Sequence[Bytes],
        epoch: int,
        check: Callable[[BucketState], None] = in_any_case,
    ) -> Steps[int | None]:
        while True:
            check(self.state)
            number = self.state.number + 1
            entry = JournalEntry(
                number=number,
                epoch=epoch,
                owner=self.owner_id,
                nonce=self._random.getrandbits(_NONCE_BITS),
                changes=changes(number),
                voids=tuple(self.state.voids),
            )
            parts = yield from off_loop(partial(encode_entry, entry, records))
            key = entry_key(number)
            self._is_uncertain = True
            sent_ms = self._now_ms()
            try:
                yield from off_loop(partial(self.store.put_new, key, *parts))
                is_ours = True
            except StoreFailed as error:
                is_ours = yield from self._settle(number, entry.nonce, error)
                if not is_ours and number not in self.state.voids:
                    return None
            if is_ours and (yield from off_loop(partial(self._is_there, key, parts))):
                self._apply(entry)
                self.sent_ms = sent_ms
                self.entries += 1
                self.size_bytes += sum(map(len, parts))
                return number
            self._void(number)

    def _settle(self, number: int, nonce: int, error: StoreFailed) -> Steps[bool]:
        """Look what a PUT has done that was not answered with success, as `_look`.

        A store may lose the answer of every PUT, and do them all: without a look each attempt
        would find the one before it, and none would ever count. Raises Fenced; `error` when the
        number is free, which says nothing of later, or when the store does not say.
        """
        if not isinstance(error, ObjectExists):
            try:
                size = yield from off_loop(partial(self.store.size_of, entry_key(number)))
            except StoreFailed:
                raise error from None
            if size is None:
                raise error
        return (yield from self._look(number, nonce))

    def _is_there(self, key: str, parts: Sequence[Bytes]) -> bool:
        return any(self.store.has(key, parts) for _ in range(_READS))

    def _apply(self, entry: JournalEntry) -> None:
        # Its number is taken, so no earlier attempt at it can be created any more.
        self.state.apply(entry)
        self._is_uncertain = False

    def _void(self, number: int) -> None:
        known = self.state.number
        assert known <= number <= known + 1, f"{number} is void after {known}"
        self._is_uncertain = False
        self.state.number = number
        if number not in self.state.voids:
            self.state.voids.append(number)

    def _look(self, number: int, nonce: int | None) -> Steps[bool]:
        """Read the entry that is there; whether it is the one of this attempt.

        Another one is applied, or void if it cannot be read. Raises Fenced, StoreFailed.
        """
        is_taken, entry = yield from off_loop(partial(_read_entry, self.store, number))
        if not is_taken:
            raise StoreFailed(f"{entry_key(number)} exists, and is not there")
        if entry is None:
            self._void(number)
            return False
        if entry.nonce == nonce:
            return True
        self._apply(entry)
        if self.is_owner and (entry.owner, entry.epoch) != (self.owner_id, self.epoch):
            self.is_owner = False
            raise Fenced(entry.owner, entry.epoch)
        return False

    # --- checkpoints ----------------------------------------------------------------------------

    @property
    def wants_checkpoint(self) -> bool:
        """Whether enough was written since the last one."""
        return (
            self.entries >= CHECKPOINT_ENTRIES and self.size_bytes >= self._checkpoint_bytes // 2
        ) or self.entries >= 16 * CHECKPOINT_ENTRIES

    def checkpoint(self) -> Steps[int]:
        """Write the map, then delete the entries that are not needed; returns their number.

        These are older than the checkpoint before this one. It takes the map as it is at its first
        step, so entries may be written meanwhile. Raises StoreFailed.
        """
        state = self.state
        self.collected = state.number
        counted = self.entries, self.size_bytes
        needed = {self.anchor, *(piece[0] for _, piece in state.keys("tail"))}
        needed.update(state.owner.get("begun", []))
        entry = JournalEntry(
            number=state.number,
            epoch=state.epoch,
            owner=self.owner_id,
            nonce=self._random.getrandbits(_NONCE_BITS),
            changes=dict(state.documents),
        )
        parts = yield from off_loop(partial(encode_entry, entry))
        key = f"{CHECKPOINT_PREFIX}{entry.number:020d}-{entry.nonce:016x}"
        failed: StoreFailed | None = None
        try:
            yield from off_loop(partial(self.store.put_new, key, *parts))
        except StoreFailed as error:
            failed = error
        if not (yield from off_loop(partial(self._is_there, key, parts))):
            if failed is not None and not isinstance(failed, ObjectExists):
                raise failed
            # Readers would begin there.
            yield from off_loop(partial(self.store.delete, key))
            raise StoreFailed(f"{key} is not what was written")
        self.entries -= counted[0]
        self.size_bytes -= counted[1]
        assert self.entries >= 0, "more entries are in the checkpoint than were written"
        assert self.size_bytes >= 0, "more bytes are in the checkpoint than were written"
        self._checkpoint_bytes = sum(map(len, parts))
        return (yield from self._delete_before(entry.number, needed, key))

    def _delete_before(self, number: int, needed: set[int], newest: str) -> Steps[int]:
        listed = yield from off_loop(partial(_checkpoints, self.store))
        others = [one for one in listed if one != newest and checkpoint_number(one) <= number]
        # In order, so the last one with a lower number is the one before the newest.
        former = [one for one in others if checkpoint_number(one) < number][-1:]
        end = checkpoint_number(former[0]) if former else 0
        numbers = yield from off_loop(partial(entries_in, self.store))
        unused = [entry_key(one) for one in sorted(numbers - needed) if one < end]
        keys = unused + [one for one in others if one not in former]
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            yield from off_loop(partial(self._delete, keys[at : at + _DELETED_AT_ONCE]))
        return len(unused)

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            self.store.delete(key)
