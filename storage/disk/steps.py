"""Long work in short steps, so that the thread that owns the logs is never held up by it.

Owns the agreement between whoever does such work (compaction, making thousands of partitions) and
whoever drives it. The work is a
generator. Each time it yields, requests may be served; what it yields says how it wants to go on:

| yielded     | meaning                                                                    |
|-------------|----------------------------------------------------------------------------|
| None        | a slice of work is done, there is more                                     |
| an OffLoop  | run this in any other thread (or right here), then go on                   |

An `OffLoop` holds what would block or hold up the thread: a sync, a large (de)compression. It
touches nothing that the owner's thread changes meanwhile. Between two steps the world may have
changed; the work has to look before it goes on.

Tests and tools, which serve nobody, drive the same generators with `run_steps`.

Read next: `storage.log.compaction`.
"""

from collections.abc import Callable, Collection, Generator
from typing import Final, Generic, TypeAlias, TypeVar

from protocol.errors import ProtocolError
from storage.errors import StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")

SLICE_RECORDS: Final = 2048
"""Records, or entries, looked at in one slice: about two milliseconds."""

SLICE_BYTES: Final = 1 << 20
"""Bytes read or written in one slice."""

_FEW: Final = 8
"""So many items are no reason to let others in."""


class OffLoop(Generic[Result]):
    """One call for another thread. `run` once, then the generator that yielded it goes on.

    Attributes:
        is_done: whether `run` came to its end.
    """

    __slots__ = ("_error", "_function", "_result", "is_done")

    def __init__(self, function: Callable[[], Result]) -> None:
        """Call `function` later."""
        self.is_done = False
        self._function = function
        self._result: list[Result] = []
        self._error: OSError | ProtocolError | StorageError | None = None

    def run(self) -> None:
        """Make the call. What OSError, ProtocolError or StorageError it raised, `result` raises."""
        assert not self.is_done, "an off-loop call runs once"
        try:
            self._result.append(self._function())
        except (OSError, ProtocolError, StorageError) as error:
            # Carried over to the thread that asked. Anything else is a mistake of ours.
            self._error = error
        finally:
            self.is_done = True

    def result(self) -> Result:
        """What the call returned, or raises what it raised."""
        assert self.is_done, "the result of a call that did not run"
        if self._error is not None:
            # Not kept: its traceback has this call and what was decompressed so far.
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error
        assert self._result, "the call failed, as its thread has told"
        return self._result[0]


Steps: TypeAlias = Generator[OffLoop[object] | None, None, Result]


def off_loop(function: Callable[[], Result]) -> Steps[Result]:
    """Yield `function` to be run elsewhere; its result, or raises what it raised."""
    call: OffLoop[Result] = OffLoop(function)
    yield call  # type: ignore[misc]
    return call.result()


def each(items: Collection[Item], make: Callable[[Item], Result]) -> Steps[list[Result]]:
    """`make` of every item, a step for each unless they are few."""
    if len(items) <= _FEW:
        return [make(item) for item in items]
    made = []
    for item in items:
        made.append(make(item))
        yield None
    return made


def run_steps(steps: Steps[Result]) -> Result:
    """Drive the work to its end in this thread; its result."""
    while True:
        try:
            call = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if call is not None:
            call.run()


class Slice:
    """Counts work until it is time to let others in: `if spent.add(n): yield`."""

    __slots__ = ("_limit", "_spent")

    def __init__(self, limit: int = SLICE_RECORDS) -> None:
        """Nothing is spent yet."""
        self._limit = limit
        self._spent = 0

    def add(self, cost: int) -> bool:
        """Count `cost`; whether the slice is over, which begins the next one."""
        self._spent += cost
        if self._spent < self._limit:
            return False
        self._spent = 0
        return True
