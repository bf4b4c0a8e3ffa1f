"""Long work in short steps, so that it never holds up the thread that owns the logs.

Owns the agreement between the code that does such work (compaction, creating thousands of
partitions) and the code that drives it. The work is a generator. Each time it yields, the thread
may serve requests; the yielded value says how the work continues:

| yielded     | meaning                                                                    |
|-------------|----------------------------------------------------------------------------|
| None        | a slice of work is done, there is more                                     |
| an OffLoop  | run this in any other thread (or right here), then continue                |
| Elsewhere   | begin this, and continue when it is done                                   |

An `OffLoop` holds a call that would block or hold up the thread: a sync, a large (de)compression.
It touches nothing that the owner's thread changes meanwhile. Between two steps the logs may have
changed; the work has to check before it continues.

Tests and tools, which serve no requests, drive the same generators with `run_steps`.
"""

from collections.abc import Callable, Collection, Generator
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar

from protocol.errors import ProtocolError
from storage.errors import StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")

SLICE_RECORDS: Final = 2048
"""Records, or entries, processed in one slice: about two milliseconds."""

SLICE_BYTES: Final = 1 << 20
"""Bytes read or written in one slice."""

_FEW: Final = 8
"""Up to this number of items, the work does not yield between them."""


class OffLoop(Generic[Result]):
    """One call for another thread. Call `run` once, then resume the generator that yielded it.

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
        """Make the call. `result` raises its OSError, ProtocolError or StorageError."""
        assert not self.is_done, "an off-loop call runs once"
        try:
            self._result.append(self._function())
        except (OSError, ProtocolError, StorageError) as error:
            # `result` raises it in the calling thread. Any other exception is a bug of ours.
            self._error = error
        finally:
            self.is_done = True

    def result(self) -> Result:
        """The result of the call, or raises the exception of the call."""
        assert self.is_done, "the result of a call that did not run"
        if self._error is not None:
            # Dropped: its traceback refers to this call and to the decompressed data.
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error
        assert self._result, "the call failed, and its error was taken already"
        return self._result[0]


class Elsewhere(OffLoop[Result]):
    """A call that has threads of its own, for instance those of a network.

    The driver calls `begin`, and resumes the generator when `done` was called.
    """

    __slots__ = ("_begin",)

    def __init__(
        self, begin: "Callable[[Callable[[Result | None, BaseException | None], object]], object]"
    ) -> None:
        """`begin(settle)` starts the call; `settle(result, error)` ends it in the same thread."""
        super().__init__(_not_here)
        self._begin = begin

    def begin(self, done: Callable[[], object]) -> None:
        """Start the call."""
        assert not self.is_done, "a call elsewhere runs once"

        def settle(result: Result | None, error: BaseException | None) -> None:
            self.is_done = True
            if error is None:
                self._result.append(result)  # type: ignore[arg-type]
            else:
                assert isinstance(error, (OSError, ProtocolError, StorageError)), repr(error)
                self._error = error
            done()

        self._begin(settle)


def _not_here() -> NoReturn:
    raise AssertionError("a call elsewhere is begun, not run")


Steps: TypeAlias = Generator[OffLoop[object] | None, None, Result]


def off_loop(function: Callable[[], Result]) -> Steps[Result]:
    """Yield `function` to be run elsewhere; its result, or raises its exception."""
    call: OffLoop[Result] = OffLoop(function)
    yield call  # type: ignore[misc]
    return call.result()


def each(items: Collection[Item], make: Callable[[Item], Result]) -> Steps[list[Result]]:
    """Call `make` for every item, with a step after each unless they are few."""
    if len(items) <= _FEW:
        return [make(item) for item in items]
    made = []
    for item in items:
        made.append(make(item))
        yield None
    return made


def run_steps(steps: Steps[Result]) -> Result:
    """Run the work to its end in this thread; returns its result."""
    while True:
        try:
            call = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if call is not None:
            call.run()


class Slice:
    """Counts work until it is time to yield: `if spent.add(n): yield`."""

    __slots__ = ("_limit", "_spent")

    def __init__(self, limit: int = SLICE_RECORDS) -> None:
        """Start with an empty slice."""
        self._limit = limit
        self._spent = 0

    def add(self, cost: int) -> bool:
        """Add `cost`; whether the slice is over, which begins the next one."""
        self._spent += cost
        if self._spent < self._limit:
            return False
        self._spent = 0
        return True
