"""How long a job waits before it asks again for what has failed."""

from broker.clocks.clock import Clock


class Pause:
    """Over at first; after a failure for a while, twice as long after each further one in a row."""

    __slots__ = ("_failures", "_first_ms", "_live", "_max_ms", "_until_ms")

    def __init__(self, live: Clock, *, first_ms: int, max_ms: int) -> None:
        """Wait by `live`, which is never settable."""
        self._live = live
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._failures = 0
        self._until_ms = 0

    @property
    def is_over(self) -> bool:
        """Whether the next try may begin."""
        return self._live.monotonic_ms() >= self._until_ms

    def failed(self) -> int:
        """Begin; returns how many ms it takes."""
        # Beyond ten doublings of a second every bound is reached.
        pause_ms = min(self._max_ms, self._first_ms << min(self._failures, 10))
        self._failures += 1
        self._until_ms = self._live.monotonic_ms() + pause_ms
        return pause_ms

    def succeeded(self) -> None:
        """The next failure is the first one in a row."""
        self._failures = 0
